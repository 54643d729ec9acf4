"""A thousand idle subscriptions are cheap, and none of them is dropped without a word."""

import asyncio
import contextlib
import signal

import psutil

from tests.serving import PATIENCE, RawClient, call, post, raw_client, request, spawned

SERVER = """
import sys
from ekiden import Server

server = Server("s")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def change() -> str:
    server.add_tool(echo, name="another")
    server.remove_tool("another")
    return "changed"

server.run("http", port=int(sys.argv[1]), grace=10, log_level="warning")
"""

COUNT = 1000
MOST_BYTES_EACH = 30_000
"""15,000 bytes of RSS were measured for each (Python 3.11, uvloop); the bound is twice that."""


async def subscribe(client: RawClient, n: int) -> None:
    await client.send(
        request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id=n)
    )
    await client.read_until(b"subscriptions/acknowledged")


async def test_a_thousand_idle_subscriptions_are_cheap_and_end_gracefully() -> None:
    async with spawned(SERVER, forked=False) as server, contextlib.AsyncExitStack() as stack:
        process = psutil.Process(server.process.pid)
        clients = [await stack.enter_async_context(raw_client(server.base)) for _ in range(COUNT + 50)]
        for n, client in enumerate(clients[:50]):  # What the first ones cost is not what each one costs.
            await subscribe(client, n)
        await post(server.base, call("echo", {"text": "warm"}))
        before = process.memory_info().rss
        for n, client in enumerate(clients[50:], 50):
            await subscribe(client, n)
        each = (process.memory_info().rss - before) / COUNT
        print(f"\n{each:.0f} bytes of RSS for each subscription")
        assert each < MOST_BYTES_EACH

        async with asyncio.timeout(30):
            response = await post(server.base, call("echo", {"text": "still here"}))
        assert response.json()["result"]["content"][0]["text"] == "still here"

        await post(server.base, call("change"))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(client.read_until(b"tools/list_changed") for client in clients))

        server.process.send_signal(signal.SIGTERM)
        endings = await asyncio.gather(*(client.read_to_end() for client in clients))
        for n, ending in enumerate(endings):
            assert f'"id":{n},"result":{{"resultType":"complete"'.encode() in ending
            assert ending.endswith(b"0\r\n\r\n")
        await server.ended()
        assert b"Traceback" not in server.stderr
