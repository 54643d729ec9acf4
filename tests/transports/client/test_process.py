"""How a server on stdio is left: what it still asks, what it prints, and how long it may take to end."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import CallTimeout, Client
from ekiden.transports.client import process
from tests.serving import PATIENCE, soon

OLD_SERVER: Final = """
import json, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def ask(number):
    form = {"type": "object", "properties": {}}
    send(id=number, method="elicitation/create", params={"message": "?", "requestedSchema": form})

answered = False
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "server/discover":
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif method == "initialize":
        about = {"serverInfo": {"name": "old", "version": "1"}, "capabilities": {}}
        send(id=message["id"], result={"protocolVersion": "2025-11-25", **about})
    elif method is None:
        answered = True
    else:
        DEED
AFTER
"""


def server(deed: str, after: str) -> list[str]:
    source = OLD_SERVER.replace("DEED", deed.replace("\n", "\n        ")).replace("AFTER", after)
    return [sys.executable, "-c", source]


@pytest.fixture
def endless_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has to be waited for is waited for longer than the test is."""
    monkeypatch.setattr(process, "_GRACE_SECONDS", 3600.0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.usefixtures("endless_grace")
async def test_a_question_that_is_open_when_the_client_closes_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def think(params: ElicitRequestFormParams) -> ElicitResult:
        begun.set()
        await asyncio.sleep(3600)
        raise AssertionError

    waits_for_an_answer = "time.sleep(0 if answered else 3600)"
    command = server('if method == "notifications/initialized": ask(7)', waits_for_an_answer)
    async with asyncio.timeout(PATIENCE), Client(command, elicit=think):
        await begun.wait()
    assert warnings(caplog) == []


@pytest.mark.usefixtures("endless_grace")
async def test_a_server_that_asks_when_the_client_has_closed_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asyncio.timeout(PATIENCE), Client(server("pass", "ask(7); time.sleep(3600)")):
        pass
    assert warnings(caplog) == []


@pytest.mark.usefixtures("endless_grace")
async def test_when_time_is_up_a_server_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    never_ends = server("pass", "time.sleep(3600)")

    connected = asyncio.Event()

    async def call(timeout: float) -> None:
        async with Client(never_ends) as client:
            connected.set()
            await client.call_tool("any", timeout=timeout)

    with pytest.raises(CallTimeout):
        await soon(call(0.1))
    connected.clear()
    calling = asyncio.create_task(call(PATIENCE))
    await soon(connected.wait())
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(calling)
    assert warnings(caplog) == []


def left_behind(pid_file: Path, *, session: bool) -> list[str]:
    """A server that ends when it should, and leaves a process behind that holds its output open."""
    start = (
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], "
    )
    start += f"stdin=subprocess.DEVNULL, start_new_session={session})"
    return server("pass", f"{start}; open({str(pid_file)!r}, 'w').write(str(child.pid))")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits only for somebody to take notice of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.usefixtures("endless_grace")
async def test_what_a_server_leaves_behind_ends_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = left_behind(tmp_path / "pid", session=False)
    async with asyncio.timeout(PATIENCE), Client(command):
        pass
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(PATIENCE):
        while not has_ended(pid):
            await asyncio.sleep(0.01)
    assert warnings(caplog) == []


@pytest.mark.usefixtures("endless_grace")
async def test_a_process_that_has_left_the_servers_group_is_neither_waited_for_nor_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    try:
        async with asyncio.timeout(PATIENCE), Client(left_behind(tmp_path / "pid", session=True)):
            pass
        await asyncio.sleep(0)  # A pipe is closed in the loop's next turn.
        assert sorted(os.listdir("/proc/self/fd")) == before
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert warnings(caplog) == []


async def test_garbage_is_told_once_and_counted_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    prints = 'for _ in range(50): print("loading ...")\nsend(id=message.get("id"), result={"content": []})'
    async with asyncio.timeout(PATIENCE), Client(server(prints, "")) as client:
        await client.call_tool("any")
        assert len(warnings(caplog)) == 1
        assert "a line that is not a message" in warnings(caplog)[0]
    assert warnings(caplog)[1:] == ["The server sent 100 lines that are not messages"]


TELLS_ENVIRONMENT: Final = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    told = json.dumps(dict(os.environ))
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "instructions": told}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def environment_of_a_server(env: dict[str, str] | None) -> dict[str, str]:
    async with Client([sys.executable, "-I", "-c", TELLS_ENVIRONMENT], env=env, timeout=PATIENCE) as client:
        told: dict[str, str] = json.loads(client.session.instructions or "")
        return told


async def test_a_server_gets_no_secret_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EKIDEN_KEYS", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("SHELL", "() { :; }; echo owned")
    monkeypatch.setenv("TZ", "UTC")
    told = await environment_of_a_server(None)
    assert set(told) <= {*process._INHERITED, "__CF_USER_TEXT_ENCODING"}
    assert told["PATH"] == os.environ["PATH"]
    assert told["TZ"] == "UTC"
    assert "SHELL" not in told


async def test_a_server_gets_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    told = await environment_of_a_server({"API_KEY": "k", "TZ": "Asia/Tokyo"})
    assert (told["API_KEY"], told["TZ"], told["PATH"]) == ("k", "Asia/Tokyo", os.environ["PATH"])
