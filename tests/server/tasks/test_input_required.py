"""The manual way in a task: `InputRequired`, returned or raised."""

import asyncio
import logging
from typing import Any

import pytest

from ekiden import Context, InputRequired, Server
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed
from tests.server.tasks.test_legacy import shaken
from tests.tasks.driving import WITH_TASKS, TaskClient, new_server


def form(message: str) -> dict[str, Any]:
    """A question for one text."""
    schema = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def said(text: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": text}}


def value(ctx: Context, key: str) -> str:
    answer: Any = ctx.input_responses[key]
    return str(answer.content["value"])


def travel(store: Any, ran: list[str]) -> Server:
    """A server whose tool asks twice, and keeps its own state."""
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> InputRequired | str:
        ran.append(ctx.request_state or "start")
        if ctx.request_state is None:
            return InputRequired({"who": form("who?"), "where": form("where?")}, "asked")
        if ctx.request_state == "asked":
            raise InputRequired({"when": form(f"when, {value(ctx, 'who')}?")}, "nearly")
        return f"{value(ctx, 'who')} to {value(ctx, 'where')} on {value(ctx, 'when')}"

    return server


async def test_a_handler_that_keeps_its_own_state_asks_within_its_task(store: Any) -> None:
    ran: list[str] = []
    server = travel(store, ran)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        asked = await client.asked(task_id)
        assert asked == {"who.1": form("who?"), "where.1": form("where?")}
        await client.update(task_id, {"who.1": said("Ada"), "where.1": said("Rome")})
        async with asyncio.timeout(10):
            while "when.1" not in (await client.asked(task_id)):
                await asyncio.sleep(0.005)
        assert await client.asked(task_id) == {"when.1": form("when, Ada?")}
        await client.update(task_id, {"when.1": said("Monday")})
        assert await client.text(task_id) == "Ada to Rome on Monday"
    assert ran == ["start", "asked", "nearly"]


async def test_the_next_leg_waits_for_all_answers(store: Any) -> None:
    ran: list[str] = []
    server = travel(store, ran)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
        await client.update(task_id, {"where.1": said("Rome")})
        assert set(await client.asked(task_id)) == {"who.1"}
        await asyncio.sleep(0.05)  # A worker looks, and finds that it is not enough.
        assert set(await client.asked(task_id)) == {"who.1"}
        assert ran == ["start"]
        await client.update(task_id, {"who.1": said("Ada")})
        await client.asks(task_id, "when.1")
        await client.update(task_id, {"when.1": said("Monday")})
        assert await client.text(task_id) == "Ada to Rome on Monday"


async def test_another_process_goes_on(store: Any) -> None:
    ran: list[str] = []
    first, second = travel(store, ran), travel(store, ran)
    async with first.running():
        task_id = await TaskClient(first).start()
        await TaskClient(first).asked(task_id)
    await TaskClient(first).update(task_id, {"who.1": said("Ada")})
    await first.endpoint.stop()
    async with second.running():
        client = TaskClient(second)
        await client.update(task_id, {"where.1": said("Rome")})
        await client.asks(task_id, "when.1")
        await client.update(task_id, {"when.1": said("Monday")})
        assert await client.text(task_id) == "Ada to Rome on Monday"


async def test_what_is_no_answer_is_asked_for_again_under_a_new_key(store: Any) -> None:
    ran: list[str] = []
    server = travel(store, ran)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
        await client.update(task_id, {"who.1": {"roots": []}, "where.1": said("Rome")})
        await client.asks(task_id, "who.2")
        assert ran == ["start"]
        await client.update(task_id, {"who.2": said("Ada")})
        await client.asks(task_id, "when.1")
        await client.update(task_id, {"when.1": said("Monday")})
        assert await client.text(task_id) == "Ada to Rome on Monday"


async def test_the_same_question_in_a_later_leg_has_a_new_key_and_its_answer_wins(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        if "word" not in ctx.input_responses or value(ctx, "word") != "please":
            return InputRequired({"word": form("the magic word?")})
        return value(ctx, "word")

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        assert set(await client.asked(task_id)) == {"word.1"}
        await client.update(task_id, {"word.1": said("now")})
        await client.asks(task_id, "word.2")
        await client.update(task_id, {"word.2": said("please")})
        assert await client.text(task_id) == "please"


async def test_one_that_only_wants_to_be_called_again_is(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        count = int(ctx.request_state or "0")
        return InputRequired(request_state=str(count + 1)) if count < 3 else f"called {count + 1} times"

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "called 4 times"


async def test_what_the_rounds_were_answered_goes_along_into_the_task(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> Any:
        if ctx.request_state is None:
            return InputRequired({"who": form("who?")}, "one")
        if ctx.request_state == "one":
            return InputRequired({"where": form("where?")}, "two")
        await ctx.background()
        if ctx.request_state == "two":
            return InputRequired({"when": form("when?")}, "three")
        return " ".join(value(ctx, key) for key in ("who", "where", "when"))

    async with server.running():
        client = TaskClient(server)
        first = (await client.ask("tool")).result
        second = (
            await client.ask("tool", requestState=first["requestState"], inputResponses={"who": said("Ada")})
        ).result
        retry = {"requestState": second["requestState"], "inputResponses": {"where": said("Rome")}}
        task_id = await client.start(**retry)
        assert await client.start(**retry) == task_id
        with pytest.raises(CallFailed, match="before, with other answers"):
            await client.ask(
                "tool", requestState=second["requestState"], inputResponses={"where": said("Oslo")}
            )
        assert set(await client.asked(task_id)) == {"when.1"}
        await client.update(task_id, {"when.1": said("Monday")})
        assert await client.text(task_id) == "Ada Rome Monday"


async def test_a_plain_function_can_ask_in_a_task(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    def tool(ctx: Context) -> Any:
        if "who" not in ctx.input_responses:
            return InputRequired({"who": form("who?")})
        return value(ctx, "who")

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: said("Ada")})
        assert await client.text(task_id) == "Ada"


async def test_steps_run_once_over_all_its_legs(store: Any) -> None:
    server = new_server(store)
    ran: list[str] = []

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        order = await ctx.step(lambda: ran.append("load") or "an order", key="load")
        if "sure" not in ctx.input_responses:
            return InputRequired({"sure": form(f"{order}?")})
        return f"{order}: {value(ctx, 'sure')}"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: said("yes")})
        assert await client.text(task_id) == "an order: yes"
    assert ran == ["load"]


async def test_what_it_says_in_a_later_leg_is_its_status(store: Any) -> None:
    server = new_server(store)
    go = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        if "sure" not in ctx.input_responses:
            return InputRequired({"sure": form("sure?")})
        await ctx.progress(1, 2, "half way")
        await go.wait()
        return "done"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: said("yes")})
        async with asyncio.timeout(10):
            while (await client.get(task_id)).get("statusMessage") != "half way (1/2)":
                await asyncio.sleep(0.005)
        go.set()
        assert await client.text(task_id) == "done"


