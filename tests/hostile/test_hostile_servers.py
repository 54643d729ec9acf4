"""Servers that are broken or mean, over HTTP: the client gives a clear error, soon, and stays usable."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ekiden import (
    CallTimeout,
    CannotAnswer,
    Client,
    ClientLimits,
    EkidenError,
    InvalidResult,
    TooMuch,
    TransportError,
    UsageError,
)
from ekiden.transports.client.over_httpx import HttpxClient
from tests.serving import PATIENCE, listening_socket, served, soon

from .evil import JSON, STREAM, Deed, answers, breaks_off, evil, floods, says, whole

SMALL = ClientLimits(message_bytes=1_000_000, stream_bytes=2_000_000, state_bytes=10_000, pages=20)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={})


@contextlib.asynccontextmanager
async def client_of(url: str, way: str, **options: Any) -> AsyncGenerator[Client, None]:
    """A client over the lean connection, or over httpx2."""
    async with contextlib.AsyncExitStack() as stack:
        if way == "httpx":
            http = httpx2.AsyncClient(timeout=PATIENCE, follow_redirects=True, trust_env=False)
            options["http_client"] = await stack.enter_async_context(http)
        client = Client(url, limits=SMALL, elicit=agree, timeout=PATIENCE, **options)
        yield await stack.enter_async_context(client)


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def streams(*pieces: bytes) -> Deed:
    return breaks_off(STREAM + b"".join(pieces))


def interim(**fields: Any) -> Deed:
    return answers({"resultType": "input_required", **fields})


FORM = {
    "method": "elicitation/create",
    "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}

DEEDS: dict[str, tuple[Deed, type[Exception], str]] = {
    # Too much
    "a body without end": (
        floods(HEAD + b"content-length: 99999999999\r\n\r\n", b"[" * 65536),
        TransportError,
        "more than 1000000 bytes",
    ),
    "chunks without end": (
        floods(CHUNKED, b"3e8\r\n" + b"x" * 1000 + b"\r\n"),
        TransportError,
        "more than 1000000 bytes",
    ),
    "comments without end": (
        floods(STREAM, b": still here\n" * 999),
        TransportError,
        "more than 2000000 bytes",
    ),
    "empty lines without end": (floods(STREAM, b"\n" * 65536), TransportError, "more than 2000000 bytes"),
    "progress without end": (
        floods(STREAM, event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}) * 99),
        TransportError,
        "more than 2000000 bytes",
    ),
    "an event without end": (
        floods(STREAM + b"data: ", b"x" * 65536),
        TransportError,
        "an event of more than",
    ),
    "an event of endless lines": (
        floods(STREAM, b"data: one line more, and no end\n" * 999),
        TransportError,
        "an event of more than",
    ),
    "a comment without end": (floods(STREAM + b":", b"x" * 65536), TransportError, "more than"),
    # No HTTP
    "no HTTP": (breaks_off(b"220 mail.example ESMTP\r\n\r\n"), TransportError, "connection|not HTTP"),
    "nothing": (breaks_off(b""), TransportError, "connection|not HTTP"),
    "half a head": (breaks_off(HEAD), TransportError, "connection|not HTTP"),
    "half a body": (
        breaks_off(HEAD + b"content-length: 100\r\n\r\n{"),
        TransportError,
        "connection|not HTTP",
    ),
    "half a stream": (streams(b"data: {"), TransportError, "ended before the response came"),
    "two lengths": (
        breaks_off(HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}}"),
        TransportError,
        "connection|not HTTP",
    ),
    # No message
    "a page": (
        says(b"<html>Welcome!</html>", kind="text/html"),
        TransportError,
        "content type is 'text/html'",
    ),
    "a message that claims to be a page": (
        says(b'{"jsonrpc":"2.0","id":"ID","result":{}}', kind="text/html"),
        TransportError,
        "content type is 'text/html'",
    ),
    "no JSON": (says(b"{"), TransportError, "cannot be read: Parse error"),
    "not UTF-8": (says(b'{"jsonrpc":"2.0","id":"ID","result":{"a":"\xff"}}'), TransportError, "Parse error"),
    "a batch": (says(b'[{"jsonrpc":"2.0","id":"ID","result":{}}]'), TransportError, "not a JSON-RPC message"),
    "no envelope": (says(b'{"id":"ID","result":{}}'), TransportError, "not a JSON-RPC message"),
    "neither result nor error": (
        says(b'{"jsonrpc":"2.0","id":"ID"}'),
        TransportError,
        "a result or an error",
    ),
    "another id": (
        says(b'{"jsonrpc":"2.0","id":77,"result":{}}'),
        TransportError,
        "does not answer the request",
    ),
    "a truth for an id": (says(b'{"jsonrpc":"2.0","id":true,"result":{}}'), TransportError, "id must be"),
    "a request for an answer": (
        says(b'{"jsonrpc":"2.0","id":"ID","method":"ping"}'),
        TransportError,
        "does not answer the request",
    ),
    "nested a hundred thousand deep": (
        says(b'{"jsonrpc":"2.0","id":"ID","result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        TransportError,
        "Parse error",
    ),
    "a number of half a million digits": (
        says(b'{"jsonrpc":"2.0","id":"ID","result":{"a":' + b"9" * 500_000 + b"}}"),
        TransportError,
        "Parse error",
    ),
    "a number beyond all numbers": (
        says(b'{"jsonrpc":"2.0","id":"ID","result":{"a":1e999999999}}'),
        TransportError,
        "Parse error",
    ),
    "an event that is no JSON": (
        streams(b"data: hello\n\n"),
        TransportError,
        "an event that is not a message",
    ),
    "an event that is a list": (streams(event([1])), TransportError, "an event that is not a message"),
    "parameters that are a list": (
        streams(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": [1]})),
        TransportError,
        "params must be an object",
    ),
    "a method that is a number": (
        streams(event({"jsonrpc": "2.0", "method": 1})),
        TransportError,
        "method must",
    ),
    # No result
    "a result that is a list": (answers([1]), InvalidResult, "not an object"),
    "a result that is null": (answers(None), InvalidResult, "not an object"),
    "an unknown kind of result": (answers({"resultType": "maybe"}), InvalidResult, "unknown type: 'maybe'"),
    "a kind that is an object": (answers({"resultType": {"a": 1}}), InvalidResult, "unknown type"),
    "content that is none": (
        answers({"content": "x"}),
        InvalidResult,
        "CallToolResult is malformed: content",
    ),
    "an error without anything": (
        says(b'{"jsonrpc":"2.0","id":"ID","error":null}'),
        EkidenError,
        "an error without content",
    ),
    "an error of wrong types": (
        says(b'{"jsonrpc":"2.0","id":"ID","error":{"code":"x","message":[]}}'),
        EkidenError,
        "gave no reason",
    ),
    # No question
    "a hundred and one questions": (
        interim(inputRequests={str(n): FORM for n in range(101)}),
        InvalidResult,
        "asks 101 things at once",
    ),
    "neither question nor state": (interim(), InvalidResult, "neither questions nor state"),
    "questions in a list": (interim(inputRequests=[FORM]), InvalidResult, "interim result is malformed"),
    "a state that is no text": (interim(requestState={"a": 1}), InvalidResult, "interim result is malformed"),
    "a question that is none": (interim(inputRequests={"a": 5}), InvalidResult, "questions are not objects"),
    "a question without words": (
        interim(inputRequests={"a": {"method": "elicitation/create"}}),
        InvalidResult,
        "'a' is malformed",
    ),
    "a question whose words are a list": (
        interim(inputRequests={"a": {"method": "elicitation/create", "params": ["?"]}}),
        InvalidResult,
        "params are not an object",
    ),
    "an unknown question": (
        interim(inputRequests={"a": {"method": "secrets/get"}}),
        InvalidResult,
        "asks something unknown: 'secrets/get'",
    ),
    "a question that was not declared": (
        interim(inputRequests={"a": FORM, "b": {"method": "roots/list"}}),
        CannotAnswer,
        r"b \(roots\)",
    ),
    "a large state": (interim(requestState="x" * 10_001), InvalidResult, "state has 10001 characters"),
    "a question on the stream": (
        floods(STREAM + event({"jsonrpc": "2.0", "id": 1, **FORM}), b": waiting\n"),
        TransportError,
        "must not send requests, but sent elicitation/create",
    ),
}

LEAN_DEEDS: dict[str, tuple[Deed, type[Exception], str]] = {
    "headers without end": (
        floods(HEAD, b"x-more: and more\r\n" * 999),
        TransportError,
        "headers of more than",
    ),
    "a header without end": (
        floods(HEAD + b"x-long: ", b"x" * 65536),
        TransportError,
        "headers of more than",
    ),
    "trailers without end": (
        floods(CHUNKED + b"0\r\n", b"x-more: and more\r\n" * 999),
        TransportError,
        "headers of more than",
    ),
    "a chunk's size without end": (
        floods(CHUNKED + b"1;", b"x" * 65536),
        TransportError,
        "headers of more than",
    ),
    "promises without end": (
        floods(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 99),
        TransportError,
        "headers of more than",
    ),
    "another protocol": (
        breaks_off(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nxx"),
        TransportError,
        "connection|not HTTP",
    ),
    "a redirect in a circle": (
        says(b"", status="307 Temporary Redirect", head="location: /mcp\r\n"),
        TransportError,
        "redirects more than 5 times",
    ),
    "a redirect elsewhere": (
        says(b"", status="308 Permanent Redirect", head="location: http://127.0.0.2:1/mcp\r\n"),
        TransportError,
        "redirects to 'http://127.0.0.2:1/mcp' .* not followed",
    ),
    "a redirect to a page": (
        says(b"", status="302 Found", head="location: /login\r\n"),
        TransportError,
        "not followed",
    ),
    "a redirect to a port that is none": (
        says(b"", status="307 Temporary Redirect", head="location: http://127.0.0.1:99999/mcp\r\n"),
        TransportError,
        "not followed",
    ),
    "a redirect to half an address": (
        says(b"", status="307 Temporary Redirect", head="location: http://[::1/mcp\r\n"),
        TransportError,
        "not followed",
    ),
    "a redirect to letters that no request can have": (
        says(b"", status="307 Temporary Redirect", head="location: /m\u00fcp\r\n"),
        TransportError,
        "not followed",
    ),
    "a redirect to nowhere": (
        says(b"", status="307 Temporary Redirect"),
        TransportError,
        "redirects more than 5 times",
    ),
}


async def assert_refused(
    name: str, deed: Deed, kind: type[Exception], words: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    async with evil({"deed": deed}) as server, client_of(server.url, way) as client:
        with pytest.raises(kind, match=words) as caught:
            await client.call_tool("deed")
        assert not isinstance(caught.value, CallTimeout), "it was waited for, not seen"
        assert len(str(caught.value)) < 1000
        honest = await client.call_tool("honest")
        assert isinstance(honest, CallToolResult)
        assert [getattr(block, "text", None) for block in honest.content] == ["honest"]
        assert sum(message["method"] == "tools/call" for message in server.messages) <= 2 + 5, name
    assert time.monotonic() - began < PATIENCE
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("way", ["lean", "httpx"])
@pytest.mark.parametrize("name", DEEDS)
async def test_a_broken_answer_is_a_clear_error(
    name: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_refused(name, *DEEDS[name], way, caplog)


@pytest.mark.parametrize("name", LEAN_DEEDS)
async def test_a_broken_response_is_a_clear_error(name: str, caplog: pytest.LogCaptureFixture) -> None:
    await assert_refused(name, *LEAN_DEEDS[name], "lean", caplog)


async def test_over_httpx_a_circle_of_redirects_is_a_clear_error() -> None:
    deed = says(b"", status="307 Temporary Redirect", head="location: /mcp\r\n")
    async with evil({"deed": deed}) as server, client_of(server.url, "httpx") as client:
        with pytest.raises(TransportError, match="redirect"):
            await client.call_tool("deed")


class Bearer(httpx2.Auth):
    """A token of the caller's, as any authentication would send it."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["authorization"] = "Bearer secret"
        yield request


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "302 Found"])
async def test_over_a_client_of_our_own_no_message_goes_to_another_server(status: str) -> None:
    async with evil({}) as other:
        deed = says(b"", status=status, head=f"location: {other.url}\r\n")
        async with (
            evil({"deed": deed}) as server,
            Client(server.url, auth=Bearer(), timeout=PATIENCE) as client,
        ):
            with pytest.raises(TransportError, match=rf"redirects to '{other.url}' .* not followed"):
                await client.call_tool("deed", {"password": "secret"})
            assert not other.heads
            assert (await client.call_tool("honest")).content


