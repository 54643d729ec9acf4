"""Results that are large, and end together, become bytes in turns."""

import asyncio
import itertools
import json
import tracemalloc
import weakref
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Client, Context, Image, Server
from ekiden.errors import InternalError
from ekiden.rounds.outcome import Complete, Dialect, Failed, Outcome
from ekiden.server.questions import content
from ekiden.transports.server.large.results import TOO_MUCH, LargeResults
from ekiden.wire.jsonrpc import RequestId
from tests.eras import old_client as old
from tests.passes import Passes
from tests.serving import call, headers_for, post, request, served, soon

MEGABYTE = 1024 * 1024


def result(size: int) -> Complete:
    return Complete({"content": [{"type": "text", "text": "x" * size}]})


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


async def test_a_result_that_waits_alone_is_sent_however_large_it_seems() -> None:
    large = LargeResults(3 * MEGABYTE)
    for outcome in (result(40 * MEGABYTE), result(2 * MEGABYTE)):
        large.spelled(2 * MEGABYTE)
        assert await soon(large.admit(outcome, "client")) is outcome


async def test_one_result_counts_for_no_more_than_one_may_have() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    huge = Complete({"rows": [bytes(60 * MEGABYTE)]})
    modest = large.admit(result(2 * MEGABYTE), "modest")
    ended = await soon(asyncio.gather(modest, *(large.admit(huge, "huge") for _ in range(3))))
    assert [each for each in ended if isinstance(each, Failed)] == []


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


# What handlers return


async def test_a_result_that_is_made_goes_before_values_that_wait_to_be_made() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    order: list[str] = []

    async def value(name: str) -> None:
        assert await large.admit_value(["x" * 2 * MEGABYTE], "client")
        order.append(name)

    async def made() -> None:
        await large.admit(result(2 * MEGABYTE), "client")
        order.append("made")

    await soon(asyncio.gather(value("first"), value("second"), made()))
    assert order == ["made", "first", "second"]


class Sure(BaseModel):
    ok: bool


class Rows(BaseModel):
    rows: list[dict[str, int]]


