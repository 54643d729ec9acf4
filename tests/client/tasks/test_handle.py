"""Our own client with tasks: it drives them, lets go of them, and takes them up again."""

import asyncio
from typing import Annotated, Any

import pytest
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult
from pydantic import AfterValidator

from ekiden import (
    CallCancelled,
    CallTimeout,
    CannotAnswer,
    Client,
    ClientLimits,
    Context,
    InvalidParams,
    InvalidResult,
    LeftOut,
    Server,
    ServerError,
    TaskHandle,
    TaskLimits,
    TaskSnapshot,
    UsageError,
    WrongAnswer,
)
from ekiden.client.answering import Answerer
from ekiden.client.tasks import handle as client_tasks
from ekiden.rounds.outcome import Complete
from ekiden.stores.memory import MemoryStore
from tests.acceptance.driving import served
from tests.hostile.evil import evil
from tests.serving import PATIENCE, soon
from tests.tasks.driving import QUICK, new_server


class Person:
    """Answers questions, and counts them."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, params: ElicitRequestFormParams) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"value": self.answers.pop(0)})


def some(number: int) -> int:
    """A rule that the form does not show: only the server can tell that an answer breaks it."""
    if number == 0:
        raise ValueError("none is too few")
    return number


def refund_server(store: Any, **options: Any) -> Server:
    server = new_server(store, **options)

    @server.tool(task="deferred")
    async def refund(ctx: Context) -> str:
        first = await ctx.elicit("refund?", bool)
        await ctx.background()
        await ctx.progress(1, 2, "paying")
        second = await ctx.elicit("how many?", Annotated[int, AfterValidator(some)])
        await ctx.sleep(0.05)
        return f"{first.data} {second.data}"

    @server.tool(task="required")
    async def endless(ctx: Context) -> str:
        await ctx.sleep(1000)
        return "never"

    @server.tool(task="required")
    async def fails(ctx: Context) -> str:
        raise InvalidParams("no", data=1)

    @server.tool(task="optional")
    async def quick(n: int) -> int:
        return n + 1

    return server


@pytest.fixture(params=["http", "memory"])
async def target(request: pytest.FixtureRequest, store: Any) -> Any:
    server = refund_server(store)
    if request.param == "http":
        async with served(server) as url:
            yield url
    else:
        async with server.running():
            yield server


def text(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_a_call_drives_rounds_and_task_alike(target: Any) -> None:
    person = Person(True, 0, 3)
    seen: list[TaskSnapshot] = []
    async with Client(target, elicit=person) as client:
        result = await client.call_tool("refund", on_status=seen.append)
    assert text(result) == "True 3"
    assert person.asked == ["refund?", "how many?", "how many?"], "asked again under a new key, once each"
    assert seen[-1].status == "completed"
    assert "input_required" in {snapshot.status for snapshot in seen}
    async with Client(target) as client:
        assert (await client.call_tool("quick", {"n": 1}, result_type=int)) == 2


@pytest.mark.parametrize(
    "response", [None, {"action": "accept", "content": {"value": "many"}}, {"action": "?"}]
)
async def test_a_wrong_answer_to_a_task_is_not_sent(response: Any) -> None:
    async def by_hand(questions: Any) -> Any:
        return dict.fromkeys(questions, response)

    async with Client(refund_server(MemoryStore()), elicit=Person(True)) as client:
        pending = await client.start_tool("refund")
        handle = await client.resume(pending)  # type: ignore[arg-type]
        assert isinstance(handle, TaskHandle)
        with pytest.raises(WrongAnswer, match=r"\('how many\?'\) was not sent"):
            await handle.wait(timeout=20, answer=by_hand)
        (key,) = (await handle.status()).input_requests
        with pytest.raises(WrongAnswer, match=r"\('how many\?'\) was not sent"):
            await handle.answer({key: response})
        with pytest.raises(WrongAnswer, match="it is not asked"):
            await client.task(handle.id).answer({"other": {"action": "decline"}})
        again = client.task(handle.to_json())  # It has seen nothing of the task yet.
        await again.answer({key: {"action": "accept", "content": {"value": 3}}})
        assert text(await handle.wait(timeout=20)) == "True 3"


async def test_a_question_of_a_task_can_be_left_to_others() -> None:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def two(ctx: Context) -> str:
        one, other = await asyncio.gather(ctx.elicit("one?", int), ctx.elicit("other?", int))
        return f"{one.data} {other.data}"

    asked: list[str] = []
    seen = asyncio.Event()

    async def mine(questions: Any) -> Any:
        asked.extend(question["params"]["message"] for question in questions.values())
        seen.set()
        return {
            key: LeftOut() if question["params"]["message"] == "other?" else accepted(1)
            for key, question in questions.items()
        }

    async with Client(server, elicit=Person()) as client:
        handle = await client.start_tool("two")
        assert isinstance(handle, TaskHandle)
        waiting = asyncio.create_task(handle.wait(timeout=20, answer=mine))
        await asyncio.wait_for(seen.wait(), 10)
        other = client.task(handle.id)
        async with asyncio.timeout(10):
            while [q["params"]["message"] for q in (await other.status()).input_requests.values()] != [
                "other?"
            ]:
                await asyncio.sleep(0.01)
        await other.answer(dict.fromkeys((await other.status()).input_requests, accepted(2)))
        assert text(await waiting) == "1 2"
    assert sorted(asked) == ["one?", "other?"], "each came up once"


def accepted(value: int) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


async def test_a_handle_is_taken_up_again_by_another_client(target: Any) -> None:
    async with Client(target, elicit=Person(True)) as client:
        pending = await client.start_tool("refund")
        started = await client.resume(pending)  # type: ignore[arg-type]
        assert isinstance(started, TaskHandle)
        written = started.to_json()
        assert (await started.status()).status in ("working", "input_required")
    person = Person(7)
    async with Client(target, elicit=person) as client:
        handle = client.task(written)
        assert (handle.id, handle.tool) == (started.id, "refund")
        assert text(await handle.wait(timeout=20)) == "True 7"
        assert text(await client.task(handle.id).wait()) == "True 7"
        assert person.asked == ["how many?"]


async def test_ends_that_are_no_results(target: Any) -> None:
    async with Client(target) as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("fails")
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "no", 1)
        handle = await client.start_tool("endless")
        assert isinstance(handle, TaskHandle)
        with pytest.raises(CallTimeout):
            await handle.wait(timeout=0.05)
        assert (await handle.status()).status == "working", "the task goes on"
        waiting = asyncio.create_task(handle.wait())
        await asyncio.sleep(0.05)
        await handle.cancel()
        with pytest.raises(CallCancelled):
            await waiting
        with pytest.raises(ServerError):
            await client.task("unknown").status()


async def test_who_leaves_a_call_takes_its_task_along(store: Any) -> None:
    server = refund_server(store)
    async with server.running():
        async with Client(server) as client:
            seconds = 0.2
            while not await store.tasks.listing():  # On a machine that is busy it may take longer to begin.
                with pytest.raises(CallTimeout):
                    await client.call_tool("endless", timeout=seconds)
                seconds *= 2
            calling = asyncio.create_task(client.call_tool("endless"))
            async with asyncio.timeout(10):
                while len(await store.tasks.listing()) < 2:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            calling.cancel()
            await asyncio.wait({calling})
        async with asyncio.timeout(10):
            while {record.state for record in await store.tasks.listing()} != {"cancelled"}:
                await asyncio.sleep(0.005)


async def test_a_callback_that_fails_takes_the_task_along(store: Any) -> None:
    server = refund_server(store)

    @server.tool(task="required")
    async def asks(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    async def clumsy(params: ElicitRequestFormParams) -> ElicitResult:
        raise LookupError("the form was lost")

    async with server.running(), Client(server, elicit=clumsy) as client:
        with pytest.raises(LookupError, match="the form was lost"):
            await client.call_tool("asks")
        # A question is seen while the leg that asked it still runs. That leg stops first.
        async with asyncio.timeout(10):
            while [record.state for record in await store.tasks.listing()] != ["cancelled"]:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_what_a_task_ends_with_is_held_to_the_output_schema(by_hand: bool) -> None:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def count() -> int:
        return 1

    @server.middleware
    async def lie(request: Any, call_next: Any) -> Any:
        outcome = await call_next(request)
        if request.method != "tools/list":
            return outcome
        listed = outcome.as_dict()
        tools = [{**tool, "outputSchema": {"type": "string"}} for tool in listed["tools"]]
        return Complete({**listed, "tools": tools})

    async def call(client: Client) -> None:
        if not by_hand:
            await client.call_tool("count")
            return
        handle = await client.start_tool("count")
        assert isinstance(handle, TaskHandle)
        await handle.wait(timeout=10)

    async with server.running(), Client(server) as client:
        await client.list_tools()
        with pytest.raises(InvalidResult, match="broke its output schema"):
            await call(client)


async def test_a_server_that_tells_too_much_does_not_fill_the_memory() -> None:
    """Somebody thinks about a question while the server tells the same state again and again."""
    snapshot = {
        "taskId": "t",
        "status": "working",
        "createdAt": "",
        "lastUpdatedAt": "",
        "ttlMs": None,
        "pollIntervalMs": 1,
    }
    told = 0

    async def request(ask: Any) -> dict[str, Any]:
        nonlocal told
        if ask.method == "subscriptions/listen":
            for told in range(1000):  # noqa: B007
                ask.hooks.notification({"method": "notifications/tasks", "params": dict(snapshot)})
            await asyncio.Event().wait()
        return {**snapshot, "status": "completed", "result": {"content": []}} if told else snapshot

    seen: list[TaskSnapshot] = []
    talk = client_tasks.TaskClient(request, Answerer(), lambda _, result: result, ClientLimits(), set())
    handle = TaskHandle(talk, "t")
    assert await handle.wait(timeout=10, on_status=seen.append) == {"content": []}  # type: ignore[comparison-overlap]
    assert len(seen) < 100


@pytest.mark.parametrize("handle", ["{", "{}", '{"tool": "refund"}', "{]"])
async def test_what_is_no_handle_is_told(handle: str) -> None:
    with pytest.raises(UsageError, match="not a task handle"):
        Client("http://127.0.0.1:1/mcp").task(handle)


async def test_a_task_that_nobody_can_answer_is_cancelled_and_says_so(store: Any) -> None:
    server = refund_server(store)

    @server.tool(task="required")
    async def asks(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    async with server.running():
        async with Client(server, elicit=Person(True)) as client:
            handle = await client.start_tool("asks")
            assert isinstance(handle, TaskHandle)
        async with Client(server) as client:
            with pytest.raises(CannotAnswer, match="elicitation"):
                await client.task(handle.id).wait(timeout=20)
            async with asyncio.timeout(20):  # A leg that has just asked may still have to stop.
                while (told := (await client.task(handle.id).status()).status) != "cancelled":
                    assert told in ("working", "input_required")
                    await asyncio.sleep(0.01)


async def test_a_default_deadline_for_calls_is_none_for_tasks() -> None:
    server = refund_server(MemoryStore(), tasks=QUICK)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.sleep(0.5)
        return "slow"

    async with server.running(), Client(server, timeout=0.2) as client:
        assert text(await client.call_tool("slow")) == "slow"


async def test_polling_keeps_to_the_interval_where_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_server(MemoryStore(), tasks=TaskLimits(poll_seconds=0.2))
    looks: list[str] = []

    @server.middleware
    async def count(request: Any, call_next: Any) -> Any:
        if request.method == "subscriptions/listen":
            raise InvalidParams("not here")
        looks.append(request.method)
        return await call_next(request)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.sleep(0.5)
        return "slow"

    async with server.running(), Client(server) as client:
        looks.clear()
        assert text(await client.call_tool("slow")) == "slow"
    assert 3 <= looks.count("tasks/get") <= 5


async def test_a_stuck_task_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server acknowledges an answer, and goes on asking."""
    monkeypatch.setattr(client_tasks, "_BACKSTOP", 0.1)
    store = MemoryStore()
    server = new_server(store)

    @server.tool(task="required")
    async def asks(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    async def forgetful(*_: Any, **__: Any) -> tuple[str, ...]:
        return ()

    person = Person(True, True, True)
    limits = ClientLimits(stuck_seconds=0.05)
    async with server.running(), Client(server, elicit=person, limits=limits) as client:
        monkeypatch.setattr(store.tasks, "answer", forgetful)
        with pytest.raises(InvalidResult, match="stuck"):
            await client.call_tool("asks")
    assert person.asked == ["sure?"]


@pytest.mark.parametrize("deed", ["status", "cancel"])
async def test_a_silent_server_does_not_hold_up_a_handle_for_longer_than_the_client_allows(deed: str) -> None:
    async def stay_silent(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        await asyncio.sleep(3600)

    deeds = {"tasks/get": stay_silent, "tasks/cancel": stay_silent}
    async with evil(deeds) as server:
        client = Client(server.url, timeout=0.2)
        client._start_timeout = PATIENCE  # A machine that is busy may take longer to connect.
        async with client:
            with pytest.raises(CallTimeout, match=r"tasks/\w+ did not end within 0.2 seconds"):
                await soon(getattr(client.task("t"), deed)())