async def test_over_a_client_of_our_own_half_an_address_is_a_clear_error() -> None:
    deed = says(b"", status="307 Temporary Redirect", head="location: http://[::1/mcp\r\n")
    async with evil({"deed": deed}) as server, Client(server.url, auth=Bearer(), timeout=PATIENCE) as client:
        with pytest.raises(TransportError, match="not followed"):
            await client.call_tool("deed")


class LookingUp(httpx2.Auth):
    """Asks where the server says, as OAuth's discovery does."""

    def __init__(self, place: str) -> None:
        self.place = place

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        yield httpx2.Request("GET", self.place)
        yield request


@pytest.mark.parametrize("endpoint", ["https://good.example/mcp", "http://good.example/mcp"])
async def test_a_server_cannot_make_a_client_ask_machines_of_its_network(endpoint: str) -> None:
    """They are never connected to: none of these answers within the time of the test."""
    for place in (
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://127.0.0.1:2375/containers/json",
        "http://localhost/",
        "http://[::1]/",
        "http://2130706433/",
        "http://good.example.:8080/",
    ):
        http = HttpxClient(endpoint, limit=1000, auth=LookingUp(place))
        with pytest.raises(TransportError, match="which is not asked"):
            await http.send("POST", {}, b"{}")
        await http.close()


