"""Upstreams of a gateway that want its memory, its time or its log: nobody else is to notice them."""

import asyncio
import contextlib
import gc
import json
import logging
import tracemalloc
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from ekiden import Client, ClientLimits, Context, PendingCall, Server, ServerError
from ekiden.gateway import Upstream, forwarding, proxies
from ekiden.gateway import tasks as gateway_tasks
from ekiden.gateway.relay import Relay
from ekiden.gateway.tasks import SealedTasks
from ekiden.wire.json import JsonObject
from ekiden.wire.meta import RequestMeta
from ekiden.wire.modern import Request
from tests.gateway.in_front import elicit, in_front, listed, until
from tests.gateway.in_front import text as text_of
from tests.serving import VERSION, served

from .evil import STREAM, Deed, answers, evil, says, text

CAN = answers({"supportedVersions": [VERSION], "capabilities": {"tools": {"listChanged": True}}})
SCHEMA = {"type": "object"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def spelled(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_of_a_list_without_an_end_only_so_much_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    too_large = tool("large", description="x" * 300_000)
    many = [too_large, *(tool(f"bad{number}", title=5) for number in range(500))]
    many += [tool(f"t{number}") for number in range(4000)]
    async with (
        evil({"server/discover": CAN}, many) as server,
        in_front(_named(server.url)) as front,
        Client(front) as client,
    ):
        names = [each["name"] for each in (await listed(client))["tools"]]
    assert names == [f"e_t{number}" for number in range(2000 - 501)]
    assert len(spelled(caplog)) < 30


async def test_an_upstream_that_always_tells_of_changes_is_not_read_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxies, "_REST", 1e6, raising=False)
    told = 0

    async def tell(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        nonlocal told
        writer.write(STREAM)
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        change = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": about}
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"data: " + json.dumps(change).encode() + b"\n\n")
                await writer.drain()
                await asyncio.sleep(0.01)
                told += 1

    deeds: dict[str, Deed] = {"server/discover": CAN, "subscriptions/listen": tell}
    async with evil(deeds) as server, in_front(_named(server.url)):
        await until(lambda: told >= 60)
        lists = [each for each in server.messages if each["method"] == "tools/list"]
    assert len(lists) <= 2


async def test_what_an_upstream_says_cannot_steer_the_log_nor_fill_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = "\x1b[2J\x1b[31mred\nERROR root: forged\u202e" + "A" * 100_000
    error = {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32000, "message": words}}
    refuses = says(json.dumps(error).encode())
    deeds: dict[str, Deed] = {"server/discover": CAN, "tools/list": refuses}
    async with evil(deeds) as server, in_front(_named(server.url)):
        pass
    assert len(spelled(caplog)) == 1
    assert spelled(caplog)[0].isprintable()
    assert len(spelled(caplog)[0]) < 500


def _named(url: str) -> Upstream:
    return Upstream(name="e", target=url)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("https://me:SECRET@mcp.example:8443/SECRET/mcp?key=SECRET", "https://mcp.example:8443"),
        ("uvx server --token SECRET", "uvx"),
        (["uvx", "server", "--token", "SECRET"], "uvx"),
    ],
)
def test_the_log_names_an_upstream_without_its_secrets(target: Any, told: str) -> None:
    assert Upstream(name="u", target=target).address == told


