"""Pages beside the endpoint: functions, and other applications."""

import json
from typing import Any
from urllib.parse import quote, unquote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

from ekiden import HttpRequest, HttpResponse, Server, StatusError, UsageError
from tests.serving import PATIENCE, call, post, served

BOTH = pytest.mark.parametrize("mounted", [False, True], ids=["our own HTTP", "any ASGI server"])


def paged() -> Server:
    server = Server("paged", keys=[b"k" * 32])

    @server.tool
    async def hello() -> str:
        return "hello"

    @server.route("/status")
    async def status(request: HttpRequest) -> dict[str, Any]:
        return {"query": request.query, "path": request.path, "from": request.address}

    @server.route("/hook", methods=["POST", "PUT"])
    async def hook(request: HttpRequest) -> HttpResponse:
        told = request.json()
        return HttpResponse(f"{request.method} {told['x']}", 201, {"X-Seen": request.headers["x-token"]})

    @server.route("/raw")
    async def raw(request: HttpRequest) -> bytes:
        return b"\x00\x01"

    @server.route("/broken")
    async def broken(request: HttpRequest) -> str:
        raise {"status": StatusError(404, "gone", headers={"X-Why": "moved"}), "": ValueError("secret")}[
            request.query.get("how", "")
        ]

    return server


async def get(base: str, path: str, method: str = "GET", **options: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.request(method, f"{base}{path}", **options)


@BOTH
async def test_a_function_serves_a_page_beside_the_endpoint(mounted: bool) -> None:
    async with served(paged(), mounted=mounted) as base:
        page = await get(base, "/status?a=1&b=x%20y&a=2")
        assert (page.status_code, page.headers["content-type"]) == (200, "application/json")
        assert page.json() == {"query": {"a": "2", "b": "x y"}, "path": "/status", "from": "127.0.0.1"}
        assert (await get(base, "/raw")).content == b"\x00\x01"
        head = await get(base, "/status", "HEAD")
        assert (head.status_code, head.content) == (200, b"")
        assert (await post(base, call("hello"))).status_code == 200, "the endpoint is where it was"
        assert (await get(base, "/nothing")).status_code == 404


@BOTH
@pytest.mark.parametrize("path", ["/status", "/healthz"])
async def test_a_query_of_very_many_fields_is_refused_before_it_is_read(mounted: bool, path: str) -> None:
    async with served(paged(), mounted=mounted) as base:
        assert (await get(base, f"{path}?{'a=1&' * 999}")).status_code == 200
        refused = await get(base, f"{path}?{'a&' * 1000}")
        assert (refused.status_code, refused.text) == (400, "The query has more than 1000 fields")


@BOTH
async def test_a_page_takes_a_body_and_answers_with_a_status_and_headers(mounted: bool) -> None:
    async with served(paged(), mounted=mounted) as base:
        made = await get(base, "/hook", "POST", content=json.dumps({"x": 3}), headers={"x-token": "t"})
        assert (made.status_code, made.text, made.headers["x-seen"]) == (201, "POST 3", "t")
        assert (await get(base, "/hook", "POST", content="no json")).status_code == 400
        refused = await get(base, "/hook")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST, PUT")


@BOTH
async def test_a_body_of_too_many_values_is_not_read(mounted: bool) -> None:
    many = b'{"x":[' + b"[]," * 60_000 + b"1]}"
    async with served(paged(), mounted=mounted) as base:
        refused = await get(base, "/hook", "POST", content=many, headers={"x-token": "t"})
        assert (refused.status_code, "more than 50000 values" in refused.text) == (400, True)


async def test_a_body_that_is_too_large_for_the_endpoint_is_too_large_for_a_page() -> None:
    async with served(paged()) as base:
        large = await get(base, "/hook", "POST", content=b"x" * (4 * 1024 * 1024 + 1))
        assert large.status_code == 413


@BOTH
async def test_a_page_that_fails_tells_nothing_unless_it_means_to(
    mounted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(paged(), mounted=mounted) as base:
        failed = await get(base, "/broken")
        assert (failed.status_code, failed.text) == (500, "Internal Server Error")
        assert "secret" in caplog.text
        gone = await get(base, "/broken?how=status")
        assert (gone.status_code, gone.text, gone.headers["x-why"]) == (404, "gone", "moved")


async def test_a_page_is_behind_the_check_of_host_and_origin() -> None:
    async with served(paged()) as base:
        assert (await get(base, "/status", headers={"host": "evil.example"})).status_code == 421
        assert (await get(base, "/status", headers={"origin": "https://evil.example"})).status_code == 403


def other_application() -> Starlette:
    async def echo(request: StarletteRequest) -> PlainTextResponse:
        body = (await request.body()).decode()
        return PlainTextResponse(f"{request.url.path} {request.query_params.get('q')} {body}")

    async def stream(_: StarletteRequest) -> StreamingResponse:
        async def pieces() -> Any:
            for number in range(3):
                yield f"{number} "

        return StreamingResponse(pieces())

    routes = [Route("/echo", echo, methods=["POST"]), Route("/stream", stream), Route("/", echo)]
    return Starlette(routes=routes)


@BOTH
async def test_an_asgi_application_serves_a_path_and_all_below_it(mounted: bool) -> None:
    server = paged()
    server.route("/admin", app=other_application())
    async with served(server, mounted=mounted) as base:
        assert (await get(base, "/admin/echo?q=1", "POST", content="hi")).text == "/admin/echo 1 hi"
        assert (await get(base, "/admin/stream")).text == "0 1 2 "
        assert (await get(base, "/admin/nothing")).status_code == 404
        assert (await get(base, "/administrator")).text.startswith('{"jsonrpc"'), "not below /admin"
        assert (await get(base, "/status")).status_code == 200


@BOTH
@pytest.mark.parametrize("path", ["/raw/a b", "/raw/%2e%2e", "/raw/x%2Fy", "/raw/é\n"])
async def test_an_application_that_unquotes_the_path_itself_reads_the_same_path(
    path: str, mounted: bool
) -> None:
    async def both(scope: Any, receive: Any, send: Any) -> None:
        same = unquote(scope["raw_path"].decode("ascii")) == scope["path"] == path
        await PlainTextResponse(str(same))(scope, receive, send)

    server = paged()
    server.route("/raw", app=both)
    async with served(server, mounted=mounted) as base:
        assert (await get(base, quote(path))).text == "True"


async def test_pages_are_served_where_the_server_is_mounted_below_another_application() -> None:
    server = paged()
    outer = Starlette(routes=[Mount("/tools", app=server.asgi())], lifespan=server.running)
    async with served(outer) as base:
        assert (await get(base, "/tools/status?a=1")).json()["query"] == {"a": "1"}
        assert (await get(base, "/tools/healthz")).text == "ok\n"
        assert (await post(base, call("hello"), path="/tools/mcp")).status_code == 200


def test_a_page_that_cannot_be_is_refused() -> None:
    server = Server("s")
    with pytest.raises(UsageError, match="begins with a slash"):
        server.route("status")
    with pytest.raises(UsageError, match="methods is a list"):
        server.route("/status", methods="GET")(lambda request: request)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="not used as a decorator"):
        server.route("/x", app=other_application())(lambda request: request)  # type: ignore[arg-type,return-value]
