"""One server in several event loops, one after the other: as in tests, each of which has its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from ekiden import Context, Server
from ekiden.testing import ScriptedClient
from tests.eras.old_client import ACCEPT, hello
from tests.serving import call, headers_for, request


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.filterwarnings("ignore:.* was deleted while still open:ResourceWarning")
def test_tasks_run_in_a_later_event_loop(
    store: str, tmp_path: object, request: pytest.FixtureRequest
) -> None:
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/tasks.db"}.get(store)
    url = url or request.getfixturevalue("database")
    server = Server("shop", keys=[b"a key for tests that is long enough"], store=url)

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "done"

    async def call() -> str:
        async with asyncio.timeout(20):
            result = await ScriptedClient(server, tasks=True).call_tool("work")
        return str(result["content"][0]["text"])

    assert [asyncio.run(call()) for _ in range(3)] == ["done"] * 3


def test_the_lifespan_is_entered_in_every_event_loop() -> None:
    entered: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        entered.append(asyncio.get_running_loop())
        yield

    server = Server("shop", lifespan=lifespan)

    @server.tool
    async def here() -> bool:
        return asyncio.get_running_loop() is entered[-1]

    async def call() -> bool:
        return bool((await ScriptedClient(server).call_tool("here"))["structuredContent"])

    assert [asyncio.run(call()) for _ in range(2)] == [True, True]
    assert len(entered) == 2


@pytest.mark.parametrize("era", ["2026", "2025"])
def test_a_mounted_server_that_nobody_starts_notices_another_event_loop(era: str) -> None:
    """As `httpx` with an ASGI application does it in tests: there are no lifespan events."""
    entered: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        entered.append(asyncio.get_running_loop())
        yield

    server = Server("shop", keys=[b"a key for tests that is long enough"], lifespan=lifespan, store="memory:")

    @server.tool
    async def here() -> bool:
        return asyncio.get_running_loop() is entered[-1]

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "done"

    application = server.asgi()

    async def asked(http: httpx2.AsyncClient, message: dict[str, object], headers: dict[str, str]) -> object:
        async with asyncio.timeout(20):
            response = await http.post("http://localhost/mcp", json=message, headers=headers)
        return response.json()["result"]

    async def is_here() -> object:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application)) as http:
            if era == "2025":
                response = await http.post("http://localhost/mcp", json=hello(), headers=ACCEPT)
                session = {"mcp-session-id": response.headers["mcp-session-id"]}
                named = {**ACCEPT, **session, "mcp-protocol-version": "2025-11-25"}
                return await asked(http, request("tools/call", {"name": "here"}), named)
            message = call("here")
            return await asked(http, message, headers_for(message))

    for number in (1, 2, 3):
        told = asyncio.run(is_here())
        assert isinstance(told, dict)
        assert told["content"][0]["text"] == "true"
        assert len(entered) == number
