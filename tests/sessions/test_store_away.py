"""What clients of 2025 are told while the store of their sessions is away."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ekiden import Server, StoreUnavailable
from ekiden.stores.sqlite.sessions import SQLiteSessions
from tests.serving import served

from .test_limits import ACCEPT, initialize

ANSWER = {"jsonrpc": "2.0", "id": 12345, "result": {"action": "decline"}}
"""To a question that is not open here: it is looked for in the store."""
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay"}}


def paying(folder: Path) -> tuple[Server, list[str]]:
    server, paid = Server("s", store=f"sqlite:///{folder}/s.db"), list[str]()

    @server.tool
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    return server, paid


async def post(base: str, session: str, message: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        return await client.post(base + "/mcp", json=message, headers={**ACCEPT, "mcp-session-id": session})


async def test_a_call_gets_its_answer_although_another_message_of_its_session_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 503 says that nothing was done: a client that repeats the call would pay twice."""
    looked, fails = asyncio.Event(), asyncio.Event()

    async def away(*_: Any) -> bool:
        looked.set()
        await fails.wait()
        raise StoreUnavailable("gone")

    monkeypatch.setattr(SQLiteSessions, "answer", away)
    server, paid = paying(tmp_path)
    async with served(server) as base, asyncio.timeout(20):
        session = (await initialize(base)).headers["mcp-session-id"]
        answering = asyncio.create_task(post(base, session, ANSWER))
        await looked.wait()
        called = await post(base, session, CALL)  # Does not wait for the other message, either.
        fails.set()
        answered = await answering
    assert (called.status_code, called.json()["result"]["content"][0]["text"]) == (200, "paid")
    assert (answered.status_code, paid) == (503, ["paid"])


async def test_a_batch_that_gets_a_503_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> bool:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(SQLiteSessions, "answer", away)
    server, paid = paying(tmp_path)
    async with served(server) as base:
        session = (await initialize(base, speaks="2025-03-26")).headers["mcp-session-id"]
        refused = await post(base, session, [CALL, ANSWER])
    assert (refused.status_code, paid) == (503, [])


async def test_an_answer_goes_on_to_its_process_although_its_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, goes_on, kept = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*_: Any) -> bool:
        looked.set()
        await goes_on.wait()
        kept.set()
        return True

    monkeypatch.setattr(SQLiteSessions, "answer", slow)
    server, _ = paying(tmp_path)
    async with served(server) as base, asyncio.timeout(20):
        session = (await initialize(base)).headers["mcp-session-id"]
        answering = asyncio.create_task(post(base, session, ANSWER))
        await looked.wait()
        answering.cancel()
        await asyncio.wait({answering})
        goes_on.set()
        await kept.wait()
