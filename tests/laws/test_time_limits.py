"""`@server.tool(timeout=...)`: the caller is told, answers take no time, and steps begin once."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ekiden import Context
from ekiden.server import handlers
from ekiden.stores.memory import MemoryStore
from tests.eras import old_client
from tests.laws import steps
from tests.laws.driving import Client, Handler, accept, said, serve, soon
from tests.laws.steps import begun, noted
from tests.serving import call_tool, served
from tests.tasks.driving import TaskClient

STOPPED = "failed: Tool 'tool' was stopped: it took longer than 0.05 s"


async def one_round(handler: Handler) -> str:
    server = serve(handler, timeout=0.05)
    async with server.running():
        return said((await Client(server).ask("tool")).result)


async def one_task(handler: Handler) -> str:
    server = serve(handler, timeout=0.05, task="required", store=MemoryStore())
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        task = await soon(client.until(task_id, "completed"))
        return said({"resultType": "complete", **task["result"]})


async def one_push(handler: Handler, *answers: Any) -> str:
    async with (
        served(serve(handler, timeout=0.05), quiet=False) as base,
        old_client.old_client(base) as client,
    ):
        reply = await soon(client.answered(old_client.call("tool"), *answers))
        return said({"resultType": "complete", **reply["result"]})


@pytest.mark.parametrize("play", [one_round, one_task, one_push])
async def test_a_tool_that_takes_too_long_is_stopped_and_says_so(play: Any) -> None:
    async def tool(ctx: Context) -> str:
        await asyncio.sleep(5)
        return "late"

    assert await play(tool) == STOPPED


async def test_a_tool_without_a_context_is_stopped_too() -> None:
    async def tool() -> str:
        await asyncio.sleep(5)
        return "late"

    assert said({"resultType": "complete", **await call_tool(serve(tool, timeout=0.05), "tool")}) == STOPPED


async def test_the_caller_of_a_plain_function_does_not_wait_for_its_thread() -> None:
    def tool() -> str:
        return steps.held_thread("work")

    reply = await soon(call_tool(serve(tool, timeout=0.05), "tool"))  # type: ignore[arg-type]
    assert said({"resultType": "complete", **reply}) == STOPPED
    steps.door("work").set()
    await steps.until_ended("work")


async def test_a_timeout_of_the_handlers_own_is_not_taken_for_the_limit() -> None:
    async def tool(ctx: Context) -> str:
        raise TimeoutError("mine")

    assert await one_round(tool) == "failed: Tool 'tool' failed"


@pytest.mark.parametrize("play", [one_round, one_task, one_push])
async def test_a_step_that_the_limit_cuts_is_begun_once_and_has_ended_before_the_reply(play: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(steps.tidying, "pay", 5)
        return "late"

    assert await play(tool) == STOPPED
    assert noted == ["begin pay", "tidied pay"]


@pytest.mark.usefixtures("_threads_begin_at_once")
@pytest.mark.parametrize("play", [one_round, one_task, one_push])
async def test_a_thread_of_a_step_ends_before_the_reply(play: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(steps.lasting_thread, "pay", 0.15)
        return "late"

    assert await play(tool) == STOPPED
    assert noted == ["begin pay", "end pay"]


async def test_a_repeat_of_the_round_that_was_stopped_begins_nothing_and_gets_the_same_reply() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Pay?", bool)
        await ctx.step(steps.lasting, "pay", 5)
        return "late"

    server = serve(tool, timeout=0.05)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        answers = {key: accept(True) for key in first.requests}
        assert await client.reply(first, answers) == STOPPED
        assert await client.reply(first, answers) == STOPPED
        refused = {key: accept(False) for key in first.requests}
        assert await client.reply(first, refused) == "error -32602"
    assert begun("pay") == 1


async def test_each_round_has_the_whole_time() -> None:
    async def tool(ctx: Context) -> str:
        for number in range(3):
            await ctx.step(steps.lasting, f"work {number}", 0.08)
            await ctx.elicit(f"{number}?", bool)
        return "done"

    server = serve(tool, timeout=0.2)
    async with server.running():
        assert said(await Client(server).call_tool("tool")) == "done"


async def test_the_clock_stands_still_while_a_client_of_2025_is_asked() -> None:
    async def tool(ctx: Context) -> str:
        both = await asyncio.gather(ctx.elicit("One?", bool), ctx.elicit("Two?", bool))
        await asyncio.sleep(5 if not all(answer.data for answer in both) else 0)
        return "done"

    def slowly(asked: Mapping[str, Any]) -> Any:
        time.sleep(0.1)  # The user takes twice as long as the handler may.
        return old_client.accepted(asked["id"], value=True)

    assert await one_push(tool, slowly, slowly) == "done"


async def test_the_clock_goes_on_after_an_answer() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("One?", bool)
        await asyncio.sleep(5)
        return "late"

    assert await one_push(tool, lambda asked: old_client.accepted(asked["id"], value=True)) == STOPPED


# Handlers that go on although they are cancelled


@pytest.fixture
def _little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_GRACE_SECONDS", 0.05)


async def deafly(wait: Callable[[], Awaitable[object]]) -> None:
    """Wait for something, whatever is cancelled meanwhile."""
    while True:
        try:
            await wait()
            return
        except asyncio.CancelledError:
            noted.append("cancelled")


@pytest.mark.usefixtures("_little_grace")
@pytest.mark.parametrize("play", [one_round, one_task, one_push])
async def test_the_caller_of_a_handler_that_will_not_stop_is_answered_and_no_step_begins(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def tool(ctx: Context) -> str:
        await deafly(steps.gate("work").wait)
        for late in (ctx.step(steps.quick, "late"), ctx.elicit("late?", bool), ctx.sleep(0)):
            with contextlib.suppress(asyncio.CancelledError):
                await late
                noted.append("an effect went through")
        ended.set()
        return "late"

    assert await play(tool) == STOPPED
    steps.gate("work").set()
    await soon(ended.wait())
    assert noted == ["cancelled"]
    assert "it is left behind" in caplog.text


@pytest.mark.usefixtures("_little_grace")
@pytest.mark.parametrize("served_to", ["2026", "2025"])
async def test_one_without_a_context_is_left_behind_too(
    served_to: str, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def tool() -> str:
        await deafly(steps.gate("work").wait)
        ended.set()
        raise ValueError("nobody reads this")

    if served_to == "2025":
        assert await one_push(tool) == STOPPED
    else:
        reply = await soon(call_tool(serve(tool, timeout=0.05), "tool"))
        assert said({"resultType": "complete", **reply}) == STOPPED
    steps.gate("work").set()
    await soon(ended.wait())
    assert noted == ["cancelled"]
    assert "it is left behind" in caplog.text


@pytest.mark.usefixtures("_little_grace")
@pytest.mark.parametrize("play", [one_round, one_task, one_push])
async def test_a_handler_that_takes_its_time_to_tidy_up_is_not_disturbed(play: Any) -> None:
    tidied = asyncio.Event()

    async def tool(ctx: Context) -> str:
        try:
            await asyncio.sleep(5)
        finally:
            await steps.gate("tidy").wait()
            tidied.set()
        return "late"

    assert await play(tool) == STOPPED
    assert not tidied.is_set()
    steps.gate("tidy").set()
    await soon(tidied.wait())


@pytest.mark.usefixtures("_little_grace", "_threads_begin_at_once")
async def test_a_step_that_runs_ends_before_the_reply_of_a_handler_that_is_left_behind() -> None:
    async def tool(ctx: Context) -> str:
        await asyncio.gather(ctx.step(steps.lasting_thread, "pay", 0.3), deafly(steps.gate("work").wait))
        return "late"

    server = serve(tool, timeout=0.05)
    async with server.running():
        client = Client(server)
        assert said((await client.ask("tool")).result) == STOPPED
        assert noted.index("end pay") > noted.index("begin pay")
        steps.gate("work").set()
    assert begun("pay") == 1


@pytest.mark.usefixtures("_little_grace")
async def test_a_repeat_of_the_round_of_a_handler_that_was_left_behind_gets_the_same_reply() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Pay?", bool)
        await ctx.step(steps.quick, "pay")
        await deafly(steps.gate("work").wait)
        return "late"

    server = serve(tool, timeout=0.05)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        answers = {key: accept(True) for key in first.requests}
        assert await client.reply(first, answers) == STOPPED
        assert await client.reply(first, answers) == STOPPED
        steps.gate("work").set()
    assert begun("pay") == 1


async def test_sys_exit_in_a_tool_with_a_time_limit_fails_only_the_call() -> None:
    async def tool() -> str:
        raise SystemExit(1)

    reply = await soon(call_tool(serve(tool, timeout=5), "tool"))
    assert said({"resultType": "complete", **reply}) == "failed: Tool 'tool' failed"
