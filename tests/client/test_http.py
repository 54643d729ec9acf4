"""Over HTTP: the headers that mirror a request, connections that drop, and who the caller is."""

import asyncio
import time
from collections.abc import Generator
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import Field

from ekiden import Client, Server, ServerError, TransportError
from ekiden.transports.client.refusal import refused
from tests.hostile.evil import Evil, answers, breaks_off, evil, says
from tests.serving import served, soon


def headers(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:-2]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


MIRRORING = {
    "name": "route",
    "inputSchema": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
}


async def test_a_request_is_mirrored_in_its_headers() -> None:
    async with evil({}, [MIRRORING]) as server, Client(server.url) as client:
        await client.list_tools()
        await client.call_tool("route", {"region": "Zürich"})
        sent = headers(server.heads[-1])
        assert sent["mcp-method"] == "tools/call"
        assert sent["mcp-name"] == "route"
        assert sent["mcp-protocol-version"] == "2026-07-28"
        assert sent["accept"] == "application/json, text/event-stream"
        assert sent["mcp-param-region"].startswith("=?base64?")
        await client.call_tool("grüezi")
        assert headers(server.heads[-1])["mcp-name"].isascii()


async def test_arguments_that_must_be_mirrored_are_found_out() -> None:
    server = Server("s")

    @server.tool
    async def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Route."""
        return region

    async with served(server) as base, Client(f"{base}/mcp") as client:
        result = await client.call_tool("route", {"region": "eu"})
        assert getattr(result.content[0], "text", None) == "eu"


async def test_a_tool_whose_definition_is_invalid_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    twice = {"a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}
    broken = {"name": "broken", "inputSchema": {"type": "object", "properties": twice}}
    async with evil({}, [broken, MIRRORING, 5]) as server, Client(server.url) as client:
        assert [tool.name for tool in await client.list_tools()] == ["route"]
    assert "The server's tool 'broken' is left out" in caplog.text


def count(server: Evil, method: str) -> int:
    return sum(message["method"] == method for message in server.messages)


async def test_what_changes_nothing_is_sent_again_when_a_connection_drops_and_nothing_else_is() -> None:
    def once_broken(result: dict[str, Any]) -> Any:
        broken = iter([True])

        async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
            await (breaks_off(b"") if next(broken, False) else answers(result))(writer, message)

        return deed

    deeds = {
        "tools/list": once_broken({"tools": []}),
        "resources/read": once_broken({"contents": []}),
        "deed": once_broken({"content": []}),
    }
    async with evil(deeds) as server, Client(server.url) as client:
        assert await client.list_tools() == []
        assert count(server, "tools/list") == 2
        with pytest.raises(TransportError):
            await client.call_tool("deed")
        with pytest.raises(TransportError):
            await client.read_resource("a://b")
        assert (count(server, "tools/call"), count(server, "resources/read")) == (1, 1)


async def test_a_refusal_is_not_a_connection_that_drops() -> None:
    async with evil({"tools/list": says(b"busy", status="503 Busy", kind="text/plain")}) as server:
        async with Client(server.url) as client:
            with pytest.raises(TransportError, match="HTTP status 503"):
                await client.list_tools()
        assert count(server, "tools/list") == 1


PAGE = b"<html><title>Error</title><body><h1>Cannot  POST</h1>\n<style>h1 {}</style>/mcp</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/plain", b"the quota of today\nis used up", "the quota of today is used up"),
        ("text/html; charset=utf-8", PAGE, "Cannot POST /mcp"),
        (
            "application/json",
            b'{"error": "invalid_token", "error_description": "it has expired"}',
            "it has expired",
        ),
        ("application/json", b'{"error": {"code": 7, "message": "no such tenant"}}', "no such tenant"),
        ("application/json", b'{"detail": "Not Found"}', "Not Found"),
        ("text/plain", b"\x1b[31m" + b"x" * 1000, r"\[31m" + "x" * 296 + r"\.\.\."),
        ("text/plain", b"", ""),
        ("text/html", b"gone<script>let a</b = 1</script>, for <b>ever</b><style>", "gone , for ever"),
    ],
)
async def test_a_refusal_keeps_the_servers_words(kind: str, body: bytes, words: str) -> None:
    deeds = {"deed": says(body, status="403 Forbidden", kind=kind)}
    async with evil(deeds) as server, Client(server.url) as client:
        with pytest.raises(TransportError, match=f"HTTP status 403{words and f': {words}'}$"):
            await client.call_tool("deed")


@pytest.mark.parametrize("words", ["<", "<script", "<script>", "<script>a</style>", "<a", "</"])
def test_a_page_that_is_all_tags_is_read_at_once(words: str) -> None:
    began = time.process_time()
    refused(403, "text/html", (words * 65536)[:65536].encode())
    assert time.process_time() - began < 1  # It was several seconds when every tag looked for its end.


async def test_cancelling_closes_the_stream_and_the_connection_is_not_used_again() -> None:
    begun, left = asyncio.Event(), asyncio.Event()
    server = Server("s")

    @server.tool
    async def hang() -> str:
        """Never end."""
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            left.set()
        raise AssertionError

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async with served(server) as base:
        for lean in (True, False):
            begun.clear()
            left.clear()
            options: dict[str, Any] = {} if lean else {"auth": httpx2.BasicAuth("me", "secret")}
            async with Client(f"{base}/mcp", **options) as client:
                call = asyncio.ensure_future(client.call_tool("hang"))
                await soon(begun.wait())
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await soon(left.wait())
                added = await client.call_tool("add", {"a": 1, "b": 2})
                assert getattr(added.content[0], "text", None) == "3"


class Login(httpx2.Auth):
    """Gets a token when it is refused, as OAuth providers do."""

    def __init__(self) -> None:
        self.token = "stale"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["authorization"] = f"Bearer {self.token}"
        response = yield request
        if response.status_code == 401:
            self.token = "fresh"
            request.headers["authorization"] = f"Bearer {self.token}"
            yield request


class Guarded:
    """Lets nobody in without the right token."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.seen.append(dict(scope["headers"]).get(b"authorization", b"").decode())
            if self.seen[-1] != "Bearer fresh":
                start = {
                    "type": "http.response.start",
                    "status": 401,
                    "headers": [(b"www-authenticate", b"Bearer")],
                }
                await send(start)
                return await send({"type": "http.response.body", "body": b""})
        return await self._app(scope, receive, send)


