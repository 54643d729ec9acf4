"""The life of a task by SEP-2663, as JSON over HTTP: one test for each thing that is promised."""

import asyncio
import base64
import contextlib
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, ProtocolError, Server, TaskLimits, ToolError
from tests.acceptance.driving import EVERYTHING, PATIENCE, accept
from tests.acceptance.task_wire import (
    DECLARED,
    EXTENSION,
    MISSING,
    Message,
    Wire,
    key_for,
    replica,
    replicas,
    shape,
    words,
)
from tests.requirements.marks import requirement

CREATED = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
"""The fields of a task that has nothing to show yet."""

Register = Callable[[Server], None]
UNKNOWN = "3f0c1f1e-0000-4000-8000-000000000000"


def tool(handler: Callable[..., Awaitable[Any]], **options: Any) -> Register:
    """Register one handler, as a task from the start unless told otherwise."""

    def register(server: Server) -> None:
        server.tool(**{"task": "required", **options})(handler)

    return register


async def done(ctx: Context) -> str:
    """End at once."""
    return "done"


async def ask(ctx: Context) -> str:
    """Ask one thing."""
    answer = await ctx.elicit("Name?", str)
    return f"Hello, {answer.data}"


def milliseconds(instant: str) -> float:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", instant), instant
    return datetime.fromisoformat(instant).timestamp() * 1000


# The life of a task


@requirement("TASK-12", "TASK-13")
async def test_a_task_is_working_then_asks_then_works_again_then_is_completed(tmp_path: Path) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def handler(ctx: Context) -> str:
        """Wait, ask, wait, end."""
        await first.wait()
        answer = await ctx.elicit("Name?", str)
        await second.wait()
        return f"Hello, {answer.data}"

    async with replica(tmp_path, tool(handler)) as wire:
        created = await wire.call("handler")
        task_id = created["taskId"]
        assert created["status"] == "working"
        assert (await wire.get(task_id))["status"] == "working"
        first.set()
        ((key, request),) = (await wire.asked(task_id)).items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "Name?"
        await wire.update(task_id, {key: accept("Ada")})
        await wire.until(task_id, "working")
        second.set()
        assert words(await wire.until(task_id, "completed")) == "Hello, Ada"


@requirement("TASK-04", "TASK-05", "TASK-07", "TASK-15", "TASK-17")
async def test_each_status_has_exactly_the_fields_that_are_named_for_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(ctx: Context) -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    async def fault(ctx: Context) -> str:
        """Fail by the protocol."""
        raise ProtocolError("broken")

    def register(server: Server) -> None:
        for handler in (wait, ask, done, fault):
            server.tool(task="required")(handler)

    async with replica(tmp_path, register) as wire:
        created = await wire.call("wait")
        assert shape(created) == CREATED
        assert created["resultType"] == "task"
        working = await wire.get(created["taskId"])
        assert shape(working) == CREATED
        assert working["resultType"] == "complete"
        asking = await wire.start("ask")
        await wire.asked(asking)
        assert shape(await wire.get(asking)) == {*CREATED, "inputRequests"}
        await wire.cancel(asking)
        assert shape(await wire.until(asking, "cancelled")) == CREATED
        completed = await wire.until(await wire.start("done"), "completed")
        assert shape(completed) == {*CREATED, "result"}
        failed = await wire.until(await wire.start("fault"), "failed")
        assert shape(failed) == {*CREATED, "error"}
        assert all(task["resultType"] == "complete" for task in (completed, failed))
        gate.set()
        await wire.until(created["taskId"], "completed")


