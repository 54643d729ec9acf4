"""What is kept of streams for clients that may come back is bounded."""

import functools
from typing import Any

from ekiden.transports.server.legacy.events import EventStream, StreamResponse
from ekiden.transports.server.legacy.kept import KeptBytes


def _stream(kept: KeptBytes, client: str, size: int) -> EventStream:
    stream = EventStream(1, primed=False)
    stream.on_size = functools.partial(kept.hold, client, stream)
    stream.append(b"x" * size)
    return stream


async def _nowhere(event: Any) -> None:
    raise AssertionError(event)


async def test_the_oldest_of_the_client_that_has_most_is_given_up() -> None:
    kept = KeptBytes(10_000)
    modest = _stream(kept, "modest", 2000)
    greedy = [_stream(kept, "greedy", 2000) for _ in range(6)]
    assert modest.after(0) is not None
    assert [stream.after(0) is not None for stream in greedy] == [False, False, False, True, True, True]


async def test_for_one_long_event_thousands_of_short_streams_are_given_up() -> None:
    kept = KeptBytes(1_000_000)
    short = [_stream(kept, f"client {number % 100}", 400) for number in range(2000)]
    assert all(stream.after(0) is not None for stream in short)
    long = _stream(kept, "another", 900_000)
    assert long.after(0) is None
    assert all(stream.after(0) is not None for stream in short)
    long.connection = StreamResponse(long, _nowhere, after=0, silence_seconds=1, stall_seconds=1)
    long.append(b"x" * 900_000)
    assert long.after(0) is not None
    assert sum(stream.after(0) is not None for stream in short) < 300


async def test_a_long_event_is_there_for_a_client_that_lost_its_connection_in_the_middle_of_it() -> None:
    stream = EventStream(1, primed=False)
    stream.append(b"x" * 1_000_000)
    stream.note(1)
    assert stream.after(0) is not None
