"""The same handlers in ekiden's own server, in an `MCPServer` and in FastMCP: tasks of both eras."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from ekiden import Client
from tests.inside.callers import CALLERS
from tests.inside.processes import PATIENCE, HostProcesses
from tests.inside.test_rounds import said, text
from tests.serving import call, headers_for, post, request, soon

ALL = {
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
}
YES = {"action": "accept", "content": {"ok": True}}

with_our_client = pytest.mark.parametrize("caller", ["ours-2026", "ours-2025"])


async def until(host: HostProcesses, task_id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            task = (await said(host, request("tasks/get", {"taskId": task_id}, **ALL)))["result"]
            if task["status"] == status:
                return task  # type: ignore[no-any-return]
            assert task["status"] in ("working", "input_required"), task
            await asyncio.sleep(0.02)


@with_our_client
async def test_a_task_asks_and_ends(host: HostProcesses, caller: str) -> None:
    order = f"{caller}-parcel"
    async with CALLERS[caller](host[0].url) as client:
        result = await soon(client.call("parcel", order=order))
    assert text(result) == f"receipt of {order}, parcel of {order}: accept"
    assert client.asked == [f"Pack {order}?"]
    assert host.effects(order) == {"charge": 1, "pack": 1}


@with_our_client
async def test_a_call_that_asked_goes_on_in_the_background(host: HostProcesses, caller: str) -> None:
    order = f"{caller}-later"
    async with CALLERS[caller](host[0].url) as client:
        assert text(await soon(client.call("later", order=order))) == f"receipt of {order}: accept"
    assert host.effects(order) == {"charge": 1}


async def test_a_client_without_tasks_is_told_that_a_tool_needs_them(host: HostProcesses) -> None:
    refused = (await said(host, call("slowly", {"order": "never"})))["error"]
    assert (refused["code"], host.effects("never")) == (-32021, {})


async def test_tasks_are_declared(host: HostProcesses) -> None:
    found = (await said(host, request("server/discover")))["result"]
    assert "io.modelcontextprotocol/tasks" in found["capabilities"]["extensions"]
    async with Client(host[0].url, mode="legacy") as client:
        assert client.session.capabilities["tasks"]["requests"] == {"tools": {"call": {}}}


async def test_the_methods_of_tasks_are_those_of_the_extension(host: HostProcesses) -> None:
    created = (await said(host, call("parcel", {"order": "wire"}, **ALL)))["result"]
    assert created["resultType"] == "task"
    waiting = await until(host, created["taskId"], "input_required")
    ((key, question),) = waiting["inputRequests"].items()
    assert question["params"]["message"] == "Pack wire?"
    update = {"taskId": created["taskId"], "inputResponses": {key: YES}}
    acknowledged = (await said(host, request("tasks/update", update, **ALL)))["result"]
    assert acknowledged["resultType"] == "complete"
    done = await until(host, created["taskId"], "completed")
    assert text(done["result"]) == "receipt of wire, parcel of wire: accept"


async def test_a_task_can_be_cancelled(host: HostProcesses) -> None:
    created = (await said(host, call("parcel", {"order": "cancelled"}, **ALL)))["result"]
    await until(host, created["taskId"], "input_required")
    await said(host, request("tasks/cancel", {"taskId": created["taskId"]}, **ALL))
    await until(host, created["taskId"], "cancelled")
    assert host.effects("cancelled") == {"charge": 1}


async def test_an_unknown_task_and_a_client_without_tasks_are_refused(host: HostProcesses) -> None:
    unknown = await said(host, request("tasks/get", {"taskId": "0" * 32}, **ALL))
    undeclared = await said(host, request("tasks/get", {"taskId": "0" * 32}))
    assert (unknown["error"]["code"], undeclared["error"]["code"]) == (-32602, -32021)


@contextlib.asynccontextmanager
async def listening(host: HostProcesses, filters: dict[str, Any]) -> AsyncGenerator[Any, None]:
    """The messages of a subscription, as they come."""
    message = request("subscriptions/listen", {"notifications": filters}, request_id="sub", **ALL)
    client = httpx2.AsyncClient(timeout=PATIENCE, trust_env=False)
    async with (
        client,
        client.stream("POST", host[0].url, json=message, headers=headers_for(message)) as response,
    ):
        assert response.status_code == 200, await response.aread()
        lines = response.aiter_lines()

        async def following() -> dict[str, Any]:
            async for line in lines:
                if line.startswith("data: "):
                    return json.loads(line.removeprefix("data: "))  # type: ignore[no-any-return]
            raise AssertionError("the stream has ended")

        yield following


async def test_the_changes_of_a_task_are_told_to_who_listens(host: HostProcesses) -> None:
    created = (await said(host, call("parcel", {"order": "heard"}, **ALL)))["result"]
    task_id = created["taskId"]
    wanted = {"taskIds": [task_id, "0" * 32], "toolsListChanged": True}
    async with listening(host, wanted) as following:
        acknowledged = await soon(following())
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        granted = acknowledged["params"]["notifications"]
        assert granted["taskIds"] == [task_id], "the task of somebody else does not exist"
        waiting = await until(host, task_id, "input_required")
        update = {"taskId": task_id, "inputResponses": dict.fromkeys(waiting["inputRequests"], YES)}
        await post(host[0].base, request("tasks/update", update, **ALL))
        heard: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while "completed" not in heard:
                told = await following()
                assert told["method"] == "notifications/tasks"
                assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}
                heard.append(told["params"]["status"])
    assert heard[-1] == "completed"


async def test_a_session_of_2025_is_told_how_its_task_is_doing(host: HostProcesses) -> None:
    """Read from the session's own stream, which the client opens with GET."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, headers=headers) as client:

        async def send(method: str, params: dict[str, Any], number: int | None) -> httpx2.Response:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            return await client.post(
                host[0].url, json=message if number is None else {**message, "id": number}
            )

        opened = await send("initialize", hello, 1)
        client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = "2025-11-25"
        await send("notifications/initialized", {}, None)
        async with client.stream("GET", host[0].url, headers={"accept": "text/event-stream"}) as stream:
            params = {"name": "slowly", "arguments": {"order": "told"}, "task": {"ttl": 60_000}}
            created = await send("tools/call", params, 2)
            assert '"task":' in created.text.replace(" ", "")
            statuses: list[str] = []
            async with asyncio.timeout(PATIENCE):
                async for line in stream.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    told = json.loads(line.removeprefix("data: "))
                    if told.get("method") == "notifications/tasks/status":
                        statuses.append(told["params"]["status"])
                        if statuses[-1] == "completed":
                            break
        assert statuses[-1] == "completed"
        result = await send("tasks/list", {}, 3)
        assert "-32601" in result.text, "without principals it would list everybody's tasks"
