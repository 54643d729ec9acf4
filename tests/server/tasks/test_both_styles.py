"""One handler that asks with `InputRequired`, goes into the background, and then asks with `ctx`."""

import asyncio
import logging
from typing import Any

import pytest

from ekiden import Context, InputRequired, Server
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed
from tests.server.tasks.test_input_required import form, said, value
from tests.server.tasks.test_legacy import shaken
from tests.tasks.driving import WITH_TASKS, TaskClient, new_server

YES = {"action": "accept", "content": {"value": True}}
WITHOUT_TASKS = {key: WITH_TASKS[key] for key in WITH_TASKS if key != "extensions"}


def orders(store: Any, ran: list[str], *, key: str = "sure") -> Server:
    """A server whose tool uses both styles, one after the other."""
    server = new_server(store)

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> InputRequired | str:
        ran.append("begun")
        if "who" not in ctx.input_responses:
            return InputRequired({"who": form("who?")}, "asked")
        who = value(ctx, "who")
        await ctx.background()
        paid = await ctx.step(pay, who)
        sure, colour = await asyncio.gather(
            ctx.elicit(f"sure, {who}?", bool, key=key), ctx.elicit("colour?", str, key="colour")
        )
        assert isinstance(sure.data, bool)
        return f"{paid}, {sure.data}, {colour.data}, {ctx.request_state}"

    def pay(who: str) -> str:
        ran.append("paid")
        return f"{who} paid"

    return server


def keys(requests: dict[str, Any]) -> set[str]:
    return set(requests)


async def test_a_manual_round_leads_to_a_task_that_asks_in_its_body(store: Any) -> None:
    ran: list[str] = []
    server = orders(store, ran)
    async with server.running():
        client = TaskClient(server)
        first = await client.ask("tool")
        assert first.result["inputRequests"] == {"who": form("who?")}
        created = await client.retry(first, {"who": said("Ada")})
        task_id = created.result["taskId"]
        asked = await client.asks(task_id, "sure.1", "colour.1")
        assert asked["sure.1"]["params"]["message"] == "sure, Ada?"
        await client.update(task_id, {"colour.1": said("red")})
        await client.asks(task_id, "sure.1")
        await client.update(task_id, {"sure.1": YES})
        assert await client.text(task_id) == "Ada paid, True, red, asked"
    assert ran.count("paid") == 1


async def test_another_process_goes_on_with_it(store: Any) -> None:
    ran: list[str] = []
    first, second = orders(store, ran), orders(store, ran)
    async with first.running():
        client = TaskClient(first)
        created = await client.retry(await client.ask("tool"), {"who": said("Ada")})
        task_id = created.result["taskId"]
        await client.asks(task_id, "sure.1", "colour.1")
    async with second.running():
        client = TaskClient(second)
        await client.update(task_id, {"colour.1": said("red"), "sure.1": YES})
        assert await client.text(task_id) == "Ada paid, True, red, asked"
    assert ran.count("paid") == 1


async def test_a_question_may_have_the_key_of_an_earlier_manual_one(store: Any) -> None:
    server = orders(store, [], key="who")
    async with server.running():
        client = TaskClient(server)
        created = await client.retry(await client.ask("tool"), {"who": said("Ada")})
        task_id = created.result["taskId"]
        await client.asks(task_id, "who.1", "colour.1")
        await client.update(task_id, {"who.1": YES, "colour.1": said("red")})
        assert await client.text(task_id) == "Ada paid, True, red, asked"


async def test_a_client_without_tasks_is_asked_by_rounds_all_the_way(store: Any) -> None:
    ran: list[str] = []
    server = orders(store, ran)
    async with server.running():
        client = TaskClient(server, capabilities=WITHOUT_TASKS)
        second = await client.retry(await client.ask("tool"), {"who": said("Ada")})
        assert keys(second.result["inputRequests"]) == {"sure", "colour"}
        third = await client.retry(second, {"colour": said("red")})
        assert keys(third.result["inputRequests"]) == {"sure"}
        fourth = await client.retry(third, {"sure": YES})
        assert fourth.result["content"][0]["text"] == "Ada paid, True, red, asked"
    assert ran.count("paid") == 1


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_a_client_of_2025_is_pushed_both(store: Any, version: str) -> None:
    async with shaken(orders(store, []), version) as (client, _):
        client.answers = [said("Ada"), YES, said("red")]
        result = await client.result("tools/call", name="tool", arguments={})
    assert result["content"][0]["text"] == "Ada paid, True, red, asked"


async def test_a_task_from_the_start_uses_both_within_itself(store: Any) -> None:
    ran: list[str] = []
    async with shaken(orders(store, ran, key="who"), "2025-11-25") as (client, _):
        client.answers = [said("Ada"), YES, said("red")]
        task = (await client.result("tools/call", name="tool", arguments={}, task={}))["task"]
        result = await client.result("tasks/result", taskId=task["taskId"])
    assert result["content"][0]["text"] == "Ada paid, True, red, asked"
    assert ran.count("paid") == 1


def back_and_forth(*, background: bool) -> Server:
    """A server whose tool changes its style, and then once more."""
    server = new_server(MemoryStore())

    @server.tool(task="deferred")
    async def tool(ctx: Context) -> Any:
        if "who" not in ctx.input_responses:
            return InputRequired({"who": form("who?")})
        if background:
            await ctx.background()
        await ctx.elicit("sure?", bool, key="sure")
        return InputRequired({"other": form("other?")})

    return server


async def test_without_background_between_them_both_styles_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = TaskClient(back_and_forth(background=False), capabilities=WITHOUT_TASKS)
    with caplog.at_level(logging.ERROR):
        ended = await client.retry(await client.ask("tool"), {"who": said("Ada")})
    assert ended.result["isError"]
    assert "unless `ctx.background()` lies between" in caplog.text


async def test_there_is_no_way_back_from_questions_in_the_body(caplog: pytest.LogCaptureFixture) -> None:
    client = TaskClient(back_and_forth(background=True), capabilities=WITHOUT_TASKS)
    second = await client.retry(await client.ask("tool"), {"who": said("Ada")})
    with caplog.at_level(logging.ERROR), pytest.raises(CallFailed, match="Internal error"):
        await client.retry(second, {"sure": YES})
    assert "`InputRequired` before it, questions with `ctx` after it" in caplog.text
