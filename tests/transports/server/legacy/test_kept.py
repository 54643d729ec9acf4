"""What is kept of streams for clients that may come back is bounded."""

import functools

from ekiden.transports.server.legacy.events import EventStream
from ekiden.transports.server.legacy.kept import KeptBytes


def _stream(kept: KeptBytes, client: str, size: int) -> EventStream:
    stream = EventStream(1, primed=False)
    stream.on_size = functools.partial(kept.hold, client, stream)
    stream.append(b"x" * size)
    return stream


async def test_the_oldest_of_the_client_that_has_most_is_given_up() -> None:
    kept = KeptBytes(10_000)
    modest = _stream(kept, "modest", 2000)
    greedy = [_stream(kept, "greedy", 2000) for _ in range(6)]
    assert modest.after(0) is not None
    assert [stream.after(0) is not None for stream in greedy] == [False, False, False, True, True, True]


async def test_a_long_event_is_there_for_a_client_that_lost_its_connection_in_the_middle_of_it() -> None:
    stream = EventStream(1, primed=False)
    stream.append(b"x" * 1_000_000)
    stream.note(1)
    assert stream.after(0) is not None