async def test_on_one_machine_a_client_asks_where_its_server_says() -> None:
    asked: list[str] = []

    async def provider(request: Request) -> Response:
        asked.append(request.url.path)
        return JSONResponse({})

    async with served(Starlette(routes=[Route("/metadata", provider)])) as place, evil({}) as server:
        auth = LookingUp(f"{place}/metadata")
        async with Client(server.url, auth=auth, timeout=PATIENCE) as client:
            assert (await client.call_tool("honest")).content
    assert set(asked) == {"/metadata"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/mcp", "http://[::1/mcp"])
async def test_an_address_that_is_none_is_told(url: str) -> None:
    for auth in (None, Bearer()):
        with pytest.raises(UsageError, match=r"is not an http\(s\) URL"):
            await Client(url, auth=auth, timeout=PATIENCE).__aenter__()


async def test_over_httpx_headers_without_end_are_a_clear_error() -> None:
    deed = floods(HEAD, b"x-more: and more\r\n" * 999)
    async with evil({"deed": deed}) as server, client_of(server.url, "httpx") as client:
        with pytest.raises(TransportError, match="connection failed"):
            await client.call_tool("deed")


async def test_a_packed_body_that_is_rubbish_or_grows_is_a_clear_error() -> None:
    import gzip

    bomb = gzip.compress(b" " * 50_000_000)
    for body, words in ((b"no gzip", "connection failed"), (bomb, "more than 1000000 bytes")):
        deed = says(body, head="content-encoding: gzip\r\n")
        async with evil({"deed": deed}) as server, client_of(server.url, "httpx") as client:
            with pytest.raises(TransportError, match=words):
                await client.call_tool("deed")


async def test_a_redirect_within_the_server_is_followed() -> None:
    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        moved = server.heads[-1].startswith(b"POST /mcp/ ")
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}).encode()
        to = "location: /mcp/\r\n"
        writer.write(whole(body) if moved else whole(b"", status="307 Temporary Redirect", head=to))

    async with evil({"deed": deed}) as server, client_of(server.url, "lean") as client:
        assert (await client.call_tool("deed")).content == []


