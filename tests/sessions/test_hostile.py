"""What a hostile client of 2025 sends to one of the processes that share its session."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from ekiden import Server
from tests.serving import PATIENCE, served

from .test_limits import ACCEPT, initialize

SUBSCRIBE = "resources/subscribe"
Two: TypeAlias = tuple[str, str, Server]


def noting(store: str) -> Server:
    server = Server("s", store=store)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return server


@pytest.fixture(params=["sqlite", "postgres"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Two, None]:
    """Two servers that share their sessions: where they are, and the second itself."""
    is_file = request.param == "sqlite"
    store = f"sqlite:///{tmp_path}/s.db" if is_file else request.getfixturevalue("database")
    second = noting(store)
    async with served(noting(store)) as one, served(second) as other:
        yield one, other, second


async def post(base: str, session: str, message: dict[str, Any]) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        headers = {**ACCEPT, "mcp-session-id": session}
        return await client.post(base + "/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)


async def opened(base: str) -> str:
    session: str = (await initialize(base)).headers["mcp-session-id"]
    return session


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, -(2**63), 0, 2**53])
async def test_an_answer_to_a_question_that_nobody_can_have_asked_is_dropped(two: Two, number: int) -> None:
    session = await opened(two[0])
    response = await post(two[1], session, {"id": number, "result": {}})
    assert response.status_code == 202


@contextlib.asynccontextmanager
async def told(base: str, session: str) -> AsyncGenerator[list[str], None]:
    """What a client is told outside of requests, as it comes."""
    headers = {"accept": "text/event-stream", "mcp-session-id": session}
    lines: list[str] = []
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
        client.stream("GET", base + "/mcp", headers=headers) as response,
    ):
        begun = asyncio.Event()

        async def read() -> None:
            async for line in response.aiter_lines():
                begun.set()
                if line.startswith("data: {"):
                    lines.append(line.removeprefix("data: "))

        reading = asyncio.create_task(read())
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        yield lines
        reading.cancel()


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/cancelled", "params": {"requestId": "x" * 20_000}},
        {"id": 1, "method": SUBSCRIBE, "params": {"uri": "\N{GRINNING FACE}" * 2048}},
        {"id": 1, "method": SUBSCRIBE, "params": {"uri": "\x01" * 2048}},
    ],
    ids=["cancelled", "wide", "escaped"],
)
async def test_what_is_too_long_for_the_bus_does_not_disturb_other_clients(
    two: Two, message: dict[str, Any]
) -> None:
    one, other, second = two
    victim, attacker = await opened(one), await opened(other)
    watch = {"id": 1, "method": SUBSCRIBE, "params": {"uri": "note://mine"}}
    assert (await post(one, victim, watch)).status_code == 200
    async with told(one, victim) as lines:
        for _ in range(3):
            await post(other, attacker, message)
        second.resource_updated("note://mine")  # Heard after all that was told before.
        async with asyncio.timeout(PATIENCE):
            while not lines:
                await asyncio.sleep(0.01)
    # It may come twice: a process that may have missed something tells of everything once more.
    assert {json.loads(line)["method"] for line in lines} == {"notifications/resources/updated"}
