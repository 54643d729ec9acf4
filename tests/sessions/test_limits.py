"""Sessions in a store have the limits that those in memory have, over all processes."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ekiden import CallNext, HttpLimits, Outcome, Request, Server, SessionLimits, StoreUnavailable
from ekiden.server.legacy import sessions
from ekiden.stores.sqlite.sessions import SQLiteSessions
from tests.serving import served, soon

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def server(folder: Path, **limits: Any) -> Server:
    return Server("s", store=f"sqlite:///{folder}/s.db", sessions=SessionLimits(**limits))


async def initialize(base: str, speaks: str = "2025-11-25", **client_info: str) -> httpx2.Response:
    hello = {
        "protocolVersion": speaks,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1", **client_info},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        return await client.post(base + "/mcp", json=message, headers=ACCEPT)


async def ping(base: str, session: str) -> int:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        headers = {**ACCEPT, "mcp-session-id": session}
        return (await client.post(base + "/mcp", json=message, headers=headers)).status_code


async def test_the_sessions_of_all_processes_count(tmp_path: Path) -> None:
    async with served(server(tmp_path, sessions=2)) as one, served(server(tmp_path, sessions=2)) as other:
        statuses = [(await initialize(base)).status_code for base in (one, other, one)]
    assert statuses == [200, 200, 503]


async def test_a_session_that_made_room_is_gone_in_every_process(tmp_path: Path) -> None:
    limits = {"sessions": 1, "busy_seconds": 0.0}
    async with served(server(tmp_path, **limits)) as one, served(server(tmp_path, **limits)) as other:
        first = (await initialize(one)).headers["mcp-session-id"]
        second = (await initialize(one)).headers["mcp-session-id"]
        assert [await ping(base, first) for base in (one, other)] == [404, 404]
        assert [await ping(base, second) for base in (one, other)] == [200, 200]


async def test_a_session_in_which_a_call_runs_does_not_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it runs, and also for a client of another process."""
    monkeypatch.setattr(sessions, "_SHORTEST_SWEEP", 0.01)
    limits = {"sessions": 1, "busy_seconds": 2.0}
    busy, may_end = server(tmp_path, **limits), asyncio.Event()

    @busy.tool
    async def work() -> str:
        await may_end.wait()
        return "done"

    async with (
        served(busy) as one,
        served(server(tmp_path, **limits)) as other,
        httpx2.AsyncClient(timeout=20, trust_env=False) as client,
    ):
        headers = {**ACCEPT, "mcp-session-id": (await initialize(one)).headers["mcp-session-id"]}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work"}}
        working = asyncio.create_task(client.post(one + "/mcp", json=message, headers=headers))
        await asyncio.sleep(1.5 * limits["busy_seconds"])
        statuses = [(await initialize(base)).status_code for base in (one, other)]
        may_end.set()
        assert (statuses, "done" in (await working).text) == ([503, 503], True)


async def test_an_unused_session_expires_in_the_store(tmp_path: Path) -> None:
    now = 1000.0
    store = f"sqlite:///{tmp_path}/s.db"
    server = Server("s", store=store, clock=lambda: now)
    async with served(server) as base:
        session = (await initialize(base)).headers["mcp-session-id"]
    now += 1799.0
    async with served(Server("s", store=store, clock=lambda: now)) as base:
        assert await ping(base, session) == 200
    now += 1801.0
    async with served(Server("s", store=store, clock=lambda: now)) as base:
        assert await ping(base, session) == 404


async def test_the_session_of_one_server_is_unknown_to_another_with_the_same_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    async with served(Server("one", store=store)) as one, served(Server("other", store=store)) as other:
        session = (await initialize(one)).headers["mcp-session-id"]
        assert [await ping(base, session) for base in (one, other)] == [200, 404]


async def test_little_is_stored_of_a_client_that_says_too_much_about_itself(tmp_path: Path) -> None:
    async with served(server(tmp_path)) as base:
        opened = await initialize(base, title="x" * 100_000)
        assert await ping(base, opened.headers["mcp-session-id"]) == 200
    (file,) = tmp_path.glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT max(length(data)) FROM sessions").fetchone()[0] < 30_000


async def test_a_session_that_was_sealed_with_a_lost_key_has_to_begin_anew(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    before = Server("s", store=store, seal_store=True, keys=[b"a" * 32])
    after = Server("s", store=store, seal_store=True, keys=[b"b" * 32])
    async with served(before) as one, served(after) as other:
        session = (await initialize(one)).headers["mcp-session-id"]
        assert [await ping(base, session) for base in (one, other)] == [200, 404]


@pytest.mark.parametrize("with_middleware", [False, True])
async def test_while_the_store_is_away_a_client_is_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_middleware: bool
) -> None:
    made = server(tmp_path)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    async def pass_on(request: Request, call_next: CallNext) -> Outcome:
        return await call_next(request)

    if with_middleware:
        made.middleware(pass_on)
    async with served(made) as base:
        with monkeypatch.context() as patched:
            patched.setattr(SQLiteSessions, "add", away)
            refused = await initialize(base)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert (await initialize(base)).status_code == 200


def _bytes_of_events(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "s.db")) as connection:
        return int(connection.execute("SELECT coalesce(sum(length(data)), 0) FROM events").fetchone()[0])


async def test_what_is_kept_of_streams_is_bounded_in_the_store_too(tmp_path: Path) -> None:
    made = server(tmp_path)

    @made.tool
    async def large() -> str:
        return "x" * 50_000

    async def call(base: str) -> tuple[str, str]:
        """Read a stream to its end: its session, and the id of its first event."""
        session = (await initialize(base)).headers["mcp-session-id"]
        headers = {**ACCEPT, "accept": "text/event-stream, application/json", "mcp-session-id": session}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "large"}}
        async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
            answer = await client.post(base + "/mcp", json=message, headers=headers)
        return session, next(line[4:] for line in answer.text.splitlines() if line.startswith("id: "))

    async def resume(base: str, session: str, last: str) -> int:
        headers = {"accept": "text/event-stream", "mcp-session-id": session, "last-event-id": last}
        async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
            return (await client.get(base + "/mcp", headers=headers)).status_code

    async def bounded() -> None:
        while _bytes_of_events(tmp_path) > 300_000:
            await asyncio.sleep(0.01)

    limits = HttpLimits(kept_2025=300_000)
    async with served(made, limits=limits) as one, served(server(tmp_path), limits=limits) as other:
        streams = [await call(one) for _ in range(12)]
        await soon(bounded())
        (oldest, *_, newest) = streams
        assert [await resume(base, *oldest) for base in (one, other)] == [400, 400]
        assert [await resume(base, *newest) for base in (one, other)] == [200, 200]
