"""One handler, and the tasks of every version that has them, over HTTP: 2026, 2025-11-25 and the draft."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, InvalidParams, Server, ToolError
from tests.acceptance.driving import PATIENCE, accept
from tests.acceptance.task_wire import EXTENSION, Message, Wire, on, replica, words
from tests.eras.old_client import EVERYTHING, OldClient, accepted, old_client, raw_client, request
from tests.requirements.marks import requirement
from tests.serving import served

NOVEMBER = "2025-11-25"
DRAFT = "2026-06-XX"
RELATED = "io.modelcontextprotocol/related-task"
FIELDS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


def tools(server: Server) -> None:
    @server.tool(task="optional")
    async def greet(ctx: Context) -> str:
        """Greet."""
        first = await ctx.elicit("First name?", str)
        last = await ctx.elicit("Last name?", str)
        return f"Hello, {first.data} {last.data}"

    @server.tool(task="required")
    async def must(ctx: Context) -> str:
        """Be a task."""
        return "was a task"

    @server.tool(task="deferred")
    async def later(ctx: Context) -> str:
        """Become a task."""
        await ctx.background()
        await ctx.sleep(3600)
        return "an hour later"

    @server.tool
    async def plain(ctx: Context) -> str:
        """Be none."""
        return "was none"

    @server.tool(task="optional")
    async def refuse(ctx: Context) -> str:
        """Fail as tools fail."""
        raise ToolError("closed today")

    @server.tool(task="optional")
    async def fault(ctx: Context) -> str:
        """Fail by the protocol."""
        raise InvalidParams("no such thing")


class Old:
    """A client with a handshake, for one principal."""

    def __init__(self, http: OldClient) -> None:
        self.http = http

    async def result(self, method: str, params: Message, *answers: Any) -> Message:
        response = await self.http.answered(request(method, params), *answers)
        assert "result" in response, response
        result: Message = response["result"]
        return result

    async def error(self, method: str, params: Message) -> Message:
        response = await self.http.answered(request(method, params))
        assert "error" in response, response
        error: Message = response["error"]
        return error

    async def start(self, tool: str, **task: Any) -> str:
        created = await self.result("tools/call", {"name": tool, "task": task})
        assert set(created) == {"task"}
        task_id: str = created["task"]["taskId"]
        return task_id

    async def until(self, task_id: str, status: str) -> Message:
        async with asyncio.timeout(PATIENCE):
            while (task := await self.result("tasks/get", {"taskId": task_id}))["status"] != status:
                await asyncio.sleep(0.01)
        return task


@asynccontextmanager
async def old(folder: Path, version: str = NOVEMBER, **options: Any) -> AsyncGenerator[Old, None]:
    """A server with the tools above, and a client of that version."""
    async with (
        served(on(folder / "tasks.db", tools, **options)) as base,
        old_client(base, version=version) as client,
    ):
        assert client.version == version
        yield Old(client)


def answering(*values: str) -> list[Callable[[Message], Message]]:
    return [lambda asked, value=value: accepted(asked["id"], value=value) for value in values]  # type: ignore[misc]


# 2025-11-25


async def test_november_is_told_what_can_be_a_task(tmp_path: Path) -> None:
    async with (
        served(on(tmp_path / "tasks.db", tools, principal=None)) as base,
        raw_client(base) as http,
    ):
        welcome = await http.open(NOVEMBER)
        assert welcome["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert EXTENSION not in welcome["capabilities"].get("extensions", {})
        listed = (await Old(http).result("tools/list", {}))["tools"]
        support = {tool["name"]: tool.get("execution", {}).get("taskSupport", "forbidden") for tool in listed}
        assert support == {
            "greet": "optional",
            "must": "required",
            "later": "optional",
            "plain": "forbidden",
            "refuse": "optional",
            "fault": "optional",
        }


async def test_november_asks_for_a_task_and_is_asked_while_it_waits_for_the_result(tmp_path: Path) -> None:
    async with old(tmp_path) as client:
        created = await client.result("tools/call", {"name": "greet", "task": {"ttl": 60_000}})
        assert set(created) == {"task"}
        task = created["task"]
        assert set(task) == FIELDS
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        waiting = await client.until(task["taskId"], "input_required")
        assert set(waiting) == FIELDS, "what is asked is not shown here"
        related = {RELATED: {"taskId": task["taskId"]}}
        said = await client.http.talk(
            request("tasks/result", {"taskId": task["taskId"]}), *answering("Ada", "Lovelace")
        )
        *asked, response = said
        assert [message["params"]["message"] for message in asked] == ["First name?", "Last name?"]
        assert {message["method"] for message in asked} == {"elicitation/create"}
        assert all(message["params"]["_meta"] == related for message in asked)
        assert response["result"]["content"] == [{"type": "text", "text": "Hello, Ada Lovelace"}]
        assert response["result"]["_meta"] == related
        assert set(await client.until(task["taskId"], "completed")) == FIELDS
        again = await client.result("tasks/result", {"taskId": task["taskId"]})
        assert again == response["result"], "the result can be fetched again, and nothing is asked again"


async def test_november_gets_from_a_task_exactly_what_the_call_would_have_given(tmp_path: Path) -> None:
    async with old(tmp_path) as client:
        refused = await client.start("refuse")
        result = await client.result("tasks/result", {"taskId": refused})
        assert result["isError"] is True
        assert result["content"] == [{"type": "text", "text": "closed today"}]
        faulty = await client.start("fault")
        plain = await client.error("tools/call", {"name": "fault"})
        assert await client.error("tasks/result", {"taskId": faulty}) == plain
        assert (await client.until(faulty, "failed"))["statusMessage"]


async def test_november_may_call_without_a_task_where_none_is_required(tmp_path: Path) -> None:
    async with old(tmp_path) as client:
        answered = await client.result("tools/call", {"name": "greet"}, *answering("Ada", "Lovelace"))
        assert answered["content"][0]["text"] == "Hello, Ada Lovelace"
        assert (await client.error("tools/call", {"name": "must"}))["code"] == -32601
        assert (await client.error("tools/call", {"name": "plain", "task": {}}))["code"] == -32601


async def test_novembers_cancellation_is_answered_with_the_cancelled_task(tmp_path: Path) -> None:
    async with old(tmp_path) as client:
        for tool in ("greet", "later"):
            task_id = await client.start(tool)
            cancelled = await client.result("tasks/cancel", {"taskId": task_id})
            assert set(cancelled) - {"statusMessage"} == FIELDS
            assert cancelled["status"] == "cancelled"
            assert (await client.error("tasks/cancel", {"taskId": task_id}))["code"] == -32602
            assert (await client.until(task_id, "cancelled"))["status"] == "cancelled"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_november_sees_no_task_that_is_not_its_own(tmp_path: Path, method: str) -> None:
    async with replica(tmp_path, tools) as wire, old_client(wire.base) as http:
        client = Old(http)  # Its name is "old".
        adas = await wire.start("greet")
        for unknown in (adas, "unknown"):
            assert (await client.error(method, {"taskId": unknown}))["code"] == -32602
        assert (await wire.get(adas))["status"] in {"working", "input_required"}


async def test_november_lists_all_of_its_own_tasks_page_by_page(tmp_path: Path) -> None:
    async with replica(tmp_path, tools) as wire, raw_client(wire.base) as http:
        welcome = await http.open(NOVEMBER)
        assert welcome["capabilities"]["tasks"]["list"] == {}
        client = Old(http)
        mine = [await client.start("later") for _ in range(3)]
        for _ in range(120):  # Newer than those, and somebody else's.
            await wire.start("must")
        mine += [await client.start("later") for _ in range(120)]
        found: list[str] = []
        cursor: Message = {}
        for _ in range(50):
            page = await client.result("tasks/list", cursor)
            assert all(set(task) - {"statusMessage"} == FIELDS for task in page["tasks"])
            found += [task["taskId"] for task in page["tasks"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sorted(found) == sorted(mine), "each once, and nobody else's"
        for wrong in ("made up", "", 7):
            assert (await client.error("tasks/list", {"cursor": wrong}))["code"] == -32602


async def test_nobody_lists_tasks_where_nobody_has_a_name(tmp_path: Path) -> None:
    async with old(tmp_path, principal=None) as client:
        assert (await client.error("tasks/list", {}))["code"] == -32601


@requirement("TASK-36")
async def test_the_extension_means_nothing_to_november(tmp_path: Path) -> None:
    """Nor does what came with it: `tasks/update`."""
    capabilities = {**EVERYTHING, "extensions": {EXTENSION: {}}}
    async with (
        served(on(tmp_path / "tasks.db", tools)) as base,
        old_client(base, version=NOVEMBER, capabilities=capabilities) as http,
    ):
        client = Old(http)
        answered = await client.result("tools/call", {"name": "greet"}, *answering("Ada", "Lovelace"))
        assert "taskId" not in answered
        task_id = await client.start("greet")
        error = await client.error("tasks/update", {"taskId": task_id, "inputResponses": {}})
        assert error["code"] == -32601


async def test_what_november_may_wish_for_is_checked(tmp_path: Path) -> None:
    async with old(tmp_path) as client:
        for wish in (7, "soon", {"ttl": "soon"}, {"ttl": -1}):
            assert (await client.error("tools/call", {"name": "must", "task": wish}))["code"] == -32602


# The draft


async def ask_and_answer(client: Old, task_id: str, value: str) -> None:
    """One round of the draft's persistent workflow."""
    await client.until(task_id, "input_required")
    related = {RELATED: {"taskId": task_id}}
    asked = await client.result("tasks/result", {"taskId": task_id})
    assert set(asked) == {"result_type", "inputRequests", "_meta"}
    assert asked["result_type"] == "incomplete"
    assert asked["_meta"] == related
    (key,) = asked["inputRequests"]
    params = {"inputResponses": {key: accept(value)}, "_meta": related}
    assert await client.result("tasks/input_response", params) == {"_meta": related}


