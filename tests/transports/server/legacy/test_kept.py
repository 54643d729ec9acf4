"""What is kept of streams for clients that may come back is bounded."""

import functools
from typing import Any

from ekiden.transports.server.legacy.events import EventStream, StreamResponse
from ekiden.transports.server.legacy.kept import HeldBytes, Pools
from ekiden.transports.server.legacy.streams import SessionStreams


def _stream(kept: HeldBytes | Pools, client: str, size: int) -> EventStream:
    stream = EventStream(1, primed=False)
    stream.on_size = functools.partial(kept.hold, client, stream)
    if size:
        stream.append(b"x" * size)
    return stream


async def _nowhere(event: Any) -> None:
    raise AssertionError(event)


async def test_the_oldest_of_the_client_that_has_most_is_given_up() -> None:
    kept = HeldBytes(10_000)
    modest = _stream(kept, "modest", 2000)
    greedy = [_stream(kept, "greedy", 2000) for _ in range(6)]
    assert modest.after(0) is not None
    assert [stream.after(0) is not None for stream in greedy] == [False, False, False, True, True, True]


async def test_for_one_long_event_thousands_of_short_streams_are_given_up() -> None:
    kept = HeldBytes(1_000_000)
    short = [_stream(kept, "many", 400) for _ in range(2000)]
    few = [_stream(kept, "few", 400) for _ in range(10)]
    assert all(stream.after(0) is not None for stream in short)
    long = _stream(kept, "another", 700_000)
    assert long.after(0) is None  # It has most.
    again = _stream(kept, "another", 400_000)
    assert again.after(0) is not None
    assert sum(stream.after(0) is not None for stream in short) < 1400
    assert all(stream.after(0) is not None for stream in few)


async def test_a_client_that_does_not_read_costs_others_nothing_of_what_is_kept_for_them() -> None:
    pools = Pools(kept=10_000, unread=20_000)
    kept = _stream(pools, "modest", 2000)
    read = _stream(pools, "modest", 0)
    read.is_awaited = True
    read.append(b"x" * 2000)
    unread: list[EventStream] = []
    for _ in range(30):
        stream = _stream(pools, "greedy", 0)
        stream.connection = StreamResponse(stream, _nowhere, after=0, silence_seconds=1, stall_seconds=1)
        stream.append(b"x" * 2000)
        unread.append(stream)
    assert kept.after(0) is not None
    assert read.after(0) is not None
    assert sum(stream.connection is not None for stream in unread) < 10  # The others are cut.


async def test_what_is_read_no_longer_counts_among_what_is_kept() -> None:
    pools = Pools(kept=10_000, unread=20_000)
    streams = [_stream(pools, "client", 0) for _ in range(8)]
    for stream in streams:
        connection = StreamResponse(stream, _nowhere, after=0, silence_seconds=1, stall_seconds=1)
        stream.attach(connection, 0)
        stream.append(b"x" * 2000)
    assert all(stream.after(0) is not None for stream in streams)
    for stream in streams:
        stream.attach(None, 0)
    assert sum(stream.after(0) is not None for stream in streams) == 4


async def test_a_long_event_is_there_for_a_client_that_lost_its_connection_in_the_middle_of_it() -> None:
    stream = EventStream(1, primed=False)
    stream.append(b"x" * 1_000_000)
    stream.note(1)
    assert stream.after(0) is not None


async def test_of_a_stream_of_another_process_there_is_one_copy() -> None:
    pools = Pools(kept=10_000, unread=20_000)
    streams = SessionStreams("session", "2025-11-25", None, functools.partial(pools.hold, "client"))
    with streams.followed(7) as first:
        first.append(b"x" * 1000)
        with streams.followed(7) as second:
            second.append(b"x" * 1000)
            assert first.after(0) is None
            assert second.after(0) is not None
    with streams.followed(7) as third:
        third.append(b"x" * 1000)
        assert third.after(0) is not None
