"""What a leg leaves behind, and what its handler sees of the world around it."""

import asyncio
import contextlib
import gc
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, Server
from ekiden.testing import ScriptedClient
from ekiden.transports.server.started import Started
from tests.acceptance.driving import Client
from tests.serving import ask, call_tool, soon

KEYS = [b"a key of thirty-two bytes or more."]

spoken: ContextVar[str] = ContextVar("spoken", default="nothing")


class Confirm(BaseModel):
    ok: bool


async def _find() -> str:
    return "it"


def _server() -> Server:
    server = Server("legs", version="1", keys=KEYS)

    @server.tool
    async def twice(ctx: Context) -> str:
        """Ask twice."""
        for question in ("Really?", "Quite sure?"):
            answer = await ctx.elicit(question, Confirm)
            if answer.data is None or not answer.data.ok:
                return "no"
        return "yes"

    @server.tool
    async def after_a_step(ctx: Context) -> str:
        """Do a step, then ask."""
        found = await ctx.step(_find)
        answer = await ctx.elicit(f"Take {found}?", Confirm)
        return answer.action

    @server.tool
    async def speak(ctx: Context) -> str:
        """Set a context variable, wait, and set it back."""
        token = spoken.set("something")
        await asyncio.sleep(0)
        heard = spoken.get()
        spoken.reset(token)
        return f"{heard}, then {spoken.get()}"

    return server


def _yes(*_: Any) -> dict[str, Any]:
    return {"ok": True}


@contextlib.contextmanager
def _nothing_is_left() -> Iterator[None]:
    """What is done within leaves no object of a round to the garbage collector."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        ours = Counter(type(left).__qualname__ for left in gc.garbage if _is_of_a_round(left))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours


@pytest.mark.parametrize("tool", ["twice", "after_a_step"])
async def test_rounds_leave_nothing_to_the_garbage_collector(tool: str) -> None:
    client = ScriptedClient(_server(), _yes)
    await client.call_tool(tool)
    with _nothing_is_left():
        for _ in range(20):
            await client.call_tool(tool)
        await asyncio.sleep(0)


async def test_parked_handlers_that_are_given_up_leave_nothing_to_the_garbage_collector() -> None:
    server = Server("legs", version="1", keys=KEYS)

    @server.tool(resume="parked")
    async def parked(ctx: Context) -> str:
        """Find something, then ask."""
        found = await ctx.step(_find)
        return (await ctx.elicit(f"Take {found}?", Confirm)).action

    client = Client(server)
    await client.ask("parked")
    await server._rounds.parking.close()
    with _nothing_is_left():
        for _ in range(5):
            assert (await client.ask("parked")).requests
        await server._rounds.parking.close()
        for _ in range(5):
            await asyncio.sleep(0)


def _is_of_a_round(left: object) -> bool:
    return type(left).__module__.startswith(("ekiden.rounds", "ekiden.server"))


async def test_a_handler_is_in_one_context_from_its_beginning_to_its_end() -> None:
    result = await ScriptedClient(_server()).call_tool("speak")
    assert result["content"][0]["text"] == "something, then nothing"


async def test_a_handler_that_cancels_itself_before_its_first_wait_can_catch_it() -> None:
    server = Server("legs", version="1", keys=KEYS)
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(60)

    @server.tool
    async def restless(waits_for_child: bool, ctx: Context) -> str:
        """Cancel its own task."""
        task = asyncio.current_task()
        assert task is not None
        waited = asyncio.create_task(child()) if waits_for_child else None
        task.cancel()
        try:
            await (asyncio.sleep(60) if waited is None else waited)
        except asyncio.CancelledError:
            task.uncancel()
            return f"caught, {waited is None or waited.cancelled()}"
        finally:
            seen.append("unwound")
        return "never cancelled"

    for waits_for_child in (False, True):
        said = await soon(call_tool(server, "restless", waits_for_child=waits_for_child))
        assert said["content"][0]["text"] == "caught, True"
    assert seen == ["unwound", "unwound"]


async def test_calls_that_wait_for_one_and_the_same_thing_all_get_it() -> None:
    server = Server("legs", version="1", keys=KEYS)
    loading: list[asyncio.Task[str]] = []

    async def load() -> str:
        await asyncio.sleep(0.01)
        return "loaded"

    @server.tool
    async def fetch(ctx: Context) -> str:
        """Load once, whoever asks."""
        if not loading:
            loading.append(asyncio.create_task(load()))
        return await loading[0]

    said = await soon(asyncio.gather(*(call_tool(server, "fetch") for _ in range(5))))
    assert [one["content"][0]["text"] for one in said] == ["loaded"] * 5


def test_a_server_whose_first_loop_has_moved_to_another_thread_serves_in_this_one() -> None:
    server = _server()
    first = asyncio.new_event_loop()
    first.run_until_complete(ScriptedClient(server).call_tool("speak"))
    elsewhere = threading.Thread(target=first.run_forever)
    elsewhere.start()
    try:
        said = asyncio.run(ScriptedClient(server).call_tool("speak"))
        assert said["content"][0]["text"] == "something, then nothing"
    finally:
        first.call_soon_threadsafe(first.stop)
        elsewhere.join(10)
        first.close()


async def test_a_task_factory_that_a_handler_sets_stays() -> None:
    server = Server("legs", version="1", keys=KEYS)
    loop = asyncio.get_running_loop()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coroutine, loop=loop, **options)

    @server.tool
    async def install(ctx: Context) -> str:
        """Set a task factory."""
        loop.set_task_factory(factory)
        return "set"

    try:
        await soon(call_tool(server, "install"))
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)


def _at_once(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
    """What asyncio's own eager factory does, which came with Python 3.12."""
    context = copy_context()
    try:
        begun: Any = Started(coroutine, context.run(coroutine.send, None))
    except StopIteration as ended:
        begun = ended.value

    async def rest() -> Any:
        return await begun if isinstance(begun, Started) else begun

    return asyncio.Task(rest(), loop=loop, **{**options, "context": context})


_FACTORIES = [_at_once, *filter(None, [getattr(asyncio, "eager_task_factory", None)])]


@pytest.mark.parametrize("factory", _FACTORIES)
async def test_tasks_that_begin_at_once_by_themselves_do_no_harm(factory: Any) -> None:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        client = ScriptedClient(_server(), _yes)
        for tool in ("twice", "after_a_step", "speak"):
            assert not (await soon(client.call_tool(tool))).get("isError")
    finally:
        loop.set_task_factory(None)


async def test_a_handler_that_catches_what_ended_its_leg_is_not_waited_for() -> None:
    server = Server("legs", version="1", keys=KEYS)

    @server.tool
    async def deaf(ctx: Context) -> str:
        """Ask what cannot be asked, and go on all the same."""
        with contextlib.suppress(BaseException):
            await ctx.list_roots()
        await asyncio.sleep(60)
        return "late"

    response = await soon(ask(server, "tools/call", {"name": "deaf", "arguments": {}}))
    assert response["error"]["code"] == -32021


@pytest.mark.parametrize("where", ["handler", "step"])
async def test_a_tool_cannot_end_the_server(where: str) -> None:
    server = Server("legs", version="1", keys=KEYS)

    async def leave() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    @server.tool
    async def leaving(ctx: Context) -> str:
        """Take itself for a script."""
        await (ctx.step(leave) if where == "step" else leave())
        return "still here"

    said = await soon(call_tool(server, "leaving"))
    assert said["isError"]
