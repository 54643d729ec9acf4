"""`ScriptedClient`: progress and log by a flag, and tasks to their end."""

import asyncio
import contextlib

import pytest

from ekiden import Context, Server, TaskLimits
from ekiden.errors import UsageError
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed, LogMessage, Progress, Replicas, ScriptedClient, check_replay


def make_server() -> Server:
    made = Server(
        "works", keys=[b"k" * 32], store="memory:", tasks=TaskLimits(poll_seconds=0.05, message_seconds=0.0)
    )

    @made.tool
    async def chatty(ctx: Context) -> str:
        await ctx.progress(1, 3, "began")
        await ctx.log("debug", {"at": "door"}, logger="shop")
        sure = await ctx.elicit("Sure?", bool, key="sure")
        await ctx.progress(2, 3)
        await ctx.log("warning", "late")
        return str(sure.data)

    @made.tool(task="required")
    async def build(ctx: Context) -> str:
        await ctx.progress(1, 2, "walls")
        sure = await ctx.elicit("A roof too?", bool, key="roof")
        return "house" if sure.data else "tower"

    @made.tool(task="optional")
    async def either() -> str:
        return "done"

    @made.tool(task="required")
    async def crash(_ctx: Context) -> str:
        raise RuntimeError("boom")

    @made.tool(task="required")
    async def forever(_ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    return made


def text(result: dict[str, object]) -> str:
    content = result["content"]
    assert isinstance(content, list)
    return str(content[0]["text"])


async def test_progress_and_log_are_recorded_by_a_flag() -> None:
    client = ScriptedClient(make_server(), {"sure": True}, progress=True, log=True)
    assert text(await client.call_tool("chatty")) == "True"
    assert client.progress == [Progress(1, 3, "began"), Progress(2, 3, None)]
    assert client.log == [
        LogMessage("debug", {"at": "door"}, "shop"),
        LogMessage("warning", "late", None),
    ]


async def test_a_log_level_leaves_out_what_is_below_it() -> None:
    client = ScriptedClient(make_server(), {"sure": True}, log="warning")
    await client.call_tool("chatty")
    assert client.log == [("warning", "late", None)]
    assert client.progress == []
    with pytest.raises(UsageError, match="log='loud' must be True, or one of debug, info"):
        ScriptedClient(make_server(), log="loud")


async def test_nothing_is_recorded_without_the_flags() -> None:
    client = ScriptedClient(make_server(), {"sure": True})
    await client.call_tool("chatty")
    assert (client.progress, client.log, client.statuses) == ([], [], [])


async def test_a_required_task_is_followed_and_answered() -> None:
    client = ScriptedClient(make_server(), {"roof": True}, tasks=True, progress=True)
    assert text(await client.call_tool("build")) == "house"
    statuses = [task["status"] for task in client.statuses]
    assert "input_required" in statuses
    assert statuses[-1] == "completed"
    assert "walls (1/2)" in [task.get("statusMessage") for task in client.statuses]
    assert len(client.rounds) == 1


async def test_the_server_is_stopped_again_and_can_be_called_again() -> None:
    server = make_server()
    client = ScriptedClient(server, {"roof": False}, tasks=True)
    for _ in range(2):
        assert text(await client.call_tool("build")) == "tower"
    async with server.running():
        assert text(await client.call_tool("build")) == "tower"


async def test_an_optional_task_is_one_only_with_the_flag() -> None:
    server = make_server()
    with_tasks = ScriptedClient(server, tasks=True)
    without = ScriptedClient(server)
    for client in (with_tasks, without):
        assert text(await client.call_tool("either")) == "done"
    assert [task["status"] for task in with_tasks.statuses][-1] == "completed"
    assert without.statuses == []


async def test_a_task_that_crashes_has_the_result_of_a_tool_that_failed() -> None:
    result = await ScriptedClient(make_server(), tasks=True).call_tool("crash")
    assert result["isError"] is True


async def test_a_task_that_takes_too_long_is_told() -> None:
    client = ScriptedClient(make_server(), tasks=True, task_seconds=0.3)
    with pytest.raises(CallFailed, match=r"did not end within 0\.3 seconds; it was working"):
        await client.call_tool("forever")


async def test_a_replay_check_of_a_required_task_says_why_it_cannot_be_made() -> None:
    with pytest.raises(CallFailed, match="must be a task"):
        await check_replay(make_server, "build", {}, {"roof": True})


async def test_replicas_take_the_flags_too() -> None:
    replicas = Replicas(make_server, count=2)
    client = replicas.client({"sure": True}, progress=True, log="warning")
    await client.call_tool("chatty")
    assert (len(client.progress), client.log) == (2, [("warning", "late", None)])


async def test_a_task_may_be_followed_over_replicas_that_share_a_store() -> None:
    store = MemoryStore()

    def make() -> Server:
        made = Server("shared", keys=[b"k" * 32], store=store)

        @made.tool(task="required")
        async def build(ctx: Context) -> str:
            sure = await ctx.elicit("A roof too?", bool, key="roof")
            return "house" if sure.data else "tower"

        return made

    replicas = Replicas(make, count=2)
    async with contextlib.AsyncExitStack() as running:
        for server in replicas.servers:
            await running.enter_async_context(server.running())
        assert text(await replicas.client({"roof": True}, tasks=True).call_tool("build")) == "house"
    assert {0, 1} == set(replicas.served)
