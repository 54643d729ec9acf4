"""The official client signs in at a small identity provider; then nginx is put in between."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scripts.nginx import running_nginx
from scripts.ports import free_port
from tests.identity_provider import IdentityProvider
from tests.serving import PATIENCE, call, events, headers_for, post

from .running import HERE, ROOT, RUN_SECONDS, require


@asynccontextmanager
async def guarded(
    issuer: str, resource: str, port: int, *options: str
) -> AsyncGenerator[Callable[[], str], None]:
    """`ekiden run examples/guarded.py` in a process of its own; what it has printed so far."""
    command = [sys.executable, "-m", "ekiden.cli", "run", str(ROOT / "examples" / "guarded.py")]
    environment = {**os.environ, "ISSUER": issuer, "RESOURCE": resource, "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--port", str(port), *options),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = bytearray()

    async def read(stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            printed.extend(line)

    reading = asyncio.create_task(read(process.stdout))
    try:
        async with asyncio.timeout(PATIENCE * 2):
            while b"is served at" not in printed:
                assert process.returncode is None, printed.decode()
                await asyncio.sleep(0.02)
        yield printed.decode
    finally:
        process.terminate()
        await process.wait()
        await reading


async def signed_in(url: str, plan: list[Any], mode: str) -> Any:
    require(ROOT / ".peers" / "mcp")
    process = await asyncio.create_subprocess_exec(
        *(str(ROOT / ".peers" / "mcp" / "bin" / "python"), str(HERE / "signing_in.py"), url, mode),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(RUN_SECONDS):
        printed, complaints = await process.communicate(json.dumps(plan).encode())
    assert process.returncode == 0, complaints.decode()
    return json.loads(printed)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_signs_in_from_nothing_but_the_url(mode: str) -> None:
    async with IdentityProvider().running() as idp:
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        async with guarded(idp.issuer, url, port) as printed:
            seen = await signed_in(
                url, [("whoami", {}), ("refund", {"order_id": "7"})][: 1 + (mode == "auto")], mode
            )
            if mode == "auto":
                assert printed().count("reserved 7") == 1
                assert printed().count("paid 7 back to zoe") == 1
    assert seen["tools"] == ["whoami", "refund"]
    assert seen["answers"][0] == "zoe from 127.0.0.1, may shop:read"
    assert seen["asked for"][0] == "shop:read"
    if mode == "auto":
        # In the middle of the call it asked for more, and the call went on.
        assert seen["answers"][1] == "Refunded 7."
        assert [set(scopes.split()) for scopes in seen["asked for"]] == [
            {"shop:read"},
            {"shop:read", "shop:pay"},
        ]


@pytest.fixture
async def behind_nginx(tmp_path: Path) -> AsyncGenerator[tuple[IdentityProvider, str], None]:
    front, back = free_port(), free_port()
    conf = (ROOT / "examples" / "guarded.nginx.conf").read_text()
    conf = conf.replace("127.0.0.1:8080", f"127.0.0.1:{front}").replace(":8000", f":{back}")
    resource = f"http://127.0.0.1:{front}/shop/mcp"
    async with IdentityProvider().running() as idp:
        with running_nginx(conf, tmp_path, front):
            async with guarded(idp.issuer, resource, back, "--trust-proxy", "127.0.0.1"):
                yield idp, resource


async def test_behind_nginx_clients_sign_in_and_streams_pass(
    behind_nginx: tuple[IdentityProvider, str],
) -> None:
    _, resource = behind_nginx
    seen = await signed_in(resource, [("whoami", {}), ("refund", {"order_id": "8"})], "auto")
    assert seen["answers"] == ["zoe from 127.0.0.1, may shop:read", "Refunded 8."]


async def test_behind_nginx_the_client_is_known_by_its_own_address(
    behind_nginx: tuple[IdentityProvider, str],
) -> None:
    idp, resource = behind_nginx
    message = call("whoami", progressToken="p")
    token = idp.token(aud=resource, scope="shop:read")
    headers = {
        **headers_for(message),
        "authorization": f"Bearer {token}",
        "x-forwarded-for": "9.9.9.9",
        "x-ekiden-address": "8.8.8.8",
    }
    transport = httpx2.AsyncHTTPTransport(local_address="127.0.0.5")
    async with httpx2.AsyncClient(transport=transport) as http:
        answer = await http.post(resource, json=message, headers=headers)
    progress, result = events(answer.text)
    assert progress["method"] == "notifications/progress"
    assert result["result"]["content"][0]["text"].startswith("zoe from 127.0.0.5,")
    refused = await post(resource.removesuffix("/mcp"), message)
    assert refused.status_code == 401
    where = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
    async with httpx2.AsyncClient(trust_env=False) as http:
        assert (await http.get(where)).json()["resource"] == resource
