"""Our own client at servers of 2025-11-25 with tasks."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import (
    CallCancelled,
    CallTimeout,
    Client,
    Context,
    InvalidParams,
    Server,
    ServerError,
    TaskHandle,
    TaskLimits,
    TaskSnapshot,
    ToolError,
    UsageError,
)
from ekiden.stores.memory import MemoryStore
from tests.acceptance.driving import served
from tests.client.tasks.test_handle import Person, text
from tests.tasks.driving import new_server
from tests.tasks.test_crashes import Shop


def shop(store: Any, **options: Any) -> Server:
    server = new_server(store, **options)

    @server.tool(task="required")
    async def refund(ctx: Context) -> str:
        first = await ctx.elicit("refund?", bool)
        await ctx.progress(1, 2, "paying")
        second = await ctx.elicit("how many?", int)
        return f"{first.data} {second.data}"

    @server.tool(task="optional")
    async def add(ctx: Context, n: int) -> int:
        return n + 1

    @server.tool(task="required")
    async def endless(ctx: Context) -> str:
        await ctx.sleep(1000)
        return "never"

    @server.tool(task="required")
    async def fails(ctx: Context, how: str) -> str:
        raise InvalidParams("no", data=1) if how == "protocol" else ToolError("closed")

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


@pytest.fixture(params=["http", "memory"])
async def target(request: pytest.FixtureRequest, store: Any) -> AsyncGenerator[Any, None]:
    server = shop(store)
    if request.param == "http":
        async with served(server) as url:
            yield url
    else:
        async with server.running():
            yield server


Called = Callable[..., Client]


@pytest.fixture
def old(target: Any) -> Called:
    return lambda **options: Client(target, mode="legacy", **options)


async def test_a_tool_that_must_be_a_task_is_called_as_one_and_driven_to_its_end(old: Called) -> None:
    person = Person(True, 3)
    seen: list[TaskSnapshot] = []
    async with old(elicit=person) as client:
        assert client.session.version == "2025-11-25"
        result = await client.call_tool("refund", on_status=seen.append)
    assert text(result) == "True 3"
    assert person.asked == ["refund?", "how many?"]
    assert seen[-1].status == "completed"


async def test_other_tools_are_called_as_ever(old: Called) -> None:
    async with old() as client:
        assert text(await client.call_tool("plain")) == "plain"
        assert text(await client.call_tool("add", {"n": 1})) == "2"


async def test_who_starts_a_tool_that_can_be_a_task_gets_one(old: Called) -> None:
    async with old() as client:
        handle = await client.start_tool("add", {"n": 1})
        assert isinstance(handle, TaskHandle)
        assert text(await handle.wait(timeout=20)) == "2"
        assert (await handle.status()).status == "completed"
        assert text(await client.start_tool("plain")) == "plain"


async def test_a_handle_is_taken_up_again_by_another_client(old: Called) -> None:
    async with old(elicit=Person()) as client:
        started = await client.start_tool("refund")
        assert isinstance(started, TaskHandle)
        written = started.to_json()
        assert (await started.status()).status in ("working", "input_required")
    person = Person(False, 7)
    async with old(elicit=person) as client:
        handle = client.task(written)
        assert (handle.id, handle.tool) == (started.id, "refund")
        assert text(await handle.wait(timeout=20)) == "False 7"
        assert text(await client.task(handle.id).wait(timeout=20)) == "False 7"
    assert person.asked == ["refund?", "how many?"]


async def test_ends_that_are_no_results(old: Called) -> None:
    async with old() as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("fails", {"how": "protocol"})
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "no", 1)
        seen: list[TaskSnapshot] = []
        result = await client.call_tool("fails", {"how": "tool"}, on_status=seen.append)
        assert (result.is_error, text(result)) == (True, "closed")
        assert (seen[-1].status, seen[-1].status_message) == ("failed", "closed")
        handle = await client.start_tool("endless")
        assert isinstance(handle, TaskHandle)
        with pytest.raises(CallTimeout):
            await handle.wait(timeout=0.1)
        assert (await handle.status()).status == "working", "the task goes on"
        waiting = asyncio.create_task(handle.wait())
        await asyncio.sleep(0.05)
        await handle.cancel()
        await handle.cancel()  # Once more changes nothing.
        with pytest.raises(CallCancelled):
            await waiting
        with pytest.raises(ServerError):
            await client.task("unknown").status()
        with pytest.raises(ServerError):
            await client.task("unknown").cancel()
        with pytest.raises(UsageError, match="callbacks"):
            await handle.answer({"sure.1": {"action": "cancel"}})


async def test_who_leaves_a_call_takes_its_task_along(store: Any) -> None:
    server = shop(store)
    async with server.running():
        async with Client(server, mode="legacy") as client:
            seconds = 0.3
            while not await store.tasks.listing():  # On a machine that is busy it may take longer to begin.
                with pytest.raises(CallTimeout):
                    await client.call_tool("endless", timeout=seconds)
                seconds *= 2
        async with asyncio.timeout(10):
            while {record.state for record in await store.tasks.listing()} != {"cancelled"}:
                await asyncio.sleep(0.005)


async def test_what_nobody_answers_is_answered_with_cancel(store: Any) -> None:
    server = shop(store)

    @server.tool(task="required")
    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("sure?", bool)).action

    async with server.running():
        async with Client(server, mode="legacy", elicit=Person(True)) as client:
            handle = await client.start_tool("asks")
            assert isinstance(handle, TaskHandle)
        async with Client(server, mode="legacy") as client:
            assert text(await client.task(handle.id).wait(timeout=20)) == "cancel"


async def test_a_tool_that_becomes_a_task_later_is_looked_up_again() -> None:
    server = shop(MemoryStore())
    async with server.running(), Client(server, mode="legacy") as client:
        assert text(await client.call_tool("plain")) == "plain"
        server.remove_tool("plain")

        @server.tool(task="required")
        async def plain(ctx: Context) -> str:
            return "a task now"

        assert text(await client.call_tool("plain")) == "a task now"
        with pytest.raises(ServerError, match="Unknown tool"):
            await client.call_tool("nobody")


async def test_looking_keeps_to_the_interval() -> None:
    server = new_server(MemoryStore(), tasks=TaskLimits(poll_seconds=0.2))
    requests: list[str] = []

    @server.middleware
    async def count(request: Any, call_next: Any) -> Any:
        requests.append(request.method)
        return await call_next(request)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.sleep(0.5)
        return "slow"

    async with server.running(), Client(server, mode="legacy") as client:
        requests.clear()
        assert text(await client.call_tool("slow")) == "slow"
    assert 3 <= requests.count("tasks/get") <= 5
    assert requests.count("tasks/result") == 1


async def test_a_server_that_lets_nobody_wait_for_a_result_is_asked_when_it_is_there() -> None:
    server = shop(MemoryStore())
    tasks = server._rounds.tasks
    assert tasks is not None
    tries: list[str] = []

    @server.middleware
    async def impatient(request: Any, call_next: Any) -> Any:
        if request.method == "tasks/result":
            record = await tasks.store.load(request.params["taskId"])
            assert record is not None
            tries.append(record.status)
            if record.status == "working":
                raise InvalidParams("not yet")
        return await call_next(request)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.sleep(0.2)
        return str((await ctx.elicit("sure?", bool)).data)

    async with server.running(), Client(server, mode="legacy", elicit=Person(True)) as client:
        assert text(await client.call_tool("slow")) == "True"
    assert tries[0] == "working"
    assert len(tries) <= 3


async def test_a_server_without_tasks_is_never_asked_for_one() -> None:
    server = Server("none")

    @server.tool
    async def plain() -> str:
        return "plain"

    requests: list[Any] = []

    @server.middleware
    async def watch(request: Any, call_next: Any) -> Any:
        requests.append((request.method, "task" in request.params))
        return await call_next(request)

    async with server.running(), Client(server, mode="legacy") as client:
        assert text(await client.start_tool("plain")) == "plain"
    assert ("tools/call", False) in requests
    assert not any(has_task for _, has_task in requests)


@pytest.mark.real_time
async def test_who_waits_for_a_task_outlives_the_death_of_the_server(tmp_path: Path) -> None:
    shop = Shop(tmp_path, f"sqlite:///{tmp_path}/tasks.db")
    shop.start()
    asked: list[str] = []

    async def answer(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        if len(asked) == 1:
            shop.kill()
            shop.start()
        return ElicitResult(action="accept", content={"value": f"answer {len(asked)}"})

    try:
        await shop.send("tools/list")
        async with Client(shop.url, mode="legacy", elicit=answer) as client:
            handle = await client.start_tool("refund", {"order": "7"})
            assert isinstance(handle, TaskHandle)
            result = await handle.wait(timeout=30)
    finally:
        shop.stop()
    assert asked == ["round?", "round?", "task?"]
    assert text(result) == "7 answer 2 answer 3 LOOK BOOK PAY MAIL"
    assert shop.ran() == Counter(["look", "book", "pay", "mail"])


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_client_without_tasks_gets_the_result_itself_or_is_refused(mode: Any) -> None:
    async with Client(shop(MemoryStore()), mode=mode, tasks=False) as client:
        assert text(await client.call_tool("add", {"n": 1})) == "2"
        assert not isinstance(await client.start_tool("add", {"n": 1}), TaskHandle)
        with pytest.raises(ServerError, match="task"):
            await client.call_tool("refund")
