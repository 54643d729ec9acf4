"""Changes as an async iterator, which outlives the connection that it began on."""

import asyncio
import json
from typing import Any

import pytest

from ekiden import Client, Server, TransportError
from ekiden.client import listening
from tests.hostile.evil import STREAM, Message, breaks_off, evil
from tests.serving import served, soon


def make_server() -> Server:
    server = Server("s")

    @server.tool
    async def early() -> str:
        """Be there."""
        return "here"

    @server.resource("a://b")
    async def resource() -> str:
        """A resource."""
        return "content"

    return server


@pytest.mark.parametrize("way", ["memory", "http"])
async def test_the_wanted_changes_come_and_no_others(way: str) -> None:
    server = make_server()
    async with served(server) as base, Client(server if way == "memory" else f"{base}/mcp") as client:
        changes = client.listen(uris=("a://b",), tools=True)
        first = asyncio.ensure_future(anext(changes))
        await acknowledged(client)
        server.resource_updated("a://other")
        server.resource_updated("a://b")
        assert (await soon(first))["params"]["uri"] == "a://b"

        @server.tool
        async def late() -> str:
            """Come late."""
            return "here"

        assert (await soon(anext(changes)))["method"] == "notifications/tools/list_changed"
        await changes.aclose()


async def acknowledged(client: Client) -> None:
    """Let the subscription be opened: a request that is sent after it is answered after it."""
    for _ in range(5):
        await client.list_resources()
        await asyncio.sleep(0.02)


def told(message: Message, uri: str) -> bytes:
    meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
    params = {"uri": uri, "_meta": meta}
    note = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}
    return b"data: " + json.dumps(note).encode() + b"\n\n"


async def test_a_subscription_that_is_lost_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_FIRST_DELAY", 0.01)
    numbers = iter(range(10))

    async def listen(writer: asyncio.StreamWriter, message: Message) -> None:
        number = next(numbers)
        if number == 3:  # The server ends it in order.
            body = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete"}}
            return await breaks_off(STREAM + b"data: " + json.dumps(body).encode() + b"\n\n")(writer, message)
        return await breaks_off(b"" if number == 1 else STREAM + told(message, f"a://{number}"))(
            writer, message
        )

    async with evil({"subscriptions/listen": listen}) as server, Client(server.url) as client:
        heard = [change["params"]["uri"] async for change in client.listen(uris=("a://0", "a://2"))]
        assert heard == ["a://0", "a://2"]
        asked = [
            m["params"]["notifications"] for m in server.messages if m["method"] == "subscriptions/listen"
        ]
        assert asked == [{"resourceSubscriptions": ["a://0", "a://2"]}] * 4


async def test_a_loss_is_told_if_nobody_wants_it_mended() -> None:
    async with evil({"subscriptions/listen": breaks_off(STREAM)}) as server, Client(server.url) as client:
        with pytest.raises(TransportError):
            await soon(anext(client.listen(tools=True, reconnect=False)))


async def test_leaving_the_loop_ends_the_subscription() -> None:
    async def listen(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(STREAM + told(message, "a://b"))
        await writer.drain()
        await writer.wait_closed()

    async with evil({"subscriptions/listen": listen}) as server, Client(server.url) as client:
        changes: Any = client.listen(uris=("a://b",))
        assert (await soon(anext(changes)))["params"]["uri"] == "a://b"
        await changes.aclose()
        assert [task for task in asyncio.all_tasks() if "hold" in repr(task.get_coro())] == []


async def test_a_listener_that_is_cancelled_leaves_nothing_behind() -> None:
    async def listen(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(STREAM + told(message, "a://b"))
        await writer.drain()
        await writer.wait_closed()

    async with evil({"subscriptions/listen": listen}) as server, Client(server.url) as client:
        heard = asyncio.Event()

        async def listening() -> None:
            async for _ in client.listen(uris=("a://b",)):
                heard.set()

        before = asyncio.all_tasks()
        task = asyncio.create_task(listening())
        await soon(heard.wait())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0.01)
        left = [repr(task.get_coro()) for task in asyncio.all_tasks() - before]
        assert [coroutine for coroutine in left if "Evil.serve" not in coroutine] == []
