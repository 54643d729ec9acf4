"""Tasks of clients with a handshake, from the same handlers: 2025-11-25, and the draft of the seeds."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Client, Context, InvalidParams, Server, TaskHandle
from ekiden.stores.memory import MemoryStore
from tests.acceptance.driving import served, soon
from tests.tasks.driving import new_server

RELATED = "io.modelcontextprotocol/related-task"


class Echo(BaseModel):
    input: str


class Old:
    """A client with a handshake, message by message; what it is asked is answered by `answers`."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        self.answers: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The response to a request."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self._channel.send(message)
        while True:
            reply: dict[str, Any] = await soon(self._channel.receive())
            if "method" not in reply:
                assert reply["id"] == self._number
                return reply
            if "id" in reply:
                self.asked.append(reply)
                answer = {"jsonrpc": "2.0", "id": reply["id"], "result": self.answers.pop(0)}
                await self._channel.send(answer)
            else:
                self.told.append(reply)

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        reply = await self.request(method, **params)
        assert "result" in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        reply = await self.request(method, **params)
        assert "error" in reply, reply
        error: dict[str, Any] = reply["error"]
        return error

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(15):
            while (task := await self.result("tasks/get", taskId=task_id))["status"] != status:
                await asyncio.sleep(0.005)
        return task


@asynccontextmanager
async def shaken(server: Server, version: str) -> AsyncGenerator[tuple[Old, dict[str, Any]], None]:
    """A client of that version, and what the server declared."""
    async with server.running(), server.connect() as channel:
        client = Old(channel)
        hello = await client.result(
            "initialize",
            protocolVersion=version,
            capabilities={"elicitation": {}},
            clientInfo={"name": "old", "version": "1"},
        )
        assert hello["protocolVersion"] == version
        await channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client, hello["capabilities"]


def echo_server(store: Any, **options: Any) -> Server:
    server = new_server(store, **options)

    @server.tool(task="optional")
    async def echo(ctx: Context) -> str:
        """Echo what the user says."""
        answer = await ctx.elicit("Please provide the input string to echo back", Echo, key="echo_input")
        return f"Echo: {answer.data.input if answer.action == 'accept' else 'nothing'}"

    @server.tool(task="required")
    async def must() -> str:
        raise InvalidParams("no")

    @server.tool(task="deferred")
    async def endless(ctx: Context) -> str:
        await ctx.background()
        await ctx.sleep(1000)
        return "never"

    @server.tool
    async def plain(ctx: Context) -> str:
        return "plain"

    return server


