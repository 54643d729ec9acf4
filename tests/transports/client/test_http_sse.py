"""Servers with HTTP+SSE, the transport of 2024-11-05, and nothing else."""

import asyncio
import gc
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ekiden import Client, TransportError
from ekiden.errors import HttpRefused
from tests.serving import PATIENCE, served, soon

VERSION = "2024-11-05"
HELLO = {
    "protocolVersion": VERSION,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "first", "version": "1"},
}


class FirstServer:
    """Answers on the stream what is POSTed; keeps all that it hears in `heard`."""

    def __init__(
        self, endpoint: str = "/messages?session=7", *, asks_at_once: bool = False, opening: str = ""
    ) -> None:
        self._asks_at_once = asks_at_once
        self._opening = opening
        self.told: Any = None
        self.heard: list[dict[str, Any]] = []
        self.credentials: set[str | None] = set()
        self.left = asyncio.Event()
        self._endpoint = endpoint
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(100)
        self.app = Starlette(
            routes=[
                Route("/sse", self._get, methods=["GET"]),
                Route("/messages", self._post, methods=["POST"]),
            ]
        )

    async def _get(self, request: Request) -> Response:
        self.credentials.add(request.headers.get("authorization"))
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        try:
            if self._opening:
                yield self._opening
            yield f"event: endpoint\ndata: {self._endpoint}\n\n: still there\n\n"
            while (message := await self._said.get()) is not None:
                yield f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"
        finally:
            self.left.set()

    async def _post(self, request: Request) -> Response:
        assert request.query_params["session"] == "7"
        self.credentials.add(request.headers.get("authorization"))
        message = await request.json()
        self.heard.append(message)
        if "method" not in message:
            self._asked[message["id"]].set_result(message.get("result"))
        elif message.get("params", {}).get("name") == "end while it is sent":
            await self._said.put(None)
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
        elif message.get("params", {}).get("name") == "refused":
            return PlainTextResponse("the server is tired", 429)
        elif message["method"] == "notifications/initialized" and self._asks_at_once:
            self.told = await self._ask_for_roots()
        elif "id" in message:
            self._tasks = asyncio.create_task(self._answer(message))
        return PlainTextResponse("Accepted", 202)

    async def _ask_for_roots(self) -> Any:
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        await self._said.put({"id": number, "method": "roots/list"})
        return await asyncio.wait_for(self._asked[number], PATIENCE)

    async def _answer(self, message: dict[str, Any]) -> None:
        method, name = message["method"], message.get("params", {}).get("name")
        result: dict[str, Any] = {"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]}
        if method == "initialize":
            result = HELLO
        elif name == "roots":
            result = {"content": [{"type": "text", "text": json.dumps(await self._ask_for_roots())}]}
        elif name == "end":
            await self._said.put(None)
            return
        await self._said.put({"id": message["id"], "result": result})


@pytest.mark.parametrize(
    "opening",
    [
        "retry: 3000\n\n",
        ": welcome\n\n",
        ":\r\nretry: 3000\r\n\r\n: and\n\nretry: 1\n\n",
        "\n\n\n",
        "\ufeff: a mark\n\n",
        "id: 0\n\n",
        "event: ping\ndata: now\n\n",
        "retry: 3000\n",
    ],
)
async def test_what_comes_before_the_address_is_passed_over(opening: str) -> None:
    first = FirstServer(opening=opening)
    async with served(first.app) as base, Client(f"{base}/sse", timeout=PATIENCE) as client:
        assert client.session.version == VERSION
        assert [tool.name for tool in await client.list_tools()] == ["roots"]


async def test_a_stream_that_begins_with_a_message_is_another_transport() -> None:
    first = FirstServer(opening='data: {"jsonrpc": "2.0", "method": "notifications/message"}\n\n')
    async with served(first.app) as base:
        with pytest.raises(TransportError):
            async with Client(f"{base}/sse", timeout=PATIENCE):
                pass


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_with_nothing_else_is_found_called_and_left(mode: Any) -> None:
    first = FirstServer()
    async with served(first.app) as base:
        async with Client(f"{base}/sse", mode=mode, roots=["file:///home"], timeout=PATIENCE) as client:
            assert (client.session.era, client.session.version) == ("legacy", VERSION)
            assert [tool.name for tool in await client.list_tools()] == ["roots"]
            (block,) = (await client.call_tool("roots")).content
            assert block.type == "text"
            assert json.loads(block.text) == {"roots": [{"uri": "file:///home"}]}
        await soon(first.left.wait())
    said = [message.get("method") for message in first.heard]
    assert said == ["initialize", "notifications/initialized", "tools/list", "tools/call", None]


async def test_a_server_that_asks_before_it_has_taken_the_first_notification_gets_its_answer() -> None:
    first = FirstServer(asks_at_once=True)
    roots = ["file:///home"]
    async with asyncio.timeout(PATIENCE), served(first.app) as base, Client(f"{base}/sse", roots=roots):
        pass
    assert first.told == {"roots": [{"uri": "file:///home"}]}


async def test_what_authentication_adds_goes_with_the_stream_and_with_every_message() -> None:
    first = FirstServer()
    headers = {"authorization": "Bearer sesame"}
    async with served(first.app) as base, httpx2.AsyncClient(headers=headers) as http:
        async with Client(f"{base}/sse", http_client=http, timeout=PATIENCE) as client:
            await client.list_tools()
        await soon(first.left.wait())
    assert first.credentials == {"Bearer sesame"}


async def test_messages_go_to_no_other_server_than_that_of_the_stream() -> None:
    for elsewhere in (
        "http://127.0.0.1:9/messages?session=7",
        "//elsewhere.example/",
        "http://[/",
        "/m\u00fc",
    ):
        async with served(FirstServer(elsewhere).app) as base:
            with pytest.raises(TransportError, match="not an address of its own"):
                await soon(Client(f"{base}/sse").__aenter__())


async def test_a_stream_that_is_not_used_is_closed_in_a_client_of_the_caller_too() -> None:
    first = FirstServer("//elsewhere.example/")
    async with served(first.app) as base, httpx2.AsyncClient(timeout=PATIENCE) as http:
        with pytest.raises(TransportError, match="not an address of its own") as caught:
            await soon(Client(f"{base}/sse", http_client=http).__aenter__())
        await soon(first.left.wait())
        assert caught.tb is not None  # It holds what was open: nothing was closed for being forgotten.


async def test_a_handshake_that_is_refused_says_so_with_the_servers_words() -> None:
    async with served(FirstServer("/gone").app) as base:
        with pytest.raises(HttpRefused, match="HTTP status 404: Not Found"):
            await soon(Client(f"{base}/sse").__aenter__())


async def test_a_stream_that_ends_fails_the_calls_that_wait() -> None:
    async with served(FirstServer().app) as base, Client(f"{base}/sse", timeout=PATIENCE) as client:
        with pytest.raises(TransportError, match="ended its stream of messages"):
            await client.call_tool("end")
        with pytest.raises(TransportError, match="connect to it again"):
            await client.call_tool("roots")


async def test_a_stream_that_ends_while_a_call_is_sent_fails_it_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(FirstServer().app) as base, Client(f"{base}/sse", timeout=PATIENCE) as client:
        with pytest.raises(TransportError, match="ended its stream of messages"):
            await client.call_tool("end while it is sent")
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_message_that_is_refused_fails_its_call_with_the_servers_words() -> None:
    async with served(FirstServer().app) as base, Client(f"{base}/sse", timeout=PATIENCE) as client:
        with pytest.raises(TransportError, match="HTTP status 429: the server is tired"):
            await client.call_tool("refused")
        assert [tool.name for tool in await client.list_tools()] == ["roots"]


async def test_a_server_that_offers_no_such_stream_is_refused_with_its_first_words() -> None:
    async def no_posts(_: Request) -> Response:
        return PlainTextResponse("there is nothing to POST to", 404)

    async def page(_: Request) -> Response:
        return PlainTextResponse("a page for people")

    async def silence() -> AsyncIterator[str]:
        yield "data: hello\n\n"

    async def stream(_: Request) -> Response:
        return StreamingResponse(silence(), media_type="text/event-stream")

    routes = [Route(f"/{path}", no_posts, methods=["POST"]) for path in ("page", "stream")]
    routes += [Route("/page", page, methods=["GET"]), Route("/stream", stream, methods=["GET"])]
    async with served(Starlette(routes=routes)) as base:
        for path in ("page", "stream"):
            with pytest.raises(TransportError, match="HTTP status 404: there is nothing to POST to"):
                await soon(Client(f"{base}/{path}").__aenter__())
        with pytest.raises(TransportError, match="HTTP status 404"):
            await soon(Client(f"{base}/page", mode="modern").__aenter__())