async def test_a_provisional_response_is_not_taken_for_the_answer() -> None:
    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}).encode()
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\ncontent-type: text/html\r\n\r\n" + whole(body))

    async with evil({"deed": deed}) as server, client_of(server.url, "lean") as client:
        assert (await client.call_tool("deed")).content == []


async def test_a_second_answer_on_a_connection_belongs_to_nobody() -> None:
    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        bodies = [
            json.dumps({"jsonrpc": "2.0", "id": message["id"] + n, "result": {"content": []}}).encode()
            for n in (0, 1)
        ]
        writer.write(b"".join(whole(body) for body in bodies))

    async with evil({"deed": deed}) as server, client_of(server.url, "lean") as client:
        assert (await client.call_tool("deed")).content == []
        honest = await client.call_tool("honest")
        assert honest.content != [], "the answer that was sent ahead is not taken"


async def test_a_token_of_fifty_megabytes_is_refused_by_its_size() -> None:
    deed = interim(requestState="x" * 50_000_000)
    async with evil({"deed": deed}) as server, Client(server.url) as client:
        with pytest.raises(TransportError, match="more than 33554432 bytes"):
            await client.call_tool("deed")
    deed = interim(requestState="x" * 5_000_000)
    async with evil({"deed": deed}) as server, Client(server.url) as client:
        with pytest.raises(InvalidResult, match="at most 4194304 are allowed"):
            await client.call_tool("deed")


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silence(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        await asyncio.sleep(3600)

    async with evil({"deed": silence, "tools/list": silence}) as server:
        async with Client(server.url) as client:
            with pytest.raises(CallTimeout, match=r"tools/call 'deed' did not end within 0\.1 seconds"):
                await client.call_tool("deed", timeout=0.1)
        async with Client(server.url, timeout=0.1) as client:
            with pytest.raises(CallTimeout, match="tools/list did not end"):
                await client.list_tools()
    async with evil({"server/discover": silence}) as server:
        with pytest.raises(CallTimeout, match="Connecting did not end"):
            await soon(Client(server.url, timeout=0.1).__aenter__())


async def test_state_without_end_is_capped_and_paced() -> None:
    async with evil({"deed": interim(requestState="s")}) as server, Client(server.url) as client:
        began = time.monotonic()
        with pytest.raises(EkidenError, match="did not end within 4 rounds"):
            await client.call_tool("deed", max_rounds=4)
        assert len(server.messages) == 1 + 5
        assert time.monotonic() - began > 0.02 + 0.04 + 0.08


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"tools": [], "nextCursor": "again"}, "cursor is not a new one"),
        ({"tools": [], "nextCursor": 5}, "cursor is not a new one"),
        ({"tools": {}}, "no list of tools"),
        ({"tools": [{"name": 5, "inputSchema": {}}]}, "Tool is malformed: name"),
        ({"resultType": "input_required", "requestState": "x"}, "must not answer tools/list with an interim"),
    ],
)
async def test_a_broken_list_is_a_clear_error(page: dict[str, Any], words: str) -> None:
    deeds = {"tools/list": answers({"resultType": "complete", **page})}
    async with evil(deeds) as server, client_of(server.url, "lean") as client:
        with pytest.raises(InvalidResult, match=words):
            await client.list_tools()