class _Slow:
    """The context of a call whose client does not read yet."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.taken: list[object] = []

    async def log(self, level: str, data: object, *, logger: str | None) -> None:
        await self.reads.wait()
        self.taken.append(data)


async def test_log_messages_for_a_client_that_does_not_read_take_little_memory() -> None:
    slow = _Slow()
    relay = Relay(cast("Context[Any]", slow))
    for number in range(50):
        relay.log({"level": "error", "data": f"{number} " + "x" * 600_000})
        await asyncio.sleep(0)
    slow.reads.set()
    await relay.flush()
    assert [str(data).split()[0] for data in slow.taken] == ["0", "49"]


UNFINISHED = {
    "json": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n{"a":"',
    "event": STREAM + b'data: {"a":"',
}


class _Unfinished:
    """Begins to answer calls with 2 MB, and does not go on."""

    def __init__(self, kind: str) -> None:
        self._begins = UNFINISHED[kind] + b"x" * 2_000_000
        self.begun = 0

    async def __call__(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        writer.write(self._begins)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        self.begun += 1


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_what_comes_in_part_for_many_calls_is_bounded_together(kind: str) -> None:
    deeds: dict[str, Deed] = {
        "server/discover": CAN,
        "slow": _Unfinished(kind),
        "fast": answers(text("here")),
    }
    limits = ClientLimits(arriving_bytes=5_000_000)
    async with (
        evil(deeds, [tool("slow"), tool("fast")]) as server,
        in_front(_named(server.url), limits=limits) as front,
        Client(front) as client,
    ):
        calls = [asyncio.create_task(client.call_tool("e_slow", {"number": number})) for number in range(6)]
        await until(lambda: sum(call.done() for call in calls) == 4)
        assert all(isinstance(call.exception(), ServerError) for call in calls if call.done())
        await client.call_tool("e_fast", {})
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        again = asyncio.create_task(client.call_tool("e_slow", {}))
        assert await asyncio.wait({again}, timeout=0.2) == (set(), {again})  # There is room again.
        again.cancel()


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_what_came_for_a_call_that_was_given_up_is_freed_at_once(kind: str) -> None:
    slow = _Unfinished(kind)
    async with (
        evil({"server/discover": CAN, "slow": slow}, [tool("slow")]) as server,
        in_front(_named(server.url)) as front,
        Client(front) as client,
    ):

        async def give_up_some(most: int) -> None:
            while slow.begun < most:
                call, before = asyncio.create_task(client.call_tool("e_slow", {})), slow.begun
                await until(lambda: slow.begun > before)  # noqa: B023
                await asyncio.sleep(0.05)  # What was sent is on its way still.
                call.cancel()
                await asyncio.wait({call})

        await give_up_some(1)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await give_up_some(6)
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept < 4_000_000  # Over 10 MB, before.


async def test_states_of_tasks_that_an_upstream_tells_of_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_tasks, "_MOST_BYTES", 3_500)
    tell: dict[str, Callable[[JsonObject], None]] = {}

    class Silent:
        async def exchange(self, sent: Any) -> None:
            (inner,) = sent.params["notifications"]["taskIds"]
            tell[inner] = sent.hooks.notification
            await asyncio.Event().wait()

    told: list[str] = []
    ids: Any = type(
        "Ids", (), {"open": staticmethod(lambda name, _: name), "principal_of": staticmethod(lambda _: "")}
    )
    listener: Any = type("Listener", (), {"offer": staticmethod(lambda change: told.append(change.uri))})
    connector: Any = type("Connector", (), {"upstream": _named("http://127.0.0.1/")})
    connector.reach = AsyncMock(return_value=Silent())
    request = Request(
        1, "subscriptions/listen", {}, RequestMeta(VERSION, {}, None, None, None, {}), None, None
    )
    tasks = await SealedTasks(connector, cast("Any", None), ids).feeds(request, ["a", "b"])
    stops = {name: await feed.watch(name, listener, request) for name, feed in tasks.items()}
    await until(lambda: len(tell) == 2)

    def large(name: str, size: int) -> None:
        params = {"taskId": name, "statusMessage": "x" * size}
        tell[name]({"method": "notifications/tasks", "params": params})

    large("a", 2_000)
    large("b", 2_000)
    assert (told, await tasks["b"].news("b")) == (["a"], None)
    large("a", 100)
    large("b", 2_000)
    stops["b"]()
    large("a", 2_800)
    assert told == ["a", "a", "b", "a"]
    stops["a"]()


async def test_questions_that_wait_for_answers_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_MOST_ASKED", 6_500)
    upstream = Server("u")

    @upstream.tool
    async def ask(size: int, ctx: Context[Any]) -> str:
        return (await ctx.elicit("x" * size, bool)).action

    async with (
        served(upstream) as base,
        in_front(Upstream(name="u", target=f"{base}/mcp", mode="legacy")) as front,
        Client(front, elicit=elicit) as client,
    ):
        waiting = await client.start_tool("u_ask", {"size": 2_000})
        assert isinstance(waiting, PendingCall)
        refused = await client.call_tool("u_ask", {"size": 2_001})
        assert refused.is_error
        assert text_of(await client.call_tool("u_ask", {"size": 100})) == "accept"
        assert text_of(await client.resume(waiting)) == "accept"
        assert text_of(await client.call_tool("u_ask", {"size": 2_002})) == "accept"