@requirement("TASK-07")
async def test_the_times_of_a_task_are_iso_8601_and_the_last_one_grows(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        created = await wire.call("ask")
        requests = await wire.asked(created["taskId"])
        asking = await wire.get(created["taskId"])
        await asyncio.sleep(0.01)
        await wire.update(created["taskId"], {key: accept("Ada") for key in requests})
        ended = await wire.until(created["taskId"], "completed")
        assert created["createdAt"] == asking["createdAt"] == ended["createdAt"]
        assert milliseconds(created["createdAt"]) <= milliseconds(created["lastUpdatedAt"])
        assert milliseconds(asking["lastUpdatedAt"]) < milliseconds(ended["lastUpdatedAt"])


@requirement("TASK-41")
async def test_the_ids_of_tasks_cannot_be_guessed(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(done)) as wire:
        ids = [await wire.start("done") for _ in range(20)]
        assert len(set(ids)) == 20
        assert min(len(task_id) for task_id in ids) >= 22, "fewer than 128 bits"
        # Beyond a fixed beginning, nothing of one id tells another.
        for position in range(-20, 0):
            assert len({task_id[position] for task_id in ids}) > 1 or ids[0][position] in "-_"
        # Operators hand them to the command line.
        assert all(task_id.isascii() and task_id.isalnum() for task_id in ids)


@pytest.mark.parametrize(("ttl", "expected"), [(60.0, 60_000), (0.75, 750)])
@requirement("TASK-07")
async def test_the_time_to_live_is_told_in_whole_milliseconds(
    tmp_path: Path, ttl: float, expected: int
) -> None:
    async def handler(ctx: Context) -> str:
        """Become a task with a time of its own."""
        await ctx.background(ttl=ttl)
        await ctx.elicit("Name?", str)
        return "done"

    async with replica(tmp_path, tool(handler, task="deferred")) as wire:
        created = await wire.call("handler")
        assert created["ttlMs"] == expected
        assert isinstance(created["ttlMs"], int)
        assert (await wire.get(created["taskId"]))["ttlMs"] == expected


@requirement("TASK-07")
async def test_a_task_for_ever_says_null(tmp_path: Path) -> None:
    limits = TaskLimits(ttl_seconds=None, poll_seconds=0.05)
    async with replica(tmp_path, tool(done), tasks=limits) as wire:
        created = await wire.call("done")
        assert created["ttlMs"] is None
        assert (await wire.until(created["taskId"], "completed"))["ttlMs"] is None


@requirement("TASK-07")
async def test_the_poll_interval_is_told_in_whole_milliseconds(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Become a task with an interval of its own."""
        await ctx.background(poll_interval=2.5)
        await ctx.elicit("Name?", str)
        return "done"

    def register(server: Server) -> None:
        server.tool(task="deferred")(handler)
        server.tool(task="required")(done)

    async with replica(tmp_path, register) as wire:
        created = await wire.call("handler")
        assert created["pollIntervalMs"] == 2500
        assert isinstance(created["pollIntervalMs"], int)
        assert (await wire.get(created["taskId"]))["pollIntervalMs"] == 2500
        assert (await wire.call("done"))["pollIntervalMs"] == 50


@requirement("TASK-05")
async def test_a_call_that_needs_no_task_is_answered_at_once(tmp_path: Path) -> None:
    async def handler(long: bool, ctx: Context) -> str:
        """Become a task only where it is worth it."""
        if long:
            await ctx.background()
        return f"long: {long}"

    async with replica(tmp_path, tool(handler, task="deferred")) as wire:
        at_once = await wire.call("handler", {"long": False})
        assert at_once["resultType"] == "complete"
        assert at_once["content"] == [{"type": "text", "text": "long: False"}]
        assert "taskId" not in at_once
        later = await wire.start("handler", {"long": True})
        assert words(await wire.until(later, "completed")) == "long: True"


async def test_a_tool_that_is_never_a_task_is_answered_at_once_whatever_the_client_can(
    tmp_path: Path,
) -> None:
    async with replica(tmp_path, tool(done, task="never")) as wire:
        assert (await wire.call("done"))["resultType"] == "complete"


@requirement("TASK-10")
async def test_a_task_can_be_read_at_once_on_another_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        for _ in range(10):
            created = await here.call("ask")
            seen = await there.get(created["taskId"])
            assert seen["taskId"] == created["taskId"]
            assert seen["createdAt"] == created["createdAt"]


async def test_a_task_lives_on_any_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        task_id = await here.start("ask")
        (key,) = await there.asked(task_id)
        await here.update(task_id, {key: accept("Ada")})
        assert words(await there.until(task_id, "completed")) == "Hello, Ada"
        assert await here.get(task_id) == await there.get(task_id)
        other = await here.start("ask")
        await there.cancel(other)
        await here.until(other, "cancelled")


# How it ends


@requirement("TASK-16", "TASK-35")
async def test_an_error_of_the_protocol_fails_the_task_with_just_that_error(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Fail by the protocol."""
        raise ProtocolError("the quota is used up", code=-32099, data={"limit": 3})

    async with replica(tmp_path, tool(handler)) as wire:
        failed = await wire.until(await wire.start("handler"), "failed")
        assert failed["error"] == {"code": -32099, "message": "the quota is used up", "data": {"limit": 3}}
        assert "result" not in failed
        assert failed["statusMessage"], "a failed task says why"


@requirement("TASK-08", "TASK-09")
async def test_a_tools_own_error_completes_the_task(tmp_path: Path) -> None:
    async def refuse(ctx: Context) -> str:
        """Fail as tools fail."""
        raise ToolError("no such order")

    async def break_down(ctx: Context) -> str:
        """Fail as code fails."""
        raise RuntimeError("secret of the house")

    def register(server: Server) -> None:
        server.tool(task="required")(refuse)
        server.tool(task="required")(break_down)

    async with replica(tmp_path, register) as wire:
        refused = await wire.until(await wire.start("refuse"), "completed")
        assert refused["result"]["isError"] is True
        assert refused["result"]["content"] == [{"type": "text", "text": "no such order"}]
        assert "error" not in refused
        broken = await wire.until(await wire.start("break_down"), "completed")
        assert broken["result"]["isError"] is True
        assert "secret" not in json.dumps(broken)


async def test_arguments_that_do_not_fit_are_a_tools_error_and_make_no_failed_task(tmp_path: Path) -> None:
    async def handler(number: int, ctx: Context) -> str:
        """Take a number."""
        return str(number)

    async with replica(tmp_path, tool(handler)) as wire:
        answered = await wire.call("handler", {"number": "many"})
        if answered["resultType"] == "task":
            answered = (await wire.until(answered["taskId"], "completed"))["result"]
        assert answered["isError"] is True


@requirement("TASK-14")
async def test_the_result_in_a_task_is_what_the_call_would_have_returned(tmp_path: Path) -> None:
    async def handler(number: int, ctx: Context) -> dict[str, int]:
        """Give something structured."""
        return {"twice": 2 * number}

    async with replica(tmp_path, tool(handler, task="optional")) as wire:
        params = {"name": "handler", "arguments": {"number": 21}}
        plain = await wire.result("tools/call", params, EVERYTHING)
        ended = await wire.until(await wire.start("handler", {"number": 21}), "completed")
        inlined = {k: v for k, v in ended["result"].items() if k not in {"resultType", "_meta"}}
        assert inlined == {k: v for k, v in plain.items() if k != "resultType"}
        assert inlined["structuredContent"] == {"twice": 42}
        assert "io.modelcontextprotocol/related-task" not in ended["result"].get("_meta", {})


async def test_a_task_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        task_id = await here.start("ask")
        (key,) = await here.asked(task_id)
        await here.update(task_id, {key: accept("Ada")})
        ended = await here.until(task_id, "completed")
        await there.update(task_id, {key: accept("Eve")})
        await there.cancel(task_id)
        await asyncio.sleep(0.2)
        assert await here.get(task_id) == ended
        assert await there.get(task_id) == ended


# Cancellation


@requirement("TASK-15", "TASK-24")
async def test_a_running_handler_is_cancelled_as_coroutines_are(tmp_path: Path) -> None:
    running, cleaned = asyncio.Event(), asyncio.Event()

    async def handler(ctx: Context) -> str:
        """Run until somebody stops it."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    async with replicas(tmp_path, tool(handler)) as (here, there):
        task_id = await here.start("handler")
        async with asyncio.timeout(PATIENCE):
            await running.wait()
            await there.cancel(task_id)
            await cleaned.wait()
        cancelled = await here.until(task_id, "cancelled")
        assert "result" not in cancelled
        assert "error" not in cancelled


@requirement("TASK-25")
async def test_a_handler_may_finish_in_spite_of_a_cancellation(tmp_path: Path) -> None:
    running = asyncio.Event()

    async def handler(ctx: Context) -> str:
        """Finish all the same."""
        running.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "finished all the same"

    async with replica(tmp_path, tool(handler)) as wire:
        task_id = await wire.start("handler")
        async with asyncio.timeout(PATIENCE):
            await running.wait()
        await wire.cancel(task_id)
        assert words(await wire.until(task_id, "completed")) == "finished all the same"


async def test_a_task_that_waits_is_cancelled_at_once_and_not_run(tmp_path: Path) -> None:
    runs: list[str] = []

    async def handler(ctx: Context) -> str:
        """Ask."""
        runs.append("run")
        answer = await ctx.elicit("Name?", str)
        return f"Hello, {answer.data}"

    async with replicas(tmp_path, tool(handler)) as (here, there):
        task_id = await here.start("handler")
        (key,) = await here.asked(task_id)
        before = len(runs)
        await there.cancel(task_id)
        assert (await here.get(task_id))["status"] == "cancelled"
        await here.update(task_id, {key: accept("Ada")})
        await asyncio.sleep(0.2)
        assert (await here.get(task_id))["status"] == "cancelled"
        assert len(runs) == before


@requirement("TASK-24")
async def test_a_cancellation_can_be_repeated(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        task_id = await here.start("ask")
        await here.asked(task_id)
        for wire in (here, there, here):
            await wire.cancel(task_id)
        cancelled = await here.until(task_id, "cancelled")
        await there.cancel(task_id)
        assert await here.get(task_id) == cancelled


@requirement("TASK-25")
async def test_a_cancellation_touches_no_other_task(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        gone, kept, finished = [await here.start("ask") for _ in range(3)]
        keys = {task_id: next(iter(await here.asked(task_id))) for task_id in (gone, kept, finished)}
        await here.update(finished, {keys[finished]: accept("Ada")})
        await here.until(finished, "completed")
        await there.cancel(gone)
        await here.until(gone, "cancelled")
        assert list(await there.asked(kept)) == [keys[kept]]
        assert words(await there.get(finished)) == "Hello, Ada"
        await there.update(kept, {keys[kept]: accept("Eve")})
        assert words(await here.until(kept, "completed")) == "Hello, Eve"


async def test_a_cancelled_request_does_not_cancel_the_task_that_it_became(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        message = wire.message("tools/call", {"name": "ask", "arguments": {}})
        created = (await wire.post(message)).json()["result"]
        await wire.post(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": message["id"], "_meta": message["params"]["_meta"]},
            }
        )
        (key,) = await wire.asked(created["taskId"])
        await wire.update(created["taskId"], {key: accept("Ada")})
        assert words(await wire.until(created["taskId"], "completed")) == "Hello, Ada"


# Who may, and what there is


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("task_id", [UNKNOWN, "", "x" * 5000, "../../etc/passwd", "ß\u2028"])
@requirement("TASK-31", "TASK-32")
async def test_an_unknown_id_is_an_invalid_parameter(tmp_path: Path, method: str, task_id: str) -> None:
    more = {"inputResponses": {}} if method == "tasks/update" else {}
    async with replica(tmp_path, tool(done)) as wire:
        message = wire.message(method, {"taskId": task_id, **more})
        response = await wire.post(message, mcp_name=_header(task_id))
        assert response.json()["error"]["code"] == -32602


def _header(value: str) -> str | None:
    """A name as its header, in the encoding for what a header cannot hold."""
    if value.isascii() and value.isprintable() and value:
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("params", [{}, {"taskId": None}, {"taskId": 7}, {"taskId": ["a"]}])
@requirement("TASK-31", "TASK-32")
async def test_an_id_that_is_none_is_an_invalid_parameter(
    tmp_path: Path, method: str, params: Message
) -> None:
    async with replica(tmp_path, tool(done)) as wire:
        response = await wire.post(wire.message(method, {"inputResponses": {}, **params}))
        # A header cannot mirror what is no string, so the one complaint is as good as the other.
        assert response.json()["error"]["code"] in {-32602, -32020}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(
    "capabilities",
    [{}, EVERYTHING, {"extensions": {}}, {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}],
)
@requirement("TASK-34", "TASK-37")
async def test_a_client_that_did_not_declare_tasks_is_told_so_before_anything_is_looked_up(
    tmp_path: Path, method: str, capabilities: Message
) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        real = await wire.start("ask")
        await wire.asked(real)
        errors = [
            await wire.error(method, {"taskId": task_id, "inputResponses": {}}, capabilities)
            for task_id in (real, UNKNOWN)
        ]
        assert errors[0] == errors[1]
        assert errors[0]["code"] == -32021
        assert errors[0]["data"] == MISSING
        assert (await wire.get(real))["status"] == "input_required"


@requirement("TASK-01", "TASK-02")
async def test_a_client_that_did_not_declare_tasks_never_gets_one(tmp_path: Path) -> None:
    async def deferred(ctx: Context) -> str:
        """Would be a task."""
        await ctx.background()
        return "in the request"

    def register(server: Server) -> None:
        server.tool(task="deferred")(deferred)
        server.tool(task="optional")(done)
        server.tool(task="required")(ask)

    async with replica(tmp_path, register) as wire:
        await wire.start("deferred")  # What an earlier request declared counts for nothing.
        for name, said in (("deferred", "in the request"), ("done", "done")):
            result = await wire.result("tools/call", {"name": name, "arguments": {}}, EVERYTHING)
            assert result["resultType"] == "complete"
            assert result["content"][0]["text"] == said
        error = await wire.error("tools/call", {"name": "ask", "arguments": {}}, EVERYTHING)
        assert error["code"] == -32021
        assert error["data"] == MISSING


@requirement("TASK-03", "TASK-40")
async def test_the_extension_is_advertised_and_the_old_capability_is_not(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(done)) as wire:
        discovered = await wire.result("server/discover", {})
        assert discovered["capabilities"]["extensions"][EXTENSION] == {}
        assert "tasks" not in discovered["capabilities"]
        (listed,) = (await wire.result("tools/list", {}))["tools"]
        assert "execution" not in listed


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
@requirement("TASK-38")
async def test_the_old_methods_are_gone(tmp_path: Path, method: str) -> None:
    async with replica(tmp_path, tool(done)) as wire:
        task_id = await wire.start("done")
        response = await wire.post(wire.message(method, {"taskId": task_id}))
        assert response.status_code == 404
        assert response.json()["error"]["code"] == -32601


@pytest.mark.parametrize("legacy", [{}, {"ttl": 1}, {"ttl": "soon"}, None, "yes", 7])
@requirement("TASK-39")
async def test_the_old_parameter_is_ignored(tmp_path: Path, legacy: Any) -> None:
    def register(server: Server) -> None:
        server.tool(task="never")(done)
        server.tool(task="required")(ask)

    async with replica(tmp_path, register) as wire:
        assert (await wire.call("done", task=legacy))["resultType"] == "complete"
        created = await wire.call("ask", task=legacy)
        assert created["ttlMs"] == 86_400_000
        refused = await wire.error("tools/call", {"name": "ask", "arguments": {}, "task": legacy}, EVERYTHING)
        assert refused["code"] == -32021


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(
    "headers",
    [{"mcp_name": UNKNOWN}, {"mcp_name": ""}, {"mcp_method": "tasks/result"}, {"mcp_method": None}],
)
@requirement("TASK-30")
async def test_a_header_that_does_not_mirror_the_request_is_refused(
    tmp_path: Path, method: str, headers: dict[str, str | None]
) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        task_id = await wire.start("ask")
        (key,) = await wire.asked(task_id)
        params = {"taskId": task_id}
        more = {"inputResponses": {key: accept("Ada")}} if method == "tasks/update" else {}
        response = await wire.post(wire.message(method, {**params, **more}), **headers)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == -32020
        assert (await wire.get(task_id))["status"] == "input_required", "nothing was done"


@requirement("TASK-30")
async def test_a_client_that_leaves_the_routing_header_out_follows_its_task_to_the_end(
    tmp_path: Path,
) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        task_id = await wire.start("ask")
        (key,) = await wire.asked(task_id)

        async def bare(method: str, **more: Any) -> Message:
            response = await wire.post(wire.message(method, {"taskId": task_id, **more}), mcp_name=None)
            assert response.status_code == 200
            result: Message = response.json()["result"]
            return result

        assert (await bare("tasks/get"))["status"] == "input_required"
        assert (await bare("tasks/update", inputResponses={key: accept("Ada")}))["resultType"] == "complete"
        await wire.until(task_id, "completed")
        assert words(await bare("tasks/get")) == "Hello, Ada"
        assert (await bare("tasks/cancel"))["resultType"] == "complete"


@requirement("TASK-33")
async def test_a_store_that_fails_is_an_internal_error_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        task_id = await wire.start("ask")
        (key,) = await wire.asked(task_id)
        with contextlib.closing(sqlite3.connect(tmp_path / "tasks.db", timeout=PATIENCE)) as vandal:
            vandal.execute("ALTER TABLE tasks RENAME TO hidden")
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                more = {"inputResponses": {key: accept("Ada")}} if method == "tasks/update" else {}
                error = await wire.error(method, {"taskId": task_id, **more})
                assert error["code"] == -32603
                assert "tasks" not in error["message"], "nothing of the inside is told"
            vandal.execute("ALTER TABLE hidden RENAME TO tasks")
        await wire.update(task_id, {key: accept("Ada")})
        assert words(await wire.until(task_id, "completed")) == "Hello, Ada"
    assert caplog.records, "the operator is told"


# Whose it is


@requirement("TASK-42")
async def test_another_principal_sees_nothing_of_a_task(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        task_id = await here.start("ask")
        (key,) = await here.asked(task_id)
        eve = there.of("eve")
        for method, more in (
            ("tasks/get", {}),
            ("tasks/update", {"inputResponses": {key: accept("Eve")}}),
            ("tasks/cancel", {}),
        ):
            real = await eve.error(method, {"taskId": task_id, **more})
            made_up = await eve.error(method, {"taskId": UNKNOWN, **more})
            assert real == made_up, "nothing tells one that is another's from one that never was"
            assert real["code"] == -32602
        assert list(await here.asked(task_id)) == [key]
        await here.update(task_id, {key: accept("Ada")})
        assert words(await here.until(task_id, "completed")) == "Hello, Ada"
        assert (await eve.error("tasks/get", {"taskId": task_id}))["code"] == -32602


@requirement("TASK-27", "TASK-42")
async def test_another_principal_cannot_listen_to_a_task(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        adas = await wire.start("ask")
        eve = wire.of("eve")
        eves = await eve.start("ask")
        async with eve.listening(adas, UNKNOWN, eves) as stream:
            acknowledged = await stream.next()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"]["taskIds"] == [eves]
            await stream.until("input_required")
            await wire.cancel(adas)
            await wire.until(adas, "cancelled")
            await eve.cancel(eves)
            await stream.until("cancelled")
            assert {message["params"]["taskId"] for message in stream.said[1:]} == {eves}


# What is told


@requirement("TASK-27", "TASK-28")
async def test_who_listens_is_told_all_that_a_poll_would_show_on_any_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(ask)) as (here, there):
        task_id = await here.start("ask")
        (key,) = await here.asked(task_id)
        async with there.listening(task_id) as stream:
            acknowledged = await stream.next()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"]["taskIds"] == [task_id]
            now = await stream.until("input_required")
            assert now == without_type(await here.get(task_id)), "the current state right after it"
            await here.update(task_id, {key: accept("Ada")})
            ended = await stream.until("completed")
            assert ended == without_type(await here.get(task_id))
            assert {message["method"] for message in stream.said[1:]} == {"notifications/tasks"}


def without_type(task: Message) -> Message:
    return {name: value for name, value in task.items() if name != "resultType"}


@requirement("TASK-26")
async def test_listening_to_tasks_needs_the_extension(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(ask)) as wire:
        task_id = await wire.start("ask")
        error = await wire.error(
            "subscriptions/listen", {"notifications": {"taskIds": [task_id]}}, EVERYTHING
        )
        assert error["code"] == -32021
        assert error["data"] == MISSING


@requirement("TASK-29")
async def test_progress_and_logs_of_a_task_become_its_message_and_nothing_else(tmp_path: Path) -> None:
    gates = {name: asyncio.Event() for name in ("subscribed", "log", "end")}

    async def handler(ctx: Context) -> str:
        """Tell how it goes."""
        await ctx.progress(0, 3, "before")
        await ctx.background()
        await gates["subscribed"].wait()
        await ctx.progress(1, 3, "a third is done")
        await gates["log"].wait()
        await ctx.log("warning", "it takes longer")
        await gates["end"].wait()
        return "done"

    async with replicas(tmp_path, tool(handler, task="deferred")) as (here, there):
        meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
        said = await here.all("tools/call", {"name": "handler", "arguments": {}, "_meta": meta})
        *before, response = said
        assert [message["params"]["message"] for message in before] == ["before"]
        task_id = response["result"]["taskId"]
        async with there.listening(task_id) as stream:
            await stream.next()
            gates["subscribed"].set()
            await here.until(task_id, lambda task: "a third is done" in task.get("statusMessage", ""))
            while "a third is done" not in ((await stream.next())["params"].get("statusMessage") or ""):
                pass  # The listener is told what the task says now: it may miss what it said before.
            gates["log"].set()
            await there.until(task_id, lambda task: "it takes longer" in task.get("statusMessage", ""))
            gates["end"].set()
            await stream.until("completed")
            assert {message["method"] for message in stream.said[1:]} == {"notifications/tasks"}
        assert (await here.get(task_id))["status"] == "completed"


# Time


@requirement("TASK-18")
async def test_a_task_that_is_not_answered_in_time_fails_and_says_so(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask with little patience."""
        await ctx.background(ttl=0.4)
        answer = await ctx.elicit("Name?", str)
        return f"Hello, {answer.data}"

    async with replicas(tmp_path, tool(handler, task="deferred")) as (here, there):
        task_id = await here.start("handler")
        (key,) = await here.asked(task_id)
        failed = await there.until(task_id, "failed")
        assert failed["error"]["code"] == -32603
        assert "expired" in failed["error"]["message"].lower()
        assert failed["statusMessage"]
        await here.update(task_id, {key: accept("Ada")})
        assert (await here.get(task_id))["status"] == "failed"


@requirement("TASK-18")
async def test_an_expired_task_is_removed_later(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask with little patience."""
        await ctx.background(ttl=0.2)
        await ctx.elicit("Name?", str)
        return "answered"

    limits = TaskLimits(keep_seconds=0.3, poll_seconds=0.05, sweep_seconds=0.05)
    async with replica(tmp_path, tool(handler, task="deferred"), tasks=limits) as wire:
        task_id = await wire.start("handler")
        async with asyncio.timeout(PATIENCE):
            while "error" not in (await wire.all("tasks/get", {"taskId": task_id}))[-1]:
                await asyncio.sleep(0.02)
        assert (await wire.error("tasks/get", {"taskId": task_id}))["code"] == -32602


# Rounds first, then a task


def refund(ran: list[str]) -> Register:
    def note(what: str) -> None:
        ran.append(what)

    async def handler(order: str, ctx: Context) -> str:
        """Ask by rounds, then as a task."""
        await ctx.step(note, f"load {order}")
        sure = await ctx.elicit("Sure?", bool, key="answer")
        if not sure.data:
            return "Not refunded."
        await ctx.background()
        await ctx.step(note, f"reserve {order}")
        boss = await ctx.elicit("Does the boss agree?", bool, key="boss")
        await ctx.step(note, f"pay {order}")
        return f"sure: {sure.data}, boss: {boss.data}"

    return tool(handler, task="deferred")


ORDER = {"order": "A7"}


@requirement("TASK-11")
async def test_a_call_of_rounds_goes_on_as_a_task(tmp_path: Path) -> None:
    ran: list[str] = []
    async with replicas(tmp_path, refund(ran)) as (here, there):
        asked = await here.call("handler", ORDER)
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
        (key,) = asked["inputRequests"]
        task_id = await there.start(
            "handler", ORDER, inputResponses={key: accept(True)}, requestState=asked["requestState"]
        )
        (boss,) = await here.asked(task_id)
        await here.update(task_id, {boss: accept(True)})
        assert words(await there.until(task_id, "completed")) == "sure: True, boss: True"
        assert ran == ["load A7", "reserve A7", "pay A7"]


@requirement("TASK-43")
async def test_keys_and_states_of_rounds_and_of_a_task_never_mix(tmp_path: Path) -> None:
    async with replicas(tmp_path, refund([])) as (here, there):
        asked = await here.call("handler", ORDER)
        (key,) = asked["inputRequests"]
        params = {"inputResponses": {key: accept(True)}, "requestState": asked["requestState"]}
        created = await here.call("handler", ORDER, **params)
        assert created["resultType"] == "task"
        assert shape(created) == CREATED, "no state and no questions"
        task_id = created["taskId"]
        (boss,) = await there.asked(task_id)
        assert "requestState" not in await there.get(task_id)
        # The key of the round means nothing to the task.
        await there.update(task_id, {key: accept(False)})
        assert list(await here.asked(task_id)) == [boss]
        # Nor does a state: it is a parameter that `tasks/update` does not know.
        await here.result(
            "tasks/update",
            {"taskId": task_id, "inputResponses": {}, "requestState": asked["requestState"]},
        )
        assert list(await here.asked(task_id)) == [boss]
        # And an answer for the task in a retry of the call is none: the same task comes back, still waiting.
        again = await there.call(
            "handler",
            ORDER,
            inputResponses={key: accept(True), boss: accept(True)},
            requestState=asked["requestState"],
        )
        assert again["taskId"] == task_id
        assert list(await here.asked(task_id)) == [boss]
        await here.update(task_id, {boss: accept(True)})
        assert words(await here.until(task_id, "completed")) == "sure: True, boss: True"


async def test_the_same_key_in_a_round_and_in_the_task_is_two_questions(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask the very same thing by a round and in the task."""
        before = await ctx.elicit("Name?", str)
        await ctx.background()
        after = await ctx.elicit("Name?", str)
        return f"{before.data} then {after.data}"

    async with replica(tmp_path, tool(handler, task="deferred")) as wire:
        asked = await wire.call("handler")
        (key,) = asked["inputRequests"]
        task_id = await wire.start(
            "handler", inputResponses={key: accept("Ada")}, requestState=asked["requestState"]
        )
        (second,) = await wire.asked(task_id)
        await wire.update(task_id, {second: accept("Eve")})
        assert words(await wire.until(task_id, "completed")) == "Ada then Eve"


async def test_a_handler_may_end_after_its_rounds_without_becoming_a_task(tmp_path: Path) -> None:
    async with replica(tmp_path, refund([])) as wire:
        asked = await wire.call("handler", ORDER)
        (key,) = asked["inputRequests"]
        ended = await wire.call(
            "handler", ORDER, inputResponses={key: accept(False)}, requestState=asked["requestState"]
        )
        assert ended["resultType"] == "complete"
        assert ended["content"] == [{"type": "text", "text": "Not refunded."}]


def one_choice(ran: list[str], **options: Any) -> Register:
    async def handler(ctx: Context) -> str:
        """Ask, then become a task unless that is refused."""
        colour = await ctx.elicit("Colour?", str)
        if colour.data == "none":
            return "Nothing was painted."
        await ctx.background()
        await ctx.step(ran.append, f"paint it {colour.data}")
        await ctx.elicit("Is it dry?", bool)
        return "painted"

    return tool(handler, task="deferred", **options)


async def answers(wire: Wire, colours: list[str]) -> list[Message]:
    """The params of several retries of one call, each with another answer."""
    asked = await wire.call("handler")
    (key,) = asked["inputRequests"]
    state = asked["requestState"]
    return [
        {"name": "handler", "inputResponses": {key: accept(colour)}, "requestState": state}
        for colour in colours
    ]


async def test_a_repeated_retry_makes_no_second_task(tmp_path: Path) -> None:
    ran: list[str] = []
    async with replicas(tmp_path, one_choice(ran)) as (here, there):
        red, blue = await answers(here, ["red", "blue"])
        created = await asyncio.gather(*(wire.result("tools/call", red) for wire in (here, there) * 2))
        (task_id,) = {task["taskId"] for task in created}
        await here.asked(task_id)
        assert (await there.result("tools/call", red))["taskId"] == task_id
        for wire in (here, there):
            assert (await wire.error("tools/call", blue))["code"] == -32602
        assert ran == ["paint it red"]


async def test_a_strict_tool_refuses_every_retry_with_other_answers(tmp_path: Path) -> None:
    ran: list[str] = []
    async with replicas(tmp_path, one_choice(ran, once=True)) as (here, there):
        red, blue, none = await answers(here, ["red", "blue", "none"])
        task_id = (await here.result("tools/call", red))["taskId"]
        assert (await there.result("tools/call", red))["taskId"] == task_id
        for wire in (here, there):
            for other in (blue, none):
                assert (await wire.error("tools/call", other))["code"] == -32602
        await here.asked(task_id)
        assert ran == ["paint it red"]


@requirement("TASK-11")
async def test_questions_that_are_pending_are_settled_before_the_task_begins(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask beside becoming a task."""

        async def become() -> None:
            await ctx.background()

        name, _ = await asyncio.gather(ctx.elicit("Name?", str), become())
        return f"Hello, {name.data}"

    async with replica(tmp_path, tool(handler, task="deferred")) as wire:
        asked = await wire.call("handler")
        assert asked["resultType"] == "input_required"
        key = key_for(asked["inputRequests"], "Name?")
        task_id = await wire.start(
            "handler", inputResponses={key: accept("Ada")}, requestState=asked["requestState"]
        )
        assert words(await wire.until(task_id, "completed")) == "Hello, Ada"


# Only tools


@requirement("TASK-06")
async def test_only_a_call_of_a_tool_becomes_a_task(tmp_path: Path) -> None:
    def register(server: Server) -> None:
        server.tool(task="required")(done)

        @server.prompt
        async def greeting(ctx: Context) -> str:
            return "Hello"

    async with replica(tmp_path, register) as wire:
        prompt = await wire.result("prompts/get", {"name": "greeting"}, DECLARED)
        assert prompt["resultType"] == "complete"
        assert (await wire.result("tools/list", {}))["resultType"] == "complete"