async def test_the_draft_fetches_what_is_asked_and_answers_it(tmp_path: Path) -> None:
    async with old(tmp_path, DRAFT, experimental_protocol_version=DRAFT) as client:
        task_id = await client.start("greet", ttl=60_000)
        await ask_and_answer(client, task_id, "Ada")
        await ask_and_answer(client, task_id, "Lovelace")
        await client.until(task_id, "completed")
        result = await client.result("tasks/result", {"taskId": task_id})
        assert result["content"] == [{"type": "text", "text": "Hello, Ada Lovelace"}]
        assert result["_meta"] == {RELATED: {"taskId": task_id}}


async def test_the_draft_works_without_sessions(tmp_path: Path) -> None:
    server = on(
        tmp_path / "tasks.db",
        tools,
        principal=None,
        experimental_protocol_version=DRAFT,
        stateless_2025=True,
    )
    async with served(server) as base, raw_client(base) as http:
        http.version = DRAFT
        client = Old(http)
        task_id = await client.start("greet")
        await ask_and_answer(client, task_id, "Ada")
        await ask_and_answer(client, task_id, "Lovelace")
        await client.until(task_id, "completed")


async def test_the_draft_is_asked_again_for_what_does_not_fit(tmp_path: Path) -> None:
    async with old(tmp_path, DRAFT, experimental_protocol_version=DRAFT) as client:
        task_id = await client.start("greet")
        await client.until(task_id, "input_required")
        related = {RELATED: {"taskId": task_id}}
        (key,) = (await client.result("tasks/result", {"taskId": task_id}))["inputRequests"]
        wrong = {key: {"action": "accept", "content": {"not_requested_parameter": "x"}}}
        acknowledged = await client.result(
            "tasks/input_response", {"inputResponses": wrong, "_meta": related}
        )
        assert acknowledged == {"_meta": related}
        again = (await client.result("tasks/result", {"taskId": task_id}))["inputRequests"]
        assert [asked["params"]["message"] for asked in again.values()] == ["First name?"]
        assert set(again) != {key}, "a new question has a new key"


