"""A server that runs by itself, in a process of its own."""

import signal
from contextlib import AsyncExitStack

from tests.serving import Spawned, call, post, raw_client, soon, spawned

SOURCE = """
import gc
import sys

from ekiden import Context, Server

server = Server("quiet", keys=[b"a key that is used for nothing else at all"])


@server.tool
async def confirm(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


@server.tool
async def collections() -> str:
    return str(sum(generation["collections"] for generation in gc.get_stats()))


server.run(port=int(sys.argv[1]), log_level="warning")
"""

TOGETHER = 32
WAVES = 20

ASKS = call("confirm", **{"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})


async def _collections(server: Spawned) -> int:
    response = await post(server.base, call("collections"))
    return int(response.json()["result"]["content"][0]["text"])


async def test_rounds_that_begin_together_do_not_set_off_the_garbage_collector() -> None:
    async with spawned(SOURCE, forked=False) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(server.base)) for _ in range(TOGETHER)]
        before = await _collections(server)
        for _ in range(WAVES):
            server.process.send_signal(signal.SIGSTOP)  # So that it gets all of them at the same time.
            for client in clients:
                await client.send(ASKS)
            server.process.send_signal(signal.SIGCONT)
            for client in clients:
                head = await client.read_until(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                assert b"input_required" in await soon(client.reader.readexactly(length))
        assert await _collections(server) - before <= 2
