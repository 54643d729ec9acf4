"""What an answered request leaves behind: nothing that only the garbage collector could remove."""

import asyncio
import contextlib
import gc
import json
import logging
import weakref
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from ekiden import Context, Server, ToolError
from ekiden.errors import InvalidParams
from ekiden.rounds.pushing import Push
from ekiden.server.rounds import parked
from ekiden.server.rounds.call import Call
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.run import Run
from ekiden.transports.server.http1.exchange import Exchange
from ekiden.transports.server.reply import Attendant
from tests.serving import PATIENCE, call, headers_for, post, post_raw, request, served


async def test_a_call_that_took_some_time_is_forgotten_without_the_garbage_collector() -> None:
    server = Server("s", version="1")
    attending: list[weakref.ref[Attendant]] = []

    @server.tool
    async def slow(text: str) -> str:
        """Take long enough to be watched."""
        await asyncio.sleep(0.1)
        attending.extend(weakref.ref(each) for each in gc.get_objects() if type(each) is Attendant)
        return text[:1]

    message = call("slow", {"text": "x" * 300_000})
    async with served(server) as base:
        gc.collect()
        gc.disable()
        try:
            answer = await post_raw(base, json.dumps(message).encode(), headers_for(message))
            await asyncio.sleep(0.1)
            left = [each() for each in attending if each() is not None]
        finally:
            gc.enable()
    assert answer.status_code == 200
    assert attending
    assert left == []


# Requests that fail


async def _fails() -> str:
    raise ValueError("a step fails")


def _failing() -> Server:
    server = Server("s", version="1", keys=[b"k" * 32], store=MemoryStore())

    @server.tool
    async def raises(ctx: Context, text: str) -> str:
        """Fail."""
        raise ValueError(text[:1])

    @server.tool
    def raises_in_a_thread(text: str) -> str:
        """Fail in a thread."""
        raise ValueError(text[:1])

    @server.tool
    async def says_why(ctx: Context, text: str) -> str:
        """Fail with a reason."""
        raise ToolError(text[:1])

    @server.tool
    async def refuses(ctx: Context, text: str) -> str:
        """Fail with an error of the protocol."""
        raise InvalidParams(text[:1])

    @server.tool
    async def refuses_plainly(text: str) -> str:
        """Fail with an error of the protocol, without a context."""
        raise InvalidParams(text[:1])

    @server.tool
    async def asks(ctx: Context, text: str) -> str:
        """Ask a client that cannot be asked."""
        await ctx.elicit(text[:1], bool)
        return ""

    @server.tool
    async def steps(ctx: Context, text: str) -> str:
        """Fail in steps side by side."""
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(_fails, key="a"))
            group.create_task(ctx.step(_fails, key="b"))
        return text[:1]

    _add_more(server)
    return server


def _add_more(server: Server) -> None:
    @server.tool(timeout=0.01)
    async def is_late(text: str) -> str:
        """Take too long."""
        await asyncio.sleep(PATIENCE)
        return text[:1]

    @server.tool(task="optional")
    async def becomes_a_task(ctx: Context, text: str) -> str:
        """Fail, perhaps as a task."""
        raise ValueError(text[:1])

    @server.prompt
    async def prompts(ctx: Context, text: str) -> str:
        """Fail."""
        raise ValueError(text[:1])

    @server.resource("x://{name}")
    async def reads(name: str) -> str:
        """Fail."""
        raise ValueError(name)


_HELD = (Call, Exchange, Push, Run)
"""All that holds what a request has sent is held by one of these, or holds one."""


def _held() -> int:
    return sum(type(each) in _HELD for each in gc.get_objects())


@contextlib.asynccontextmanager
async def _leaves_nothing() -> AsyncGenerator[None, None]:
    """After the block the objects of its requests are gone, although no garbage is collected."""
    gc.collect()
    before = _held()
    gc.disable()
    try:
        yield
        async with asyncio.timeout(PATIENCE):
            while _held() > before:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


