"""Functions of the author that raise `CancelledError` or `SystemExit` although nobody cancelled the request.

They await a task that somebody cancelled, or call `sys.exit()`. The client gets an answer all the same, on
every wire; without one it would wait for ever.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ekiden import CallNext, Outcome, Outgoing, Request, SendOn, Server
from ekiden.transports.server.http1.exchange import Exchange
from ekiden.transports.server.reply import Reply
from ekiden.wire.incoming import Incoming
from tests.eras.old_client import hello, old_client
from tests.eras.old_client import request as old_request
from tests.serving import ask, post, request, served, soon

RAISED = (asyncio.CancelledError, SystemExit)
CALLS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "tool": ("tools/call", {"name": "tool", "arguments": {}}),
    "prompt": ("prompts/get", {"name": "prompt"}),
    "resource": ("resources/read", {"uri": "a://b"}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "word", "value": ""}},
    ),
    "middleware": ("tools/list", {}),
    "outgoing": ("tools/list", {}),
    "lifespan": ("tools/list", {}),
}
"""Who raises, and the request that makes it do so."""


def raising(who: str, error: type[BaseException]) -> Server:
    """A server of which one function raises."""

    def may_raise(name: str) -> None:
        if name == who:
            raise error

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None, None]:
        may_raise("lifespan")
        yield

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def tool() -> str:
        may_raise("tool")
        return "called"

    @server.prompt
    async def prompt(word: str = "") -> str:
        may_raise("prompt")
        return "got"

    @server.resource("a://b")
    async def resource() -> str:
        may_raise("resource")
        return "read"

    @server.completion(prompt="prompt", argument="word")
    async def complete(value: str) -> list[str]:
        may_raise("completion")
        return []

    watch(server, who, may_raise)
    return server


def watch(server: Server, who: str, may_raise: Callable[[str], None]) -> None:
    """Add functions that see what comes in and what goes out."""

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        if request.method == CALLS[who][0]:
            may_raise("middleware")
        return await call_next(request)

    @server.outgoing
    async def outgoing(message: Outgoing, send: SendOn) -> None:
        if message.method == CALLS[who][0]:
            may_raise("outgoing")
        await send(message)


def is_failure(response: Mapping[str, Any]) -> bool:
    return "error" in response or response["result"].get("isError") is True


INSIDE = [(who, error) for who in CALLS for error in RAISED if who != "lifespan"]
"""A lifespan is entered before a transport listens: its own test is below."""


@pytest.mark.parametrize(("who", "error"), INSIDE)
async def test_in_memory_there_is_an_answer(who: str, error: type[BaseException]) -> None:
    assert is_failure(await ask(raising(who, error), *CALLS[who]))


@pytest.mark.parametrize(("who", "error"), INSIDE)
async def test_in_memory_a_client_of_2025_gets_an_answer(who: str, error: type[BaseException]) -> None:
    async with raising(who, error).connect() as channel:
        await channel.send(hello())
        await soon(channel.receive())
        await channel.send(old_request(*CALLS[who]))
        assert is_failure(await soon(channel.receive()))


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize(("who", "error"), INSIDE)
async def test_over_http_there_is_an_answer(who: str, error: type[BaseException], mounted: bool) -> None:
    async with served(raising(who, error), mounted=mounted) as base:
        assert is_failure((await post(base, request(*CALLS[who]))).json())


@pytest.mark.parametrize(("who", "error"), INSIDE)
async def test_over_http_a_client_of_2025_gets_an_answer(who: str, error: type[BaseException]) -> None:
    async with served(raising(who, error)) as base, old_client(base) as client:
        assert is_failure(await client.ask(*CALLS[who]))


@pytest.mark.parametrize("error", RAISED)
async def test_a_refused_handshake_is_answered(error: type[BaseException]) -> None:
    server = Server("s")

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        raise error

    async with server.connect() as channel:
        await channel.send(hello())
        assert is_failure(await soon(channel.receive()))


async def test_a_lifespan_that_raises_it_fails_as_any_other() -> None:
    with pytest.raises(RuntimeError, match="lifespan raised CancelledError"):
        await soon(ask(raising("lifespan", asyncio.CancelledError), *CALLS["lifespan"]))


async def test_the_status_of_a_client_that_left_can_be_sent_on_our_connection() -> None:
    written: list[bytes] = []

    class Carrier:
        loop = asyncio.get_running_loop()
        transport: Any
        writable = None

        def __init__(self) -> None:
            self.transport = self

        def write(self, data: bytes) -> None:
            written.append(data)

        def common_headers(self) -> bytes:
            return b""

    exchange = Exchange(Carrier(), Incoming("POST", "/mcp", {}, None, b""), keep_alive=True)
    await Reply(exchange.send, {}, 1.0).to_nobody()
    assert b"".join(written).startswith(b"HTTP/1.1 499 ")
