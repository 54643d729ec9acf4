"""Large messages of servers are decoded in turns, and count until they are passed on."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ekiden import TooMuch
from ekiden.transports.client import decoding
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.decoding import Held
from ekiden.transports.client.link import Outgoing
from ekiden.transports.client.process import ProcessLink
from ekiden.transports.client.streamable import StreamableLink
from tests.passes import Passes
from tests.serving import soon

JSON, EVENTS = "application/json", "text/event-stream"
SMALL, LARGE = b"{}", b'{"text":"' + b"x" * 500_000 + b'"}'
MANY = b'{"a":[' + b",".join([b"[]"] * 30_000) + b"]}"
"""90 KB that count 7.8 MB."""


class Response:
    """A response that is whole."""

    status = 200

    def __init__(self, kind: str, body: bytes) -> None:
        self.headers: Mapping[str, str] = {"content-type": kind}
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        pass


class Server:
    """Answers every request at once, and notes who has been answered in which pass of the event loop."""

    def __init__(self, kind: str = JSON, passes: Passes | None = None, **options: Any) -> None:
        self.link = StreamableLink(
            cast("Any", self), message_limit=10_000_000, stream_limit=10_000_000, **options
        )
        self._kind = kind
        self._passes = passes or Passes()
        self._answers: dict[str, bytes] = {}

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        message = b'{"jsonrpc":"2.0","id":1,%b}' % self._answers.pop(headers["answer"])
        return Response(self._kind, b"data: %b\n\n" % message if self._kind == EVENTS else message)

    async def call(self, result: bytes, *, held: Held | None = None, member: bytes = b"result") -> int:
        """The pass in which a call has its response."""
        name = str(len(self._answers))
        self._answers[name] = b'"%b":%b' % (member, result)
        await self.link.request(Outgoing(1, "tools/call", b"{}", {"answer": name}, held), cast("Any", None))
        return self._passes.count


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for 40 MB, of which each test begins with all."""
    monkeypatch.setattr(decoding, "MOST", 40_000_000)


@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("member", [b"result", b"error"])
async def test_large_responses_that_are_whole_together_are_decoded_with_passes_in_between(
    kind: str, member: bytes
) -> None:
    passes = Passes()
    server = Server(kind, passes)
    with passes.counted():
        answered = await soon(asyncio.gather(*(server.call(LARGE, member=member) for _ in range(6))))
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise(sorted(answered)))


async def test_many_large_responses_of_one_server_do_not_hold_up_that_of_another() -> None:
    evil, good, order = Server(), Server(), list[str]()

    async def call(server: Server, name: str) -> None:
        await server.call(LARGE)
        order.append(name)

    await soon(asyncio.gather(*(call(evil, "evil") for _ in range(10)), call(good, "good")))
    assert order.index("good") == 2


async def test_small_responses_wait_for_no_turn() -> None:
    passes = Passes()
    evil, good = Server(passes=passes), Server(passes=passes)
    with passes.counted():
        large = [asyncio.ensure_future(evil.call(LARGE)) for _ in range(5)]
        small = await soon(asyncio.gather(*(good.call(SMALL) for _ in range(5))))
        assert max(small) < min(await soon(asyncio.gather(*large[1:])))
    assert len(set(small)) == 1


async def test_large_lines_of_a_process_are_decoded_with_passes_in_between() -> None:
    stdout = asyncio.StreamReader(limit=10_000_000)
    heard = list[int]()
    passes = Passes()

    async def wait() -> int:
        return 0

    process = SimpleNamespace(stdout=stdout, wait=wait, returncode=0)
    link = ProcessLink(cast("Any", process), 10_000_000)
    link.listener = cast("Any", SimpleNamespace(on_notification=lambda _: heard.append(passes.count)))
    with passes.counted():
        stdout.feed_data((b'{"jsonrpc":"2.0","method":"x","params":%b}\n' % LARGE) * 4)
        stdout.feed_eof()
        await soon(link._reading)  # pyright: ignore[reportPrivateUsage]
    assert len(heard) == 4
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise(heard))


async def test_what_is_held_counts_by_its_values_and_more_of_it_waits() -> None:
    server, other, held = Server(), Server(), [Held() for _ in range(20)]
    calls = [asyncio.ensure_future(server.call(MANY, held=each)) for each in held]
    await soon(_settled())
    assert sum(call.done() for call in calls) == 5  # 40 MB, though all of them came in 2.
    await soon(other.call(b'{"a":[' + b"[]," * 3_000 + b"[]]}", held=Held()))  # It holds almost nothing.
    for each in held[:5]:
        each.drop()
    await soon(_settled())
    assert sum(call.done() for call in calls) == 10
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    for each in held:
        each.drop()
    await soon(server.call(MANY, held=held[0]))


async def test_what_nobody_passes_on_is_its_receivers_and_does_not_count() -> None:
    server = Server()
    await soon(asyncio.gather(*(server.call(MANY) for _ in range(20))))


async def test_a_message_for_which_there_is_no_room_for_long_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "_WAIT_SECONDS", 0.01)
    server, held = Server(), Held()
    for _ in range(5):
        await soon(server.call(MANY, held=held))
    with pytest.raises(TooMuch, match="no room for another"):
        await soon(server.call(MANY, held=held))
    held.drop()
    await soon(server.call(MANY, held=held))


async def test_a_message_that_is_larger_than_all_room_is_decoded_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "MOST", 1_000_000)
    server, held = Server(), Held()
    await soon(server.call(MANY, held=held))
    held.drop()
    await soon(server.call(MANY, held=held))


@pytest.mark.parametrize("kind", [JSON, EVENTS])
async def test_a_message_of_too_many_values_says_so(kind: str) -> None:
    with pytest.raises(TooMuch, match="more than 50000 values"):
        await soon(Server(kind, most_values=50_000).call(MANY))


async def test_a_line_of_too_many_values_fails_the_request_that_it_answers() -> None:
    written = list[bytes]()

    async def write(line: bytes) -> None:
        written.append(line)

    link = ChannelLink(write, most_values=50_000)
    call = asyncio.ensure_future(link.request(Outgoing(7, "tools/call", b"{}"), cast("Any", None)))
    await asyncio.sleep(0)
    assert await soon(link.hear(b'{"jsonrpc":"2.0","id":6,"result":%b}' % MANY))
    assert await soon(link.hear(b'{"jsonrpc":"2.0","id":7,"method":"x","params":%b}' % MANY))
    assert not call.done()
    assert await soon(link.hear(b'{"jsonrpc":"2.0","id":7,"result":%b}' % MANY))
    with pytest.raises(TooMuch, match="more than 50000 values"):
        await soon(call)


async def test_what_comes_after_its_call_has_ended_does_not_count() -> None:
    server, held = Server(), Held()
    held.drop()
    for _ in range(10):
        await soon(server.call(MANY, held=held))


async def _settled() -> None:
    """Wait until nothing more is answered."""
    for _ in range(200):
        await asyncio.sleep(0)
