"""Trailers of a chunked request are not headers: a proxy that passes them on has not looked at them."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from ekiden import Context, Server
from tests.serving import call, headers_for, served, soon


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted with h11"])
async def test_trailers_are_left_out(mounted: bool) -> None:
    server = Server("s")

    @server.tool
    async def seen(ctx: Context) -> str:
        request = ctx.request
        return f"{request.header('x-forwarded-for')} {request.header('authorization')} {request.address}"

    body = json.dumps(call("seen")).encode()
    named = {
        **headers_for(call("seen")),
        "host": "localhost",
        "connection": "close",
        "transfer-encoding": "chunked",
        "x-forwarded-for": "1.1.1.1",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    trailers = b"x-forwarded-for: 6.6.6.6\r\nauthorization: Bearer smuggled\r\n"
    sent = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailers
    async with served(server, mounted=mounted, parser="h11", trusted_proxies=["127.0.0.1"]) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(base).port)
        writer.write(sent + b"\r\n")
        answer = await soon(reader.read())
        writer.close()
    assert b"1.1.1.1 None 1.1.1.1" in answer