async def test_pages_without_end_are_capped() -> None:
    async def page(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        await answers({"tools": [], "nextCursor": str(message["id"])})(writer, message)

    async with evil({"tools/list": page}) as server, client_of(server.url, "lean") as client:
        with pytest.raises(InvalidResult, match="within 20 pages"):
            await client.list_tools()
        assert len(server.messages) == 21


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"list_items": 1000}, "lists more than 1000 tools"),
        ({"list_bytes": 100_000}, "lists more than 100000 bytes"),
        ({"values": 500}, "lists more than 2000 values"),
    ],
)
async def test_a_list_is_limited_over_all_its_pages(limits: dict[str, int], words: str) -> None:
    tool = {"name": "t", "description": "x" * 500, "inputSchema": {"type": "object"}}

    async def page(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        await answers({"tools": [tool] * 50, "nextCursor": str(message["id"])})(writer, message)

    async with evil({"tools/list": page}) as server:
        async with Client(server.url, limits=ClientLimits(**limits), timeout=PATIENCE) as client:
            with pytest.raises(TooMuch, match=words):
                await client.list_tools()
        assert len(server.messages) < 25


async def test_a_message_of_more_values_than_memory_has_room_for_is_refused() -> None:
    body = b'{"jsonrpc":"2.0","id":"ID","result":{"tools":[' + b"[]," * 2_000_000 + b"[]]}}"
    async with evil({"tools/list": says(body)}) as server, Client(server.url, timeout=PATIENCE) as client:
        with pytest.raises(TransportError, match="more than 1000000 values"):
            await client.list_tools()


def doubling(lines: int) -> dict[str, Any]:
    """A schema that means twice the work with each of its lines."""
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(lines)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{lines}": {"type": "object"}}}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


TWICE_ITSELF = {"properties": {"x": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}


@pytest.mark.parametrize(
    ("schema", "value"), [(doubling(60), {}), (TWICE_ITSELF, nested(60)), ({"$ref": "#"}, {})]
)
async def test_a_schema_that_would_take_for_ever_is_refused(schema: Any, value: Any) -> None:
    tool = {"name": "deed", "inputSchema": {"type": "object"}, "outputSchema": schema}
    deed = answers({"content": [], "structuredContent": value})
    began = time.monotonic()
    async with evil({"deed": deed}, [tool]) as server, client_of(server.url, "lean") as client:
        await client.list_tools()
        with pytest.raises(InvalidResult, match="too many checks of a value of this size"):
            await client.call_tool("deed")
    assert time.monotonic() - began < 5


async def test_a_reference_to_the_network_is_never_fetched(caplog: pytest.LogCaptureFixture) -> None:
    caught: list[str] = []

    async def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caught.append("somebody came")
        writer.close()

    trap = await asyncio.start_server(catch, sock=listening_socket())
    async with trap:
        away = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/schema.json"
        references: list[Any] = [
            {"$ref": away},
            {"allOf": [{"$ref": away}]},
            {"$schema": away},
            {"$ref": "file:///etc/passwd"},
            {"$id": away, "$ref": "other.json"},
            {"$defs": {"a": {"$id": away, "$ref": "#/b"}}},
        ]
        tools = [
            {"name": f"tool{n}", "inputSchema": {"type": "object", "$ref": away}, "outputSchema": schema}
            for n, schema in enumerate(references)
        ]
        deeds = {tool["name"]: answers({"content": [], "structuredContent": {}}) for tool in tools}
        async with evil(deeds, tools) as server, client_of(server.url, "lean") as client:
            assert len(await client.list_tools()) == len(tools)
            for tool in tools:
                await client.call_tool(tool["name"])
        assert caught == []
    for tool in tools:
        assert f"The output schema of tool '{tool['name']}' cannot be used" in caplog.text


@pytest.mark.parametrize("schema", [5, "x", None, [], {"type": 5}, {"pattern": "("}, {"$ref": "#/nowhere"}])
async def test_an_output_schema_that_is_none_is_left_aside_with_a_warning(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tool = {"name": "deed", "inputSchema": {"type": "object"}, "outputSchema": schema}
    deed = answers({"content": [], "structuredContent": {}})
    deeds = {"deed": deed, "tools/list": answers({"tools": [tool]})}
    async with evil(deeds) as server, client_of(server.url, "lean") as client:
        with contextlib.suppress(InvalidResult):  # A definition that is no schema at all is malformed.
            await client.list_tools()
        assert (await client.call_tool("deed")).structured_content == {}
    assert "cannot be used" in caplog.text


async def test_progress_that_is_none_reaches_no_callback() -> None:
    told: list[Any] = []

    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        token = message["params"]["_meta"]["progressToken"]
        notes: list[dict[str, Any]] = [
            {"progress": "half"},
            {"progress": [1]},
            {},
            {"progress": 1, "total": "two", "message": {}},
        ]
        writer.write(STREAM)
        for note in notes:
            params = {"progressToken": token, **note}
            writer.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        writer.write(event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}))
        await writer.drain()
        writer.close()

    async with evil({"deed": deed}) as server, client_of(server.url, "lean") as client:
        await client.call_tool("deed", progress=lambda *step: told.append(step))
    assert told == [(1, None, None)]


async def test_an_era_is_not_taken_from_rubbish() -> None:
    for body, kind in ((b"<html>", "text/html"), (b"{", JSON), (b"", JSON)):
        async with evil(
            {"server/discover": says(body, kind=kind), "initialize": says(body, kind=kind)}
        ) as server:
            with pytest.raises(TransportError):
                await soon(Client(server.url, timeout=PATIENCE).__aenter__())
