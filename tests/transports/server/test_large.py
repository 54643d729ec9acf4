"""Results that are large, and end together, become bytes in turns."""

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from ekiden import Context, Server
from ekiden.errors import InternalError
from ekiden.rounds.outcome import Complete, Dialect, Failed, Outcome
from ekiden.transports.server.large import LargeResults
from ekiden.wire.jsonrpc import RequestId
from tests.eras import old_client as old
from tests.serving import call, headers_for, post, served, soon

MEGABYTE = 1024 * 1024


def result(size: int) -> Complete:
    return Complete({"content": [{"type": "text", "text": "x" * size}]})


class Passes:
    """Counts the passes of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def _tick(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    @contextmanager
    def counted(self) -> Generator[None, None, None]:
        self._tick()
        try:
            yield
        finally:
            self._next.cancel()


async def until_rested(large: LargeResults) -> None:
    for _ in range(1000):
        if not large.busy:
            return
        await asyncio.sleep(0)
    raise AssertionError("large results wait for ever")


# The queue


async def test_each_waits_for_its_turn_and_there_are_passes_in_between() -> None:
    large = LargeResults(100 * MEGABYTE)
    assert not large.busy
    large.spelled(2 * MEGABYTE)
    assert large.busy
    passes = Passes()
    with passes.counted():

        async def turn() -> int:
            await large.admit(result(2 * MEGABYTE), "client")
            return passes.count

        turns = await soon(asyncio.gather(*(turn() for _ in range(6))))
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise([0, *turns]))
    await until_rested(large)


async def test_those_that_are_not_so_large_go_on_a_few_at_a_time() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    passes = Passes()
    with passes.counted():

        async def turn() -> int:
            await large.admit(result(MEGABYTE // 4), "client")
            return passes.count

        turns = await soon(asyncio.gather(*(turn() for _ in range(12))))
    assert [len(list(together)) for _, together in itertools.groupby(turns)] == [4, 4, 4]


async def test_a_small_result_does_not_wait_and_a_little_that_is_large_makes_nobody_wait() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(100_000)
    assert not large.busy
    large.spelled(MEGABYTE)
    small: list[Outcome] = [
        result(1000),
        Complete(b"{}"),
        Complete({"content": [], "structuredContent": {"rows": [{"n": n} for n in range(50)]}}),
        Failed(InternalError("no")),
    ]
    for outcome in small:
        with pytest.raises(StopIteration) as ended:
            large.admit(outcome, "client").send(None)
        assert ended.value.value is outcome
    await until_rested(large)


@pytest.mark.parametrize(
    "content",
    [
        Complete(b"x" * 200_000),
        Complete({"contents": [{"uri": "a://b", "blob": "x" * 200_000}]}),
        Complete({"structuredContent": {"numbers": list(range(200_000))}}),
        Complete({"structuredContent": {"rows": [[1] * 100] * 100}}),
        Complete({"structuredContent": {"lines": ["x" * 1000 for _ in range(200)]}}),
    ],
)
async def test_what_is_large(content: Complete) -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    waiting = asyncio.ensure_future(large.admit(content, "client"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await soon(waiting) is content


async def test_if_too_much_waits_the_results_of_the_client_that_has_most_are_not_sent() -> None:
    large = LargeResults(20 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    outcome = result(2 * MEGABYTE)
    modest = large.admit(outcome, "modest")
    ended = await soon(asyncio.gather(modest, *(large.admit(outcome, "greedy") for _ in range(30))))
    assert ended[0] is outcome
    refused = [each.error for each in ended if isinstance(each, Failed)]
    assert 20 < len(refused) < 30
    assert "Too many large results wait" in str(refused[0])
    await until_rested(large)
    large.spelled(2 * MEGABYTE)  # Nothing is held any more.
    again = await soon(asyncio.gather(*(large.admit(outcome, "greedy") for _ in range(8))))
    assert again == [outcome] * 8


async def test_calls_that_are_cancelled_hold_nothing_and_take_no_turn() -> None:
    large = LargeResults(20 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    outcome = result(2 * MEGABYTE)
    passes = Passes()
    with passes.counted():
        begun = passes.count
        waiting = [asyncio.ensure_future(large.admit(outcome, "gone")) for _ in range(8)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        here = await soon(asyncio.gather(*(large.admit(outcome, "here") for _ in range(8))))
        assert here == [outcome] * 8
        assert passes.count - begun < 8 * 8 + 20


def test_nobody_waits_for_an_event_loop_that_is_gone() -> None:
    large = LargeResults(20 * MEGABYTE)

    async def begin() -> None:
        large.spelled(2 * MEGABYTE)
        assert large.busy

    asyncio.run(begin())
    large.forget()
    assert not large.busy

    async def again() -> None:
        large.spelled(2 * MEGABYTE)
        await soon(large.admit(result(2 * MEGABYTE), "client"))

    asyncio.run(again())


# Over HTTP


def gated_server() -> tuple[Server, asyncio.Event, list[int]]:
    server = Server("large", version="1")
    gate, waiting = asyncio.Event(), list[int]()

    @server.tool
    async def much(ctx: Context) -> str:
        await ctx.progress(1)
        waiting.append(1)
        await gate.wait()
        return "x" * 2_000_000

    return server, gate, waiting


@pytest.mark.parametrize("era", ["2026", "2025"])
@pytest.mark.parametrize("streams", [True, False])
async def test_large_results_that_end_together_are_not_spelled_in_one_pass(
    era: str, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, gate, waiting = gated_server()
    passes, spelled = Passes(), dict[RequestId, int]()
    render = Complete.render

    def counting(self: Complete, dialect: Dialect, request_id: RequestId) -> bytes:
        response = render(self, dialect, request_id)
        if len(response) > MEGABYTE:
            spelled[request_id] = passes.count  # The last time: others may look at results before.
        return response

    monkeypatch.setattr(Complete, "render", counting)
    more: dict[str, Any] = {"progressToken": 1} if streams else {}
    async with served(server) as base, old.old_client(base) as client:
        if era == "2026":
            calls = [soon(post(base, call("much", request_id=n, **more))) for n in range(8)]
        else:
            calls = [soon(client.send(old.call("much", id=n, meta=more))) for n in range(8)]
        answering = asyncio.gather(*calls)
        async with asyncio.timeout(20):
            while len(waiting) < 8:
                await asyncio.sleep(0.01)
        with passes.counted():
            gate.set()
            responses = await answering
    assert all(len(response.content) > 2_000_000 for response in responses)
    assert len(spelled) == 8
    assert len(set(spelled.values())) == 8


@pytest.mark.parametrize("era", ["2026", "2025"])
async def test_what_is_given_up_is_forgotten_although_all_end_in_one_pass(era: str) -> None:
    server = Server("large", version="1", stateless_2025=True)
    most = [0]

    @server.tool
    async def much() -> str:
        most[0] = max(most[0], tracemalloc.get_traced_memory()[0])
        return "x" * 2_000_000

    application = server.asgi()
    server.endpoint.large = LargeResults(20 * MEGABYTE)
    message = call("much")
    headers = {"host": "localhost", **headers_for(message)}
    if era == "2025":
        message, headers["mcp-protocol-version"] = old.call("much"), "2025-11-25"
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": pairs, "client": ("10.0.0.1", 1)}

    async def ask() -> int:
        events, sizes = asyncio.Queue[dict[str, Any]](), list[int]()
        events.put_nowait({"type": "http.request", "body": json.dumps(message).encode()})

        async def send(event: Any) -> None:
            sizes.append(len(event.get("body", b"")))

        await application(dict(scope), events.get, send)
        return sum(sizes)

    async with server.endpoint.in_use():
        await soon(ask())  # Whatever is made once.
        tracemalloc.start()
        try:
            sizes = await soon(asyncio.gather(*(ask() for _ in range(40))))
        finally:
            tracemalloc.stop()
    assert 8 < sum(size > MEGABYTE for size in sizes) < 14
    assert most[0] < 30 * MEGABYTE