@pytest.fixture
def unlogged() -> Generator[None, None, None]:
    """Log nothing: pytest keeps what is logged, with the frames of exceptions."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


_TOOLS = (
    *("raises", "raises_in_a_thread", "says_why", "refuses", "refuses_plainly", "asks", "steps", "is_late"),
    *("becomes_a_task", "is_not_there"),
)
_TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@pytest.mark.parametrize(
    "message",
    [
        *(pytest.param(call(name, {"text": "x" * 3000}), id=name) for name in _TOOLS),
        pytest.param(call("becomes_a_task", {"text": "x" * 3000}, **_TASKS), id="a task"),
        pytest.param(request("prompts/get", {"name": "prompts", "arguments": {"text": "x"}}), id="a prompt"),
        pytest.param(request("resources/read", {"uri": "x://a"}), id="a resource"),
    ],
)
@pytest.mark.usefixtures("unlogged")
async def test_a_request_that_fails_is_forgotten_without_the_garbage_collector(message: Any) -> None:
    async with served(_failing()) as base:
        body, headers = json.dumps(message).encode(), headers_for(message)
        await post_raw(base, body, headers)  # What is made once is made.
        async with _leaves_nothing():
            await post_raw(base, body, headers)


@pytest.mark.parametrize("name", _TOOLS)
@pytest.mark.usefixtures("unlogged")
async def test_so_is_a_call_of_2025_that_fails(name: str) -> None:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    asked = {"name": name, "arguments": {"text": "x" * 3000}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with served(_failing()) as base:
        opened = await post_raw(base, json.dumps(hello).encode(), headers)
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        await post_raw(base, body, headers)
        async with _leaves_nothing():
            await post_raw(base, body, headers)


def _slow() -> Server:
    server = Server("s", version="1", keys=[b"k" * 32])

    @server.tool
    async def plain(text: str) -> str:
        """Take long."""
        await asyncio.sleep(PATIENCE)
        return text

    @server.tool
    async def with_context(ctx: Context, text: str) -> str:
        """Take long, and be able to ask."""
        await asyncio.sleep(PATIENCE)
        return text

    @server.tool
    async def sleeps(ctx: Context, text: str) -> str:
        """Take long in an effect."""
        await ctx.sleep(PATIENCE)
        return text

    @server.tool
    async def in_branches(ctx: Context, text: str) -> str:
        """Take long in branches."""
        await asyncio.gather(asyncio.sleep(PATIENCE), ctx.sleep(PATIENCE))
        return text

    @server.prompt
    async def prompt(text: str) -> str:
        """Take long."""
        await asyncio.sleep(PATIENCE)
        return text

    return server


_LEFT = [
    *(call(name, {"text": "x" * 3000}) for name in ("plain", "with_context", "sleeps", "in_branches")),
    request("prompts/get", {"name": "prompt", "arguments": {"text": "x" * 3000}}),
]


@pytest.mark.parametrize("message", _LEFT, ids=lambda message: message["params"]["name"])
async def test_a_call_that_its_client_has_left_is_forgotten_too(message: Any) -> None:
    async def leave(base: str) -> None:
        before = _held()
        calling = asyncio.create_task(post(base, message))
        async with asyncio.timeout(PATIENCE):
            while _held() <= before:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # It waits by now, and its client is watched.
        calling.cancel()
        await asyncio.wait({calling})

    async with served(_slow()) as base:
        await leave(base)
        async with _leaves_nothing():
            await leave(base)


async def test_a_parked_call_that_is_given_up_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "_MOST_BYTES", 10_000)
    server = Server("s", version="1", keys=[b"k" * 32])

    @server.tool(resume="parked")
    async def ask(ctx: Context, text: str) -> str:
        """Ask, and keep the text meanwhile."""
        await ctx.elicit("Go?", bool)
        return text[:1]

    asking: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    message = call("ask", {"text": "x" * 20_000}, **asking)
    async with served(server) as base:
        body, headers = json.dumps(message).encode(), headers_for(message)
        await post_raw(base, body, headers)
        async with _leaves_nothing():
            refused = await post_raw(base, body, headers)
    assert "Too many calls" in refused.json()["error"]["message"]


async def test_what_the_clients_of_parked_calls_have_sent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "_MOST_BYTES", 100_000)
    server = Server("s", version="1", keys=[b"k" * 32])

    @server.tool(resume="parked")
    async def ask(ctx: Context, text: str) -> str:
        """Ask twice, and keep all of it meanwhile."""
        await ctx.elicit("Go?", str)
        await ctx.elicit("Really?", bool)
        return text[:1]

    asking: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(server) as base:
        answers = [(await post(base, call("ask", {"text": "x" * 30_000}, **asking))).json() for _ in range(5)]
        assert ["result" in each for each in answers] == [True, True, True, False, False]
        result = answers[0]["result"]
        (key,) = result["inputRequests"]
        said = call("ask", {"text": "x" * 30_000}, **asking)
        long = {key: {"action": "accept", "content": {"value": "y" * 80_000}}}
        said["params"] |= {"requestState": result["requestState"], "inputResponses": long}
        refused = (await post(base, said)).json()
        small = (await post(base, call("ask", {"text": "x"}, **asking))).json()
    assert "Too many calls" in refused["error"]["message"]  # An answer counts as arguments do.
    assert "result" in small


async def test_what_was_answered_in_earlier_rounds_counts_while_its_call_is_parked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parked, "_MOST_BYTES", 100_000)
    server = Server("s", version="1", keys=[b"k" * 32])

    @server.tool(resume="parked")
    async def ask(ctx: Context, text: str) -> str:
        """Ask three times, and keep all of it meanwhile."""
        for question in ("One?", "Two?", "Three?"):
            await ctx.elicit(question, str)
        return text

    asking: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(server) as base:
        result = (await post(base, call("ask", {"text": "x"}, **asking))).json()["result"]
        for size in (40_000, 1):
            (key,) = result["inputRequests"]
            said = call("ask", {"text": "x"}, **asking)
            answer = {key: {"action": "accept", "content": {"value": "y" * size}}}
            said["params"] |= {"requestState": result["requestState"], "inputResponses": answer}
            result = (await post(base, said)).json()["result"]
        refused = (await post(base, call("ask", {"text": "x" * 70_000}, **asking))).json()
        small = (await post(base, call("ask", {"text": "x" * 40_000}, **asking))).json()
    assert "Too many calls" in refused["error"]["message"]
    assert "result" in small
