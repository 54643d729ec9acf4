"""Middleware around the legs of a task."""

import asyncio
import logging
from contextvars import ContextVar
from typing import Any

import pytest

from ekiden import CallNext, Complete, Context, Failed, Interim, InvalidParams, Outcome, Request, Server
from ekiden.stores.memory import MemoryStore
from tests.tasks.driving import TaskClient, accept, new_server

tenant: ContextVar[str] = ContextVar("tenant")


def asking_server(store: Any) -> Server:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("sure?", bool, key="sure")
        return f"{answer.data} {tenant.get('nobody')}"

    return server


async def asked_and_answered(client: TaskClient) -> str:
    task_id = await client.start()
    await client.asked(task_id)
    await client.update(task_id, {"sure.1": accept(True)})
    return task_id


async def test_it_is_called_around_every_leg_if_it_wants_to(store: Any) -> None:
    server = asking_server(store)
    seen: list[tuple[str | None, str, bool]] = []

    @server.middleware(tasks=True)
    async def watch(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.method == "tools/call":
            seen.append((request.name, type(outcome).__name__, request.task is not None))
        return outcome

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await asked_and_answered(client)) == "True nobody"
    assert sorted(seen) == [("tool", "Complete", True), ("tool", "Interim", True), ("tool", "Task", False)]


async def test_others_see_requests_only() -> None:
    server = asking_server(MemoryStore())
    seen: list[str | None] = []

    @server.middleware
    async def watch(request: Request, call_next: CallNext) -> Outcome:
        seen.append(request.task)
        return await call_next(request)

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await asked_and_answered(client)) == "True nobody"
    assert set(seen) == {None}


async def test_the_questions_that_a_leg_waits_for_are_in_its_outcome() -> None:
    server = asking_server(MemoryStore())
    waits: list[Outcome] = []

    @server.middleware(tasks=True)
    async def watch(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.task is not None:
            waits.append(outcome)
        return outcome

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
    (waiting,) = waits
    assert isinstance(waiting, Interim)
    (question,) = waiting.requests.values()
    assert question["params"]["message"] == "sure?"


async def test_what_it_sets_around_a_leg_the_handler_sees_and_nobody_else() -> None:
    server = asking_server(MemoryStore())

    @server.middleware(tasks=True)
    async def outer(request: Request, call_next: CallNext) -> Outcome:
        token = tenant.set("a shop" if request.task is not None else "a request")
        try:
            return await call_next(request)
        finally:
            tenant.reset(token)

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await asked_and_answered(client)) == "True a shop"
    assert tenant.get("nobody") == "nobody"


async def test_what_surrounds_the_call_does_not_reach_the_first_leg_alone() -> None:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return tenant.get("nobody")

    @server.middleware
    async def outer(request: Request, call_next: CallNext) -> Outcome:
        tenant.set("a request")
        return await call_next(request)

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "nobody"


async def test_the_first_registered_is_the_outermost() -> None:
    server = asking_server(MemoryStore())
    order: list[str] = []
    for name in ("outer", "inner"):

        def register(name: str = name) -> None:
            @server.middleware(tasks=True)
            async def layer(request: Request, call_next: CallNext) -> Outcome:
                if request.task is not None:
                    order.append(name)
                return await call_next(request)

        register()
    async with server.running():
        client = TaskClient(server)
        await client.asked(await client.start())
    assert order == ["outer", "inner"]


async def test_it_can_end_a_task_without_its_handler(store: Any) -> None:
    server = asking_server(store)

    @server.middleware(tasks=True)
    async def known(request: Request, call_next: CallNext) -> Outcome:
        if request.task is None:
            return await call_next(request)
        return Complete({"content": [{"type": "text", "text": "known"}]})

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "known"


async def test_what_it_raises_fails_the_task(store: Any) -> None:
    server = asking_server(store)

    @server.middleware(tasks=True)
    async def refuse(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.task is not None and isinstance(outcome, Complete):
            raise InvalidParams("not this one")
        return outcome

    async with server.running():
        client = TaskClient(server)
        task = await client.until(await asked_and_answered(client), "failed")
    assert task["error"] == {"code": -32602, "message": "not this one"}


async def test_it_cannot_say_that_a_leg_waits_which_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "done"

    @server.middleware(tasks=True)
    async def wrong(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        return outcome if request.task is None else Interim({}, None)

    async with server.running():
        client = TaskClient(server)
        with caplog.at_level(logging.ERROR):
            await client.until(await client.start(), "failed")
    assert "says that Tool 'tool' waits" in caplog.text


async def test_a_leg_runs_once_however_often_it_is_called() -> None:
    server = new_server(MemoryStore())
    ran: list[str] = []

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        ran.append("tool")
        raise OSError("it fails")

    @server.middleware(tasks=True)
    async def insist(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.task is not None and not isinstance(outcome, Failed):
            return await call_next(request)
        return outcome

    async with server.running():
        client = TaskClient(server)
        await client.until(await client.start(), "failed")
    assert ran == ["tool"]


async def test_a_cancelled_task_stays_cancelled_whatever_it_makes_of_it() -> None:
    server = new_server(MemoryStore())
    began = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    @server.middleware(tasks=True)
    async def deny(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.task is None:
            return outcome
        return Complete({"content": []})

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await began.wait()
        await client.cancel(task_id)
        assert (await client.until(task_id, "cancelled"))["status"] == "cancelled"


async def test_a_handler_that_does_not_replay_fails_the_task_and_says_so() -> None:
    server = new_server(MemoryStore())
    runs: list[str] = []

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        if not runs:
            runs.append("first")
            await ctx.step(lambda: "once", key="a step")
        await ctx.elicit("sure?", bool, key="sure")
        return "done"

    @server.middleware(tasks=True)
    async def pass_on(request: Request, call_next: CallNext) -> Outcome:
        return await call_next(request)

    async with server.running():
        client = TaskClient(server)
        task = await client.until(await asked_and_answered(client), "failed")
    assert "NonDeterminismError" in task["error"]["message"]
