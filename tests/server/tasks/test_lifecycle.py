"""How a call becomes a task, and what its client sees of it until the end (SEP-2663)."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, InvalidParams, RegistrationError, Server, TaskLimits, ToolError
from ekiden.testing import CallFailed
from tests.tasks.driving import EXTENSION, REQUIRED, WITH_TASKS, TaskClient, accept, key_of, new_server

TERMINAL = ("completed", "failed", "cancelled")


async def test_a_task_is_created_flat_and_readable_at_once(store: Any) -> None:
    server = new_server(store)
    go = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await go.wait()
        return "done"

    async with server.running():
        client = TaskClient(server)
        created = (await client.ask("tool")).result
        task = await client.get(created["taskId"])
        assert created["resultType"] == "task"
        assert task["resultType"] == "complete"
        fields = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
        assert set(created) == set(task) == fields | {"resultType", "_meta"}
        assert created["status"] == task["status"] == "working"
        assert (created["ttlMs"], created["pollIntervalMs"]) == (86_400_000, 10)
        assert datetime.fromisoformat(created["createdAt"]) <= datetime.fromisoformat(task["lastUpdatedAt"])
        assert len(created["taskId"]) >= 22  # 128 bits and more: nobody guesses it.
        go.set()
        final = await client.until(created["taskId"], "completed")
        assert final["result"] == {"content": [{"type": "text", "text": "done"}]}
        assert "error" not in final
        assert "inputRequests" not in final


async def test_a_task_made_by_one_replica_is_seen_by_another(store: Any) -> None:
    replicas = [new_server(store) for _ in range(2)]
    go = asyncio.Event()
    for server in replicas:

        @server.tool(task="required")
        async def tool() -> str:
            await go.wait()
            return "done"

    async with replicas[0].running(), replicas[1].running():
        first, second = TaskClient(replicas[0]), TaskClient(replicas[1])
        task_id = await first.start()
        assert (await second.get(task_id))["status"] == "working"
        go.set()
        assert await second.text(task_id) == "done"


async def test_a_tool_error_completes_and_a_protocol_error_fails(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool_error() -> str:
        raise ToolError("no money")

    @server.tool(task="required")
    async def protocol_error() -> str:
        raise InvalidParams("no sense", data={"why": 1})

    @server.tool(task="required")
    async def bug() -> str:
        raise ZeroDivisionError("secret")

    async with server.running():
        client = TaskClient(server)
        completed = await client.until(await client.start("tool_error"), "completed")
        assert completed["result"] == {"content": [{"type": "text", "text": "no money"}], "isError": True}
        failed = await client.until(await client.start("protocol_error"), "failed")
        assert failed["error"] == {"code": -32602, "message": "no sense", "data": {"why": 1}}
        assert "result" not in failed
        broken = await client.until(await client.start("bug"), "completed")
        assert broken["result"]["isError"] is True
        assert "secret" not in str(broken)


async def test_clients_without_the_extension(store: Any) -> None:
    """The call just goes on in the request, or it is refused; the methods are refused before any look-up."""
    server = new_server(store)

    @server.tool(task="optional")
    async def optional() -> str:
        return "here and now"

    @server.tool(task="deferred")
    async def deferred(ctx: Context) -> str:
        await ctx.background()
        return "here and now, too"

    @server.tool(task="required")
    async def required() -> str:
        raise AssertionError("not reached")

    async with server.running():
        plain = TaskClient(server, capabilities={"elicitation": {}, "tasks": {"list": {}}})
        assert (await plain.call_tool("optional"))["content"][0]["text"] == "here and now"
        assert (await plain.call_tool("deferred"))["content"][0]["text"] == "here and now, too"
        refused = await plain.refused("required")
        assert (refused.code, refused.data) == (-32021, REQUIRED)
        assert refused.message.startswith(
            "Tool 'required' runs as a task only: "
            "declare the extension io.modelcontextprotocol/tasks to call it"
        )
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(CallFailed) as caught:
                await plain.round(method, {"taskId": "unknown"})
            assert (caught.value.code, caught.value.data) == (-32021, REQUIRED)
            assert "did not declare the extension io.modelcontextprotocol/tasks" in caught.value.message


async def test_the_extension_is_offered_where_a_tool_can_become_a_task(store: Any) -> None:
    server = new_server(store)
    client = TaskClient(server)

    async def capabilities() -> dict[str, Any]:
        found: dict[str, Any] = (await client.round("server/discover", {})).result["capabilities"]
        return found

    assert "extensions" not in await capabilities()
    with pytest.raises(CallFailed) as caught:
        await client.get("unknown")
    assert caught.value.code == -32601

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> str:
        await ctx.background()
        return "done"

    async with server.running():
        assert (await capabilities())["extensions"] == {EXTENSION: {}}
        assert "tasks" not in await capabilities()
        for method in ("tasks/result", "tasks/list", "tasks/input_response"):
            with pytest.raises(CallFailed) as caught:
                await client.round(method, {"taskId": "unknown"})
            assert caught.value.code == -32601
        with pytest.raises(CallFailed) as caught:
            await client.get("unknown")
        assert caught.value.code == -32602
        assert await client.text(await client.start("tool", task={"ttl": 1000})) == "done"
    await server.endpoint.stop()  # Its first request came before anybody ran it, and started it for good.


async def test_a_handler_that_never_goes_to_the_background_is_no_task(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="deferred")
    async def tool(big: bool, ctx: Context) -> str:
        if big:
            await ctx.background(ttl=5, poll_interval=0.25)
        return "big" if big else "small"

    async with server.running():
        client = TaskClient(server)
        assert (await client.call_tool("tool", {"big": False}))["content"][0]["text"] == "small"
        created = (await client.ask("tool", {"big": True})).result
        assert (created["ttlMs"], created["pollIntervalMs"]) == (5000, 250)
        assert await client.text(created["taskId"]) == "big"


async def test_rounds_first_then_a_task_and_nothing_is_done_twice(store: Any) -> None:
    server = new_server(store)
    ran: list[str] = []

    def note(what: str) -> str:
        ran.append(what)
        return what

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> str:
        ticket = ctx.uuid()
        first = await ctx.elicit("first?", str, key="name")
        await ctx.step(note, "before")
        second = await ctx.elicit(f"second? {ticket}", str)
        await ctx.step(note, "between")
        await ctx.background()
        await ctx.step(note, "after")
        third = await ctx.elicit("third?", str, key="name too")
        await ctx.step(note, "last")
        return f"{first.data} {second.data} {third.data} {ticket == ctx.uuid()}"

    async with server.running():
        client = TaskClient(server)
        one = await client.ask("tool")
        assert list(one.requests) == ["name"]
        two = await client.retry(one, {"name": accept("a")})
        (key,) = two.requests
        three = (await client.retry(two, {key: accept("b")})).result
        assert three["resultType"] == "task"
        assert "requestState" not in three
        asked = await client.asked(three["taskId"])
        assert list(asked) == ["name too.1"]
        await client.update(three["taskId"], {"name too.1": accept("c")})
        assert await client.text(three["taskId"]) == "a b c False"
        assert ran == ["before", "between", "after", "last"]


async def test_a_repeat_makes_no_second_task_and_other_answers_are_refused(store: Any) -> None:
    server = new_server(store)
    ran: list[str] = []

    def note() -> None:
        ran.append("step")

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("first?", str, key="name")
        await ctx.background()
        await ctx.step(note)
        return str(answer.data)

    async with server.running():
        client = TaskClient(server)
        asked = await client.ask("tool")
        tasks = {(await client.retry(asked, {"name": accept("same")})).result["taskId"] for _ in range(3)}
        assert len(tasks) == 1
        refused = await client.refused(
            "tool", inputResponses={"name": accept("other")}, requestState=asked.state
        )
        assert refused.code == -32602
        assert await client.text(tasks.pop()) == "same"
        assert ran == ["step"]
        assert len(await store.tasks.listing()) == 1


async def test_background_waits_until_nothing_is_asked(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> str:
        async def hurry() -> str:
            await ctx.background()
            return "hurried"

        answer, how = await asyncio.gather(ctx.elicit("first?", str), hurry())
        return f"{answer.data} {how}"

    async with server.running():
        client = TaskClient(server)
        asked = await client.ask("tool")
        (key,) = asked.requests
        created = (await client.retry(asked, {key: accept("yes")})).result
        assert await client.text(created["taskId"]) == "yes hurried"


async def test_another_principal_sees_nothing_of_a_task(store: Any) -> None:
    server = new_server(store, principal=lambda request: request.meta.fields.get("who"))

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool, key="sure")).data)

    async with server.running():
        mine = TaskClient(server, meta={"who": "me"})
        other = TaskClient(server, meta={"who": "you"})
        nobody = TaskClient(server)
        task_id = await mine.start()
        await mine.asked(task_id)
        errors = set()
        for client in (other, nobody):
            for method, params in (
                ("tasks/get", {}),
                ("tasks/update", {"inputResponses": {"sure.1": accept(True)}}),
                ("tasks/cancel", {}),
            ):
                for named in (task_id, "no such task"):
                    with pytest.raises(CallFailed) as caught:
                        await client.round(method, {"taskId": named, **params})
                    errors.add((caught.value.code, caught.value.message, caught.value.data))
        assert len(errors) == 1, "a task of somebody else must look like none at all"
        assert errors.pop()[0] == -32602
        await mine.update(task_id, {"sure.1": accept(True)})
        assert await mine.text(task_id) == "True"


async def test_progress_and_logs_become_the_status_message(store: Any) -> None:
    server = new_server(store)
    go, told = asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await ctx.progress(1, 4, "reading")
        await told.wait()
        await ctx.log("debug", "not for the client")
        await ctx.log("info", {"rows": 3})
        await go.wait()
        return "done"

    async with server.running():
        client = TaskClient(server, meta={"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"})
        started = await client.ask("tool")
        assert started.notifications == []
        task_id = started.result["taskId"]

        async def message(expected: str) -> None:
            async with asyncio.timeout(10):
                while (await client.get(task_id)).get("statusMessage") != expected:
                    await asyncio.sleep(0.005)

        await message("reading (1/4)")
        told.set()
        await message('{"rows":3}')
        go.set()
        done = await client.until(task_id, "completed")
        assert "statusMessage" not in done
        assert all(seen.notifications == [] for seen in client.rounds)


async def test_what_is_said_while_something_is_being_written_is_told_too(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_server(store)
    writing, go = asyncio.Event(), asyncio.Event()
    publish = store.tasks.publish

    async def slowly(*args: Any, **options: Any) -> Any:
        writing.set()
        await asyncio.sleep(0.05)
        return await publish(*args, **options)

    monkeypatch.setattr(store.tasks, "publish", slowly)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await ctx.progress(1, 2, "first")
        await writing.wait()
        await ctx.progress(2, 2, "second")
        await go.wait()
        return "done"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start("tool")
        async with asyncio.timeout(10):
            while (await client.get(task_id)).get("statusMessage") != "second (2/2)":
                await asyncio.sleep(0.005)
        go.set()
        await client.until(task_id, "completed")


async def test_a_question_does_not_wait_for_the_turn_of_a_message(store: Any) -> None:
    server = new_server(store, tasks=TaskLimits(message_seconds=3600))
    go = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await ctx.progress(1, 2, "first")

        async def say_and_ask() -> None:
            await told.wait()
            await ctx.progress(2, 2, "second")
            await asyncio.sleep(0.05)  # The message waits for its turn by now.
            await ctx.elicit("sure?", bool, key="sure")

        await asyncio.gather(ctx.step(go.wait, key="wait"), say_and_ask())
        return "done"

    told = asyncio.Event()
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start("tool")
        async with asyncio.timeout(10):
            while (await client.get(task_id)).get("statusMessage") != "first (1/2)":
                await asyncio.sleep(0.005)
        told.set()
        await client.asked(task_id)
        assert (await client.get(task_id))["statusMessage"] == "second (2/2)"
        go.set()
        await client.update(task_id, {"sure.1": accept(True)})
        assert await client.text(task_id) == "done"


async def test_progress_of_a_task_that_sleeps_never_runs_backwards(store: Any) -> None:
    server = new_server(store)
    told: list[str] = []

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> str:
        await ctx.background()
        for number in range(3):
            await ctx.progress(number + 1, 3)
            await ctx.sleep(0.02)
        return "done"

    def noted(write: Any) -> Any:
        async def writing(task_id: str, fence: int, leaves: Any, *args: Any, **options: Any) -> Any:
            if leaves.message is not None:
                told.append(leaves.message)
            return await write(task_id, fence, leaves, *args, **options)

        return writing

    store.tasks.publish, store.tasks.suspend = noted(store.tasks.publish), noted(store.tasks.suspend)
    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start("tool")) == "done"
    assert told == sorted(told)
    assert told[0].endswith("1/3")
    assert len(set(told)) > 1


async def test_time_that_runs_out_fails_the_task_and_later_it_is_gone(store: Any) -> None:
    now = [1_000_000.0]
    limits = TaskLimits(ttl_seconds=60, keep_seconds=100, sweep_seconds=0.05, lease_seconds=1)
    server = new_server(store, tasks=limits, clock=lambda: now[0])

    @server.tool(task="required")
    async def waits(ctx: Context) -> str:
        await ctx.elicit("sure?", bool, key="sure")
        return "never"

    @server.tool(task="required")
    async def done(ctx: Context) -> str:
        return "done"

    async with server.running():
        client = TaskClient(server)
        task_id, ended = await client.start("waits"), await client.start("done")
        await client.asked(task_id)
        await client.until(ended, "completed")
        now[0] += 61
        failed = await client.until(task_id, "failed")
        assert failed["error"]["code"] == -32603
        assert "expired" in failed["error"]["message"]
        assert failed["statusMessage"]
        await client.update(task_id, {"sure.1": accept(True)})  # Too late, and harmless.
        assert (await client.get(task_id))["status"] == "failed"
        assert (await client.get(ended))["status"] == "completed"
        now[0] += 100
        async with asyncio.timeout(10):
            while await store.tasks.listing():
                await asyncio.sleep(0.01)
        with pytest.raises(CallFailed) as caught:
            await client.get(task_id)
        assert caught.value.code == -32602


async def test_expiry_stops_a_running_handler(store: Any) -> None:
    now = [1_000_000.0]
    limits = TaskLimits(ttl_seconds=60, sweep_seconds=0.05, lease_seconds=0.3)
    server = new_server(store, tasks=limits, clock=lambda: now[0])
    stopped = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        try:
            await asyncio.sleep(100)
        finally:
            stopped.set()
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        now[0] += 61
        await client.until(task_id, "failed")
        async with asyncio.timeout(10):
            await stopped.wait()


@pytest.mark.parametrize("mode", ["deferred", "optional", "required"])
def test_a_missing_store_is_found_at_registration(mode: Any) -> None:
    with pytest.raises(RegistrationError, match="needs a store"):
        Server("no store").tool(task=mode)(lambda: None)


def test_a_task_cannot_be_parked(store: Any) -> None:
    with pytest.raises(RegistrationError, match="parked"):
        new_server(store).tool(task="deferred", resume="parked")(lambda: None)


async def test_task_ids_and_responses_are_checked(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        for params in (
            {"taskId": task_id},
            {"taskId": task_id, "inputResponses": None},
            {"taskId": task_id, "inputResponses": []},
            {"inputResponses": {}},
            {"taskId": 5, "inputResponses": {}},
        ):
            with pytest.raises(CallFailed) as caught:
                await client.round("tasks/update", params)
            assert caught.value.code == -32602
        assert set(await client.update(task_id, {})) == {"resultType", "_meta"}
        assert key_of(await client.asked(task_id), "sure?")


async def test_capabilities_of_the_creating_request_count(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data) if ctx.can_ask("elicitation") else "cannot ask"

    @server.tool(task="required")
    async def stubborn(ctx: Context) -> str:
        return str(await ctx.list_roots())

    async with server.running():
        plain = TaskClient(server, capabilities={"extensions": {EXTENSION: {}}})
        rich = TaskClient(server, capabilities=WITH_TASKS)
        task_id = await plain.start()
        assert await rich.text(task_id) == "cannot ask"
        failed = await rich.until(await plain.start("stubborn"), "failed")
        assert failed["error"]["code"] == -32021
        assert failed["error"]["data"] == {"requiredCapabilities": {"roots": {}}}


async def test_the_echo_task_of_the_seeds_in_todays_form(store: Any) -> None:
    """Message by message; ids and times are masked."""
    server = new_server(store, tasks=TaskLimits(poll_seconds=0.1, ttl_seconds=60))

    class Echo(BaseModel):
        input: str

    @server.tool(task="required")
    async def echo(ctx: Context) -> str:
        answer = await ctx.elicit("Please provide the input string to echo back", Echo, key="echo_input")
        return f"Echo: {answer.data.input if answer.action == 'accept' else 'nothing'}"

    def masked(result: dict[str, Any]) -> dict[str, Any]:
        dropped = ("taskId", "createdAt", "lastUpdatedAt", "_meta")
        assert all(field in result for field in dropped), result
        return {name: value for name, value in result.items() if name not in dropped}

    async with server.running():
        client = TaskClient(server)
        created = (await client.ask("echo")).result
        usual = {"ttlMs": 60000, "pollIntervalMs": 100}
        assert masked(created) == {"resultType": "task", "status": "working", **usual}
        task_id = created["taskId"]
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        message = "Please provide the input string to echo back"
        params = {"mode": "form", "message": message, "requestedSchema": schema}
        assert masked(await client.until(task_id, "input_required")) == {
            "resultType": "complete",
            "status": "input_required",
            **usual,
            "inputRequests": {"echo_input.1": {"method": "elicitation/create", "params": params}},
        }
        response = {"action": "accept", "content": {"input": "Hello World!"}}
        acknowledged = await client.update(task_id, {"echo_input.1": response})
        assert set(acknowledged) == {"resultType", "_meta"}
        assert masked(await client.until(task_id, "completed")) == {
            "resultType": "complete",
            "status": "completed",
            **usual,
            "result": {"content": [{"type": "text", "text": "Echo: Hello World!"}]},
        }