async def test_any_auth_of_httpx_is_who_the_caller_is() -> None:
    server = Server("s")

    @server.tool
    async def hello() -> str:
        """Greet."""
        return "hello"

    guarded = Guarded(server.asgi())
    async with served(guarded) as base:
        async with Client(f"{base}/mcp", auth=Login()) as client:
            assert getattr((await client.call_tool("hello")).content[0], "text", None) == "hello"
        assert guarded.seen == ["Bearer stale", "Bearer fresh", "Bearer fresh"]
        with pytest.raises(TransportError, match="HTTP status 401"):
            await Client(f"{base}/mcp").__aenter__()


async def test_headers_of_the_callers_own_go_along_with_a_client_of_httpx() -> None:
    async with evil({}) as server:
        async with httpx2.AsyncClient(headers={"x-tenant": "blue"}) as http:
            async with Client(server.url, http_client=http) as client:
                await client.call_tool("honest")
            assert not http.is_closed, "it is the caller's to close"
        assert all(headers(head)["x-tenant"] == "blue" for head in server.heads)


async def test_an_error_keeps_its_code_its_words_and_its_data() -> None:
    error = b'{"jsonrpc":"2.0","id":"ID","error":{"code":-32005,"message":"Too busy","data":{"wait":5}}}'
    async with evil({"deed": says(error)}) as server, Client(server.url) as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("deed")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32005, "Too busy", {"wait": 5})


async def test_a_body_that_ends_with_its_connection_is_whole() -> None:
    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % message["id"]
        await breaks_off(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + body)(writer, message)

    async with evil({"deed": deed}) as server, Client(server.url) as client:
        assert (await client.call_tool("deed")).content == []
        assert (await client.call_tool("deed")).content == []