async def test_a_client_of_november_2025_asks_for_a_task_and_is_asked_while_it_waits(store: Any) -> None:
    async with shaken(echo_server(store), "2025-11-25") as (client, declared):
        assert declared["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        support = {name: tool.get("execution", {}).get("taskSupport") for name, tool in tools.items()}
        assert support == {"echo": "optional", "must": "required", "endless": "optional", "plain": None}
        created = await client.result("tools/call", name="echo", task={"ttl": 60000})
        assert set(created) == {"task"}
        task = created["task"]
        fields = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
        assert set(task) == fields
        assert (task["status"], task["ttl"]) == ("working", 60000)
        waiting = await client.until(task["taskId"], "input_required")
        assert set(waiting) == fields
        client.answers.append({"action": "accept", "content": {"input": "Hello World!"}})
        result = await client.result("tasks/result", taskId=task["taskId"])
        assert result["content"] == [{"type": "text", "text": "Echo: Hello World!"}]
        assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        (question,) = client.asked
        assert question["method"] == "elicitation/create"
        assert question["params"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        assert (await client.until(task["taskId"], "completed"))["ttl"] == 60000
        again = await client.result("tasks/result", taskId=task["taskId"])
        assert again == result
        assert len(client.asked) == 1


@pytest.mark.parametrize("ttl", [1e300, 86_400_001])
async def test_a_client_cannot_have_its_task_kept_for_longer_than_the_server_keeps_any(
    store: Any, ttl: float
) -> None:
    async with shaken(echo_server(store), "2025-11-25") as (client, _):
        created = await client.result("tools/call", name="endless", task={"ttl": ttl})
        assert created["task"]["ttl"] == 86_400_000


async def test_calls_without_a_task_go_on_as_calls(store: Any) -> None:
    async with shaken(echo_server(store), "2025-11-25") as (client, _):
        client.answers.append({"action": "accept", "content": {"input": "hi"}})
        result = await client.result("tools/call", name="echo")
        assert result["content"][0]["text"] == "Echo: hi"
        assert (await client.error("tools/call", name="must"))["code"] == -32601
        assert (await client.error("tools/call", name="plain", task={}))["code"] == -32601
        assert (await client.error("tools/call", name="echo", task={"ttl": "long"}))["code"] == -32602
        failed = await client.result("tools/call", name="must", task={})
        task_id = failed["task"]["taskId"]
        assert (await client.error("tasks/result", taskId=task_id)) == {"code": -32602, "message": "no"}
        assert (await client.until(task_id, "failed"))["status"] == "failed"


async def test_cancellation_is_answered_with_the_cancelled_task(store: Any) -> None:
    async with shaken(echo_server(store), "2025-11-25") as (client, _):
        created = await client.result("tools/call", name="endless", task={})
        task_id = created["task"]["taskId"]
        cancelled = await client.result("tasks/cancel", taskId=task_id)
        assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
        assert (await client.error("tasks/cancel", taskId=task_id))["code"] == -32602
        assert (await client.error("tasks/get", taskId="unknown"))["code"] == -32602
        assert (await client.error("tasks/update", taskId=task_id, inputResponses={}))["code"] == -32601
        assert (await client.error("tasks/list"))["code"] == -32601, "nobody knows whose tasks to list"


async def test_tasks_are_listed_for_who_has_a_name() -> None:
    store = MemoryStore()
    mine = echo_server(store, principal=lambda request: "me")
    other = echo_server(store, principal=lambda request: "you")
    async with shaken(mine, "2025-11-25") as (client, declared):
        assert declared["tasks"]["list"] == {}
        created = await client.result("tools/call", name="endless", task={})
        listed = await client.result("tasks/list")
        assert [task["taskId"] for task in listed["tasks"]] == [created["task"]["taskId"]]
    async with shaken(other, "2025-11-25") as (client, _):
        assert await client.result("tasks/list") == {"tasks": []}
        task_id = created["task"]["taskId"]
        assert (await client.error("tasks/get", taskId=task_id))["message"] == "Unknown task"


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_older_clients_know_nothing_of_tasks(version: str) -> None:
    async with shaken(echo_server(MemoryStore()), version) as (client, declared):
        assert "tasks" not in declared
        tools = (await client.result("tools/list"))["tools"]
        assert not any("execution" in tool for tool in tools)
        result = await client.result("tools/call", name="plain", task={})
        assert result["content"][0]["text"] == "plain"
        assert (await client.error("tasks/get", taskId="x"))["code"] == -32601


async def test_the_echo_task_of_the_draft_message_by_message(store: Any) -> None:
    """The persistent workflow of the seeds; ids, times and the words of the status are ours."""
    server = echo_server(store, experimental_protocol_version="2026-06-XX")
    async with shaken(server, "2026-06-XX") as (client, _):
        created = await client.result("tools/call", name="echo", task={"ttl": 60000})
        task_id = created["task"]["taskId"]
        task = await client.until(task_id, "input_required")
        assert set(task) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
        asked = await client.result("tasks/result", taskId=task_id)
        related = {RELATED: {"taskId": task_id}}
        ((key, request),) = asked["inputRequests"].items()
        assert asked == {"result_type": "incomplete", "inputRequests": {key: request}, "_meta": related}
        assert request == {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Please provide the input string to echo back",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            },
        }
        response = {"action": "accept", "content": {"input": "Hello World!"}}
        acknowledged = await client.result(
            "tasks/input_response", inputResponses={key: response}, _meta=related
        )
        assert acknowledged == {"_meta": related}
        await client.until(task_id, "completed")
        result = await client.result("tasks/result", taskId=task_id)
        assert result == {"content": [{"type": "text", "text": "Echo: Hello World!"}], "_meta": related}
        assert client.asked == [], "in the draft nothing is pushed"
        assert (await client.error("tasks/input_response", inputResponses={}))["code"] == -32602


# What a server tells by itself


STATUS = "notifications/tasks/status"


async def _told(client: Any, status: str) -> None:
    """Wait until the server has told by itself that a task has this status."""
    async with asyncio.timeout(15):
        while not client.told or client.told[-1]["params"]["status"] != status:
            await client.result("ping")


async def test_a_session_is_told_how_the_tasks_that_it_made_are_doing(store: Any) -> None:
    async with shaken(echo_server(store), "2025-11-25") as (client, _):
        task_id = (await client.result("tools/call", name="echo", task={}))["task"]["taskId"]
        await _told(client, "input_required")  # A state that has passed may not be told any more.
        client.answers.append({"action": "accept", "content": {"input": "hi"}})
        await client.result("tasks/result", taskId=task_id)
        final = await client.until(task_id, "completed")
        await _told(client, "completed")
    assert {told["method"] for told in client.told} == {STATUS}
    statuses = [told["params"]["status"] for told in client.told]
    assert statuses[0] in ("working", "input_required")
    assert statuses.index("input_required") < statuses.index("completed")
    assert client.told[-1]["params"] == final
    assert {told["params"]["taskId"] for told in client.told} == {task_id}


async def test_it_is_told_of_a_task_that_another_process_runs(store: Any) -> None:
    front, back = echo_server(store), echo_server(store)
    front.leave_tasks()
    async with back.running(), shaken(front, "2025-11-25") as (client, _):
        task_id = (await client.result("tools/call", name="must", task={}))["task"]["taskId"]
        async with asyncio.timeout(15):
            while not client.told or client.told[-1]["params"]["status"] != "failed":
                await client.result("ping")
                await asyncio.sleep(0.005)
    assert client.told[-1]["params"]["taskId"] == task_id
    assert client.told[-1]["params"]["statusMessage"] == "no"


async def test_nobody_is_told_of_the_tasks_of_others() -> None:
    server = echo_server(MemoryStore())
    async with shaken(server, "2025-11-25") as (mine, _), server.connect() as channel:
        other = Old(channel)
        await other.result(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "o", "version": "1"},
        )
        await channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        task_id = (await mine.result("tools/call", name="must", task={}))["task"]["taskId"]
        async with asyncio.timeout(15):
            while not mine.told or mine.told[-1]["params"]["status"] != "failed":
                await mine.result("ping")
        await other.until(task_id, "failed")
        for _ in range(5):
            await other.result("ping")
    assert other.told == []


async def test_what_has_ended_is_forgotten() -> None:
    server = echo_server(MemoryStore())
    tasks = server._rounds.tasks
    assert tasks is not None
    async with shaken(server, "2025-11-25") as (client, _):
        await client.result("tools/call", name="must", task={})
        async with asyncio.timeout(15):
            while not client.told or client.told[-1]["params"]["status"] != "failed":
                await client.result("ping")
        assert tasks._listeners == {}
        await client.result("tools/call", name="endless", task={})
        assert len(tasks._listeners) == 1
    assert tasks._listeners == {}


async def test_over_http_it_is_told_on_the_stream_of_the_session(store: Any) -> None:
    told: list[dict[str, Any]] = []
    async with served(echo_server(store)) as url, Client(url, mode="legacy") as client:
        client._connection.watchers.add(told.append)
        handle = await client.start_tool("must")
        assert isinstance(handle, TaskHandle)
        async with asyncio.timeout(15):
            while not told or told[-1]["params"]["status"] != "failed":
                await asyncio.sleep(0.005)
    assert told[-1]["method"] == STATUS
    assert told[-1]["params"]["taskId"] == handle.id


async def test_the_draft_does_not_know_it() -> None:
    server = echo_server(MemoryStore(), experimental_protocol_version="2026-06-XX")
    async with shaken(server, "2026-06-XX") as (client, _):
        task_id = (await client.result("tools/call", name="must", task={}))["task"]["taskId"]
        await client.until(task_id, "failed")
        for _ in range(5):
            await client.result("ping")
    assert client.told == []