# One handler


async def test_the_same_handler_ends_alike_for_all_of_them(tmp_path: Path) -> None:
    async with (
        replica(tmp_path, tools, experimental_protocol_version=DRAFT) as wire,
        old_client(wire.base, version=NOVEMBER) as november,
        old_client(wire.base, version=DRAFT) as draft,
    ):
        ended = [
            await by_update(wire),
            await by_push(Old(november)),
            await by_input_response(Old(draft)),
        ]
        assert ended == ["Hello, Ada Lovelace"] * 3


async def by_update(wire: Wire) -> str:
    task_id = await wire.start("greet")
    for message, value in (("First name?", "Ada"), ("Last name?", "Lovelace")):
        task = await wire.until(
            task_id,
            lambda task, message=message: (  # type: ignore[misc]
                [asked["params"]["message"] for asked in task.get("inputRequests", {}).values()] == [message]
            ),
        )
        (key,) = task["inputRequests"]
        await wire.update(task_id, {key: accept(value)})
    return words(await wire.until(task_id, "completed"))


async def by_push(client: Old) -> str:
    task_id = await client.start("greet")
    result = await client.result("tasks/result", {"taskId": task_id}, *answering("Ada", "Lovelace"))
    return str(result["content"][0]["text"])


async def by_input_response(client: Old) -> str:
    task_id = await client.start("greet")
    await ask_and_answer(client, task_id, "Ada")
    await ask_and_answer(client, task_id, "Lovelace")
    await client.until(task_id, "completed")
    result = await client.result("tasks/result", {"taskId": task_id})
    return str(result["content"][0]["text"])
