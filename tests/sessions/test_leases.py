"""When the stream of another process is taken to be lost."""

import asyncio
import json
import time
from pathlib import Path

import httpx2
import pytest

from ekiden import Context, Server
from ekiden.sessions import logs
from tests.serving import PATIENCE, served

from .test_limits import ACCEPT, initialize

AHEAD_SECONDS = 60.0
"""Far more than a lease."""


def working(store: str, ahead: float, over: asyncio.Event | None = None) -> Server:
    """Its tool ends after a while, or when `over` is set."""
    server = Server("s", store=store, clock=lambda: time.time() + ahead)

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        if over is not None:
            await over.wait()
        else:
            await asyncio.sleep(2.5)  # Longer than a lease is watched that has run out.
        return "done"

    return server


async def begun(base: str, session: str) -> str:
    """Call the tool and leave; the id of the event that was seen last."""
    params = {"name": "work", "arguments": {}, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**ACCEPT, "mcp-session-id": session}
    last = ""
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
        client.stream("POST", base + "/mcp", json=message, headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            last = line.removeprefix("id: ") if line.startswith("id: ") else last
            if line.startswith("data: {"):
                return last
    raise AssertionError("no event came")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_process_whose_lease_is_late_but_renewed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str
) -> None:
    """As it is after the store was away, and where the clocks of two machines differ."""
    monkeypatch.setattr(logs, "_RENEW_SECONDS", 0.2)
    monkeypatch.setattr(logs, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(logs, "_LATE_SECONDS", 1.5)
    store = f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else request.getfixturevalue("database")
    async with (
        served(working(store, 0.0)) as one,
        served(working(store, AHEAD_SECONDS)) as other,
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
    ):
        session: str = (await initialize(one)).headers["mcp-session-id"]
        last = await begun(one, session)
        headers = {"accept": "text/event-stream", "mcp-session-id": session, "last-event-id": last}
        response = await client.get(other + "/mcp", headers=headers)
    said = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert [message["result"]["content"][0]["text"] for message in said] == ["done"]


@pytest.mark.parametrize("ahead", [0.0, AHEAD_SECONDS, -AHEAD_SECONDS])
async def test_a_process_that_is_gone_is_given_up_in_time_whatever_its_clock_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    monkeypatch.setattr(logs, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(logs, "_LEASE_SECONDS", 0.5)
    monkeypatch.setattr(logs, "_LATE_SECONDS", 0.3)
    monkeypatch.setattr(logs, "_RENEW_SECONDS", 600.0)  # As if it had been killed after its first event.
    store, over = f"sqlite:///{tmp_path}/s.db", asyncio.Event()
    async with (
        served(working(store, ahead, over)) as gone,
        served(working(store, 0.0)) as other,
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
    ):
        session: str = (await initialize(gone)).headers["mcp-session-id"]
        last = await begun(gone, session)
        headers = {"accept": "text/event-stream", "mcp-session-id": session, "last-event-id": last}
        response = await client.get(other + "/mcp", headers=headers)
        over.set()
    said = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert ["send the request again" in message["error"]["message"] for message in said] == [True]
