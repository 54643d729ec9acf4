"""`notifications/tasks` over `subscriptions/listen`, and the routing headers, on real HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from ekiden import Client, Context, Server
from tests.acceptance.driving import PATIENCE, headers_for, post, request, served
from tests.tasks.driving import REQUIRED, WITH_TASKS, TaskClient, accept, new_server

NOTIFICATION = "notifications/tasks"


@asynccontextmanager
async def listening(
    url: str, notifications: dict[str, Any], **meta: Any
) -> AsyncGenerator["asyncio.Queue[dict[str, Any]]", None]:
    """What a subscription brings, message by message."""
    message = request("subscriptions/listen", {"notifications": notifications}, "sub", WITH_TASKS, **meta)
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def read() -> None:
        async with (
            httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
            client.stream("POST", url, content=json.dumps(message), headers=headers_for(message)) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    heard.put_nowait(json.loads(line.removeprefix("data: ")))

    reading = asyncio.create_task(read())
    try:
        yield heard
    finally:
        reading.cancel()
        await asyncio.wait({reading})


async def following(heard: "asyncio.Queue[dict[str, Any]]", method: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        message = await heard.get()
    assert message["method"] == method, message
    params: dict[str, Any] = message["params"]
    assert params["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
    return params


def asking_server(store: Any, **options: Any) -> Server:
    server = new_server(store, **options)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await ctx.log("info", "about to ask")
        return str((await ctx.elicit("sure?", bool, key="sure")).data)

    return server


async def test_the_state_comes_after_the_acknowledgement_and_then_every_change(store: Any) -> None:
    """The subscription is held by one replica, and the task is answered at another."""
    one, other = asking_server(store), asking_server(store)
    async with served(one) as url, other.running():
        client = TaskClient(other)
        task_id = await client.start()
        await client.asked(task_id)
        async with listening(url, {"taskIds": [task_id, "unknown"]}) as heard:
            acknowledged = await following(heard, "notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == {"taskIds": [task_id]}
            first = await following(heard, NOTIFICATION)
            now = await client.get(task_id)
            told = {key: value for key, value in first.items() if key != "_meta"}
            assert told == {key: now[key] for key in now if key not in ("_meta", "resultType")}
            assert first["status"] == "input_required"
            assert list(first["inputRequests"]) == ["sure.1"]
            await client.update(task_id, {"sure.1": accept(True)})
            last = await following(heard, NOTIFICATION)
            while last["status"] != "completed":
                assert last["status"] == "working"
                last = await following(heard, NOTIFICATION)
            assert last["result"]["content"][0]["text"] == "True"
            await asyncio.sleep(0.05)
            assert heard.empty(), "no progress, no log, nothing twice"


async def test_tasks_of_others_are_dropped_from_the_acknowledgement(store: Any) -> None:
    server = asking_server(store, principal=lambda request: request.meta.fields.get("who"))
    async with served(server) as url:
        task_id = await TaskClient(server, meta={"who": "me"}).start()
        async with listening(url, {"taskIds": [task_id]}, who="you") as heard:
            acknowledged = await following(heard, "notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == {}
            await TaskClient(server, meta={"who": "me"}).cancel(task_id)
            await asyncio.sleep(0.1)
            assert heard.empty()


async def test_listening_needs_the_extension_and_a_list(store: Any) -> None:
    server = asking_server(store)
    async with served(server) as url:
        for notifications, capabilities, expected in (
            ({"taskIds": ["x"]}, {}, (-32021, REQUIRED)),
            ({"taskIds": "x"}, WITH_TASKS, (-32602, None)),
            ({"taskIds": [1]}, WITH_TASKS, (-32602, None)),
            ({"taskIds": ["x"] * 1001}, WITH_TASKS, (-32602, None)),
        ):
            message = request("subscriptions/listen", {"notifications": notifications}, 1, capabilities)
            error = (await post(url, message)).json()["error"]
            assert (error["code"], error.get("data")) == expected


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_routing_header_is_the_task_id_or_left_out(store: Any, method: str) -> None:
    server = asking_server(store)
    async with served(server) as url:
        task_id = await TaskClient(server).start()
        message = request(method, {"taskId": task_id, "inputResponses": {}}, 1, WITH_TASKS)
        wrong = await post(url, message, **{"mcp-name": "another"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -32020)
        other = await post(url, message, **{"mcp-name": task_id, "mcp-method": "tools/call"})
        assert (other.status_code, other.json()["error"]["code"]) == (400, -32020)
        for named in ({"mcp-name": task_id}, {}):
            good = await post(url, message, **named)
            assert (good.status_code, good.json()["result"]["resultType"]) == (200, "complete")


async def test_a_notification_leaves_a_large_result_out_and_the_client_fetches_it(store: Any) -> None:
    """Streams that nobody reads would each hold a copy."""
    server = new_server(store)
    go = asyncio.Event()

    @server.tool(task="required")
    async def tool(size: int) -> str:
        await go.wait()
        return "x" * size

    async with server.running(), served(server) as url:
        tasks = TaskClient(server)
        small = await tasks.start("tool", {"size": 10})
        large = await tasks.start("tool", {"size": 100_000})
        async with listening(url, {"taskIds": [small, large]}) as heard:
            await following(heard, "notifications/subscriptions/acknowledged")
            told: dict[str, dict[str, Any]] = {}
            while len(told) < 2:
                params = await following(heard, NOTIFICATION)
                if params["status"] == "completed":
                    told[params["taskId"]] = params
                else:
                    go.set()
        assert told[small]["result"]["content"][0]["text"] == "x" * 10
        assert "result" not in told[large]
        assert (await tasks.get(large))["result"]["content"][0]["text"] == "x" * 100_000
        go.clear()
        async with Client(url) as client:
            calling = asyncio.create_task(client.call_tool("tool", {"size": 100_000}))
            while len(await store.tasks.listing()) < 3:
                await asyncio.sleep(0.005)
            go.set()
            assert len((await calling).content[0].text) == 100_000