async def test_what_the_client_cannot_answer_fails_the_task(store: Any) -> None:
    server = travel(store, [])
    capabilities = {key: WITH_TASKS[key] for key in WITH_TASKS if key != "elicitation"}
    async with server.running():
        client = TaskClient(server, capabilities=capabilities)
        task = await client.until(await client.start(), "failed")
    assert task["error"]["code"] == -32021


async def test_one_call_does_not_ask_in_both_ways(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        await ctx.elicit("sure?", bool, key="sure")
        return InputRequired({"who": form("who?")})

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        with caplog.at_level(logging.ERROR):
            await client.update(task_id, {key: {"action": "accept", "content": {"value": True}}})
            await client.until(task_id, "failed")
    assert "one call can do only one of them" in caplog.text


async def test_a_task_that_waits_is_cancelled_at_once(store: Any) -> None:
    ran: list[str] = []
    server = travel(store, ran)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
        await client.cancel(task_id)
        assert (await client.get(task_id))["status"] == "cancelled"
    assert ran == ["start"]


async def test_what_is_to_be_done_on_completion_waits_for_the_last_leg(store: Any) -> None:
    server = new_server(store)
    told: list[str] = []

    @server.tool(task="required")
    async def tool(ctx: Context) -> Any:
        ctx.on_complete(told.append, "completed")
        if "who" not in ctx.input_responses:
            return InputRequired({"who": form("who?")})
        return value(ctx, "who")

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        assert told == []
        await client.update(task_id, {key: said("Ada")})
        assert await client.text(task_id) == "Ada"
    assert told == ["completed"]


async def test_a_client_of_2025_is_asked_on_the_way_to_the_result(store: Any) -> None:
    server = travel(store, [])
    async with shaken(server, "2025-11-25") as (client, _):
        client.answers = [said("Ada"), said("Rome"), said("Monday")]
        task = (await client.result("tools/call", name="tool", arguments={}, task={}))["task"]
        result = await client.result("tasks/result", taskId=task["taskId"])
    assert [asked["params"]["message"] for asked in client.asked] == ["who?", "where?", "when, Ada?"]
    assert result["content"][0]["text"] == "Ada to Rome on Monday"
