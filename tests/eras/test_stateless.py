"""Clients of 2025 without sessions: everything works but questions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ekiden import Context
from scripts.ports import free_port
from tests.cli.driving import running
from tests.serving import request as modern_request
from tests.serving import served, soon

from .handlers import make_server
from .old_client import ACCEPT, VERSIONS, call, events, notification, raw_client, request, text


@pytest.mark.parametrize("version", VERSIONS)
async def test_calls_work_without_a_session(version: str) -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        welcome = await client.open(version)
        assert client.session is None
        assert welcome["protocolVersion"] == version
        assert welcome["capabilities"]["tools"] == {}, "nobody can be told of changes"
        assert len((await client.ask("tools/list"))["result"]["tools"]) > 10
        assert text(await client.answered(call("add", a=1, b=2))) == '{"total":3}'
        assert (await client.ask("ping"))["result"] == {}
        assert (await client.ask("logging/setLevel", {"level": "debug"}))["result"] == {}
        assert (await client.ask("resources/subscribe", {"uri": "eras://paper"}))["error"]["code"] == -32601


async def test_no_handshake_is_needed_and_the_header_tells_the_version() -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        added = (await client.answered(call("add", a=1, b=2)))["result"]
        assert "structuredContent" not in added, "without a header it is 2025-03-26"
        client.version = "2025-06-18"
        assert (await client.answered(call("add", a=1, b=2)))["result"]["structuredContent"] == {"total": 3}
        assert (await client.send(request("ping"), mcp_protocol_version="2001-01-01")).status_code == 400


@pytest.mark.parametrize("tool", ["ask", "ask_three", "manual", "manual_thread", "open_page"])
async def test_a_question_is_refused_with_what_to_do(tool: str) -> None:
    everything = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    declared = {"io.modelcontextprotocol/clientCapabilities": everything}
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        await client.open()
        answered = await client.answered(call(tool, meta=declared))
        assert answered["result"]["isError"] is True
        assert "2026-07-28" in text(answered)
        assert "sessions" in text(answered)


async def test_progress_streams_without_ids_to_come_back_to() -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        await client.open()
        async with client.posting(call("tell", meta={"progressToken": 1})) as response:
            seen = [event async for event in events(response)]
        assert [event.id for event in seen] == [None] * 4


async def test_a_client_without_a_session_that_leaves_cancels_its_call() -> None:
    server, ended = make_server(stateless_2025=True), asyncio.Event()

    @server.tool
    async def linger(ctx: Context) -> str:
        """Wait to be cancelled."""
        await ctx.progress(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with served(server) as base, raw_client(base) as client:
        await client.open()
        async with client.posting(call("linger", meta={"progressToken": 1})) as response:
            await soon(anext(aiter(events(response))))
        await soon(ended.wait())


async def test_words_of_2026_in_an_argument_do_not_make_a_request_modern() -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        words = "io.modelcontextprotocol/protocolVersion"
        assert text(await client.answered(call("mirrored", region=words))) == words
        assert (await client.send([request("ping")])).json() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_there_is_nothing_to_get_or_to_delete() -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        for session in (None, "stale"):
            client.session = session
            assert (await client.end()).status_code == 405
            async with client.listening() as response:
                assert response.status_code == 405
        assert (await client.ask("ping"))["result"] == {}, "a stale session id is not minded"
        assert (await client.send(notification("notifications/initialized"))).status_code == 202


async def test_clients_of_2026_are_served_as_ever() -> None:
    async with served(make_server(stateless_2025=True)) as base, raw_client(base) as client:
        headers: dict[str, Any] = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
        answered = await client.http.post(client.url, json=modern_request("tools/list"), headers=headers)
        assert answered.json()["result"]["resultType"] == "complete"


def test_the_command_line_can_do_without_sessions(tmp_path: Path) -> None:
    port = free_port()
    handlers = tmp_path / "served.py"
    handlers.write_text(
        "from ekiden import Server\nserver = Server('plain')\n@server.tool\ndef one() -> str: return '1'\n"
    )
    with running(tmp_path / "log", "run", str(handlers), "--stateless-2025", "--port", str(port)) as command:
        command.await_saying("is served at")
        headers = {"accept": "application/json, text/event-stream"}
        answered = httpx2.post(
            f"http://127.0.0.1:{port}/mcp", json=call("one"), headers=headers, trust_env=False, timeout=60
        )
        assert text(answered.json()) == "1"


async def test_where_a_client_has_left_with_an_error_its_handler_is_cancelled() -> None:
    """Servers that speak ASGI 2.4 raise an `OSError` from `send` when the client is gone."""
    server = make_server(stateless_2025=True)
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold_on(ctx: Context) -> str:
        began.set()
        try:
            await ctx.progress(1)
            await asyncio.Event().wait()
            return "never"
        finally:
            ended.set()

    body = json.dumps(call("hold_on", meta={"progressToken": 1})).encode()

    async def receive() -> dict[str, Any]:
        if not began.is_set():
            return {"type": "http.request", "body": body}
        return await asyncio.Future()

    async def send(event: Any) -> None:
        if event.get("body"):
            raise OSError("the client has left")

    headers = [(name.encode(), value.encode()) for name, value in {**ACCEPT, "host": "localhost"}.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    async with server.running():
        await soon(server.asgi()(scope, receive, send))
        await soon(ended.wait())