@dataclass(slots=True)
class Line:
    text: str


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [{"n": n} for n in range(20_000)]},
        Rows(rows=[{"n": n} for n in range(20_000)]),
        [Line("x" * 1000) for _ in range(200)],
        {"x" * 1000} | {f"{n:0>1000}" for n in range(200)},
        MappingProxyType(dict.fromkeys(range(200), "x" * 1000)),
        b"x" * 200_000,
        Image(data=b"x" * 200_000, format="png"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_which_values_are_large(value: object) -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    waiting = asyncio.ensure_future(large.admit_value(value, "client"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await soon(waiting)


@pytest.mark.parametrize("value", [None, 5, "x" * 1000, {"n": [1, 2, 3]}, Line("x"), object(), [[]] * 100])
async def test_which_values_are_small(value: object) -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    with pytest.raises(StopIteration) as ended:
        large.admit_value(value, "client").send(None)
    assert ended.value.value is value
    assert large.busy


async def test_a_value_for_which_no_client_waits_is_made_however_much_waits() -> None:
    large = LargeResults(3 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    value = ["x" * 2 * MEGABYTE]
    made = await soon(asyncio.gather(*(large.admit_value(value, None) for _ in range(6))))
    assert made == [value] * 6


async def test_fewer_bytes_wait_once_that_is_said() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.limit(3 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    value = ["x" * 2 * MEGABYTE]
    waiting = (large.admit_value(value, "client") for _ in range(6))
    made = await soon(asyncio.gather(*waiting, return_exceptions=True))
    assert [type(each) for each in made].count(InternalError) == 5
    assert made.count(value) == 1


FORMS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
DATA = {"rows": ["x" * 1000 for _ in range(2000)]}


class Ended:
    """Lets many calls end in one pass."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0

    async def with_data(self) -> dict[str, Any]:
        self.waiting += 1
        await self.gate.wait()
        return DATA

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.waiting < count:
                await asyncio.sleep(0.01)


def server_with_data(ended: Ended) -> Server:
    server = Server("large", version="1")

    @server.tool
    async def direct() -> dict[str, Any]:
        return await ended.with_data()

    @server.tool
    async def in_a_round(ctx: Context) -> dict[str, Any]:
        return await ended.with_data()

    @server.resource("data://rows")
    async def rows() -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return await ended.with_data()

    return server


@pytest.fixture
def made_in(monkeypatch: pytest.MonkeyPatch) -> tuple[Passes, list[int]]:
    """In which passes of the loop results were made of large data."""
    passes, made_in = Passes(), list[int]()
    text_block = content.text_block

    def counting(data: object) -> dict[str, Any]:
        made_in.append(passes.count)
        return text_block(data)

    to_json = content.to_json

    def counting_json(value: object) -> Any:
        made_in.append(passes.count)
        return to_json(value)

    monkeypatch.setattr(content, "text_block", counting)
    monkeypatch.setattr(content, "to_json", counting_json)
    return passes, made_in


@pytest.mark.parametrize("era", ["2026", "2025"])
@pytest.mark.parametrize("what", ["direct", "in_a_round", "data://rows"])
async def test_results_of_large_data_are_not_made_in_one_pass(
    what: str, era: str, made_in: tuple[Passes, list[int]]
) -> None:
    ended = Ended()
    server = server_with_data(ended)
    passes, made = made_in
    async with served(server) as base, old.old_client(base) as client:
        if "://" in what:
            method, params = "resources/read", {"uri": what}
        else:
            method, params = "tools/call", {"name": what, "arguments": {}}
        if era == "2026":
            calls = [soon(post(base, request(method, params, request_id=n))) for n in range(8)]
        else:
            plain = {"jsonrpc": "2.0", "method": method, "params": params}
            calls = [soon(client.send({**plain, "id": n})) for n in range(8)]
        answering = asyncio.gather(*calls)
        await ended.until(8)
        with passes.counted():
            ended.gate.set()
            responses = await answering
    assert all(len(response.content) > 2_000_000 for response in responses)
    assert len(made) == len(set(made)) == 8


async def test_results_of_tasks_with_large_data_are_not_made_in_one_pass(
    made_in: tuple[Passes, list[int]],
) -> None:
    ended = Ended()
    server = Server("large", version="1", store="memory:")

    @server.tool(task="required")
    async def much(ctx: Context) -> dict[str, Any]:
        return await ended.with_data()

    passes, made = made_in
    async with Client(server, tasks=True) as client:
        calls = asyncio.gather(*(client.call_tool("much") for _ in range(8)))
        await ended.until(8)
        with passes.counted():
            ended.gate.set()
            results = await soon(calls)
    assert [len(each.structured_content["rows"]) for each in results if each.structured_content] == [2000] * 8
    assert len(made) == len(set(made)) == 8


async def test_a_call_whose_large_value_is_too_much_fails_and_its_round_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("large", version="1", keys=[b"k" * 32])
    begun: list[int] = []

    async def charge() -> int:
        begun.append(1)
        return 1

    @server.tool
    async def pay(ctx: Context) -> dict[str, Any]:
        await ctx.elicit("Sure?", Sure)
        await ctx.step(charge)
        return DATA

    large = server.endpoint.large
    async with served(server) as base:
        params = {"name": "pay", "arguments": {}}
        asked = (await post(base, request("tools/call", params, **FORMS))).json()["result"]
        [key] = asked["inputRequests"]
        answer = {key: {"action": "accept", "content": {"ok": True}}}
        again = {**params, "inputResponses": answer, "requestState": asked["requestState"]}
        with monkeypatch.context() as patched:
            patched.setattr(large, "busy", True)
            patched.setattr(large, "admit_value", _no_room)
            refused = (await post(base, request("tools/call", again, **FORMS))).json()["error"]
        assert refused["code"] == -32603
        assert "Too many large results" in refused["message"]
        repeated = (await post(base, request("tools/call", again, **FORMS))).json()["result"]
    assert repeated["structuredContent"] == DATA
    assert begun == [1]


async def _no_room(*_: object) -> object:
    raise InternalError(TOO_MUCH)


async def test_large_results_of_a_mounted_server_wait_among_those_of_the_server_around_it() -> None:
    outer, inner, innermost = Server("outer"), Server("inner"), Server("innermost")
    outer.mount(inner, prefix="a")
    inner.mount(innermost, prefix="b")
    assert outer.endpoint.large is inner.endpoint.large is innermost.endpoint.large


class Burst:
    """Forty calls of one client that come at once, each with a result of 2 MB. 20 MB may wait."""

    def __init__(self, era: str, together: bool) -> None:
        self.most, self.begun = 0, 0
        gate = asyncio.Event()
        server = Server("large", version="1", stateless_2025=True)

        @server.tool
        async def much() -> str:
            self.begun += 1
            if together:
                if self.begun > 40:
                    gate.set()
                if self.begun > 1:
                    await gate.wait()
            self.most = max(self.most, tracemalloc.get_traced_memory()[0])
            return "x" * 2_000_000

        self.application = server.asgi()
        self.server = server
        server.endpoint.large.limit(20 * MEGABYTE)
        self.message = call("much")
        headers = {"host": "localhost", **headers_for(self.message)}
        if era == "2025":
            self.message, headers["mcp-protocol-version"] = old.call("much"), "2025-11-25"
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.scope = dict(
            {"type": "http", "method": "POST", "path": "/mcp"}, headers=pairs, client=("10.0.0.1", 1)
        )

    async def ask(self) -> int:
        events, sizes = asyncio.Queue[dict[str, Any]](), list[int]()
        events.put_nowait({"type": "http.request", "body": json.dumps(self.message).encode()})

        async def send(event: Any) -> None:
            sizes.append(len(event.get("body", b"")))

        await self.application(dict(self.scope), events.get, send)
        return sum(sizes)

    async def answered(self) -> int:
        """How many get their result."""
        async with self.server.endpoint.in_use():
            await soon(self.ask())  # Whatever is made once.
            tracemalloc.start()
            try:
                sizes = await soon(asyncio.gather(*(self.ask() for _ in range(40))))
            finally:
                tracemalloc.stop()
        return sum(size > MEGABYTE for size in sizes)


@pytest.mark.parametrize("era", ["2026", "2025"])
async def test_what_is_given_up_is_forgotten_although_all_end_in_one_pass(era: str) -> None:
    burst = Burst(era, together=True)
    assert 8 < await burst.answered() < 14
    assert burst.most < 30 * MEGABYTE


@pytest.mark.parametrize("era", ["2026", "2025"])
async def test_of_a_burst_of_calls_with_large_results_all_are_answered_and_few_results_are_held(
    era: str,
) -> None:
    burst = Burst(era, together=False)
    assert await burst.answered() == 40
    assert burst.most < 20 * MEGABYTE


async def test_a_value_has_its_turn_although_results_come_without_end() -> None:
    large = LargeResults(100 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    outcome, made = result(2 * MEGABYTE), [0]

    async def flood() -> None:
        while True:
            await large.admit(outcome, "flooder")
            made[0] += 1
            large.spelled(2 * MEGABYTE)

    flooding = [asyncio.ensure_future(flood()) for _ in range(4)]
    try:
        values = (large.admit_value(["x" * 2 * MEGABYTE], client) for client in ("a", "b", None))
        assert await soon(asyncio.gather(*values)) == [["x" * 2 * MEGABYTE]] * 3
        assert made[0] < 10
    finally:
        for each in flooding:
            each.cancel()


async def test_a_client_with_much_that_waits_holds_up_nobody_else() -> None:
    large = LargeResults(1000 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    outcome, order = result(2 * MEGABYTE), list[str]()

    async def wait(client: str) -> None:
        await large.admit(outcome, client)
        order.append(client)

    await soon(asyncio.gather(*(wait("greedy") for _ in range(50)), wait("modest")))
    assert order.index("modest") < 3


async def test_what_is_cancelled_while_it_waits_is_forgotten_at_once() -> None:
    large = LargeResults(1000 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    first = asyncio.ensure_future(large.admit(result(2 * MEGABYTE), "client"))
    await asyncio.sleep(0)
    outcome = result(2 * MEGABYTE)
    gone = weakref.ref(outcome_mark := Mark())
    outcome.result["mark"] = outcome_mark  # type: ignore[index]  # pyright: ignore[reportArgumentType]
    waiting = asyncio.ensure_future(large.admit(outcome, "client"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    del outcome, outcome_mark, waiting
    assert gone() is None
    assert not first.done()
    await soon(first)


class Mark:
    """Something of which it can be seen that it is gone."""


async def test_text_counts_with_the_memory_that_its_letters_take() -> None:
    large = LargeResults(20 * MEGABYTE)
    large.spelled(2 * MEGABYTE)
    outcome = Complete({"content": [{"type": "text", "text": "x" * MEGABYTE + "\N{GRINNING FACE}"}]})
    ended = await soon(asyncio.gather(*(large.admit(outcome, "client") for _ in range(8))))
    assert sum(isinstance(each, Failed) for each in ended) > 2


async def test_of_a_value_with_very_many_parts_few_are_looked_at() -> None:
    looked_at = [0]

    class Counting(dict[str, Any]):
        def values(self) -> Any:
            looked_at[0] += 1
            return super().values()

    large = LargeResults(1000 * MEGABYTE)
    value = [[Counting(row=[n] * 500) for _ in range(300)] for n in range(300)]
    large.spelled(2 * MEGABYTE)
    assert await soon(large.admit_value(value, "client"))
    assert 10 < looked_at[0] < 1000
