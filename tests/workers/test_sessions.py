"""Clients of 2025 and several workers: a session is found, whichever worker the kernel chose."""

import asyncio
import os
import signal
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp_types import CallToolResult, ElicitResult, TextContent

from ekiden import Client
from scripts.ports import free_port
from tests.cli.driving import Running, eventually, running

pytestmark = pytest.mark.xdist_group("sessions")  # Workers are started once, not by every process that tests.

SERVER = Path(__file__).with_name("sessions_server.py")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("sessions") / "log"
    with running(log, "run", str(SERVER), "--workers", "3", "--port", str(port), forks=False) as command:
        command.await_saying("is served at")
        eventually(lambda: len(workers_of(command)) == 3, "three workers")
        eventually(lambda: len(sockets_of(command)) == 3, "three sockets")
        yield command


def workers_of(command: Running) -> set[int]:
    return {child.pid for child in psutil.Process(command.process.pid).children()}


def sockets_of(command: Running) -> list[Path]:
    """The sockets at which the workers of a command find each other."""
    paths: list[Path] = []
    for pid in workers_of(command):
        try:
            held = psutil.Process(pid).net_connections("unix")
        except psutil.NoSuchProcess:
            continue
        paths += [Path(str(c.laddr)) for c in held if "ekiden-" in str(c.laddr) and c.status != "ESTABLISHED"]
    return sorted(set(paths))


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def say_name(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": params.message.removeprefix("Repeat ")})


async def test_a_hundred_of_a_hundred_calls_with_asks_end_right(three: Running, port: int) -> None:
    async def four_calls(number: int) -> list[str]:
        async with Client(url(port), mode="legacy", elicit=say_name) as client:
            words = [f"{number}-{turn}" for turn in range(4)]
            return [text(await client.call_tool("twice", {"word": word})) for word in words]

    async with asyncio.timeout(120):
        said = await asyncio.gather(*(four_calls(number) for number in range(25)))
    right = [f"{number}-{turn} {number}-{turn}!" for number in range(25) for turn in range(4)]
    ended = [line.rpartition(" by ") for lines in said for line in lines]
    assert [answer for answer, _, _ in ended] == right
    served = Counter(int(pid) for _, _, pid in ended)
    assert set(served) == workers_of(three)
    assert all(len({line.rpartition(" by ")[2] for line in lines}) == 1 for lines in said)


async def post(port: int, message: dict[str, Any], **headers: str) -> httpx2.Response:
    """Send one message over a connection of its own, so that any worker may get it."""
    named = {**ACCEPT, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        return await client.post(url(port), json=message, headers=named)


async def opened(port: int) -> str:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    response = await post(port, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    assert response.status_code == 200
    session: str = response.headers["mcp-session-id"]
    return session


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def test_whichever_worker_is_reached_the_owner_answers(three: Running, port: int) -> None:
    session = await opened(port)
    pids: set[str] = set()
    for _ in range(20):
        response = await post(port, tool_call("who"), mcp_session_id=session)
        assert response.status_code == 200
        pids.add(response.json()["result"]["content"][0]["text"])
    assert len(pids) == 1


async def test_a_stream_passes_as_it_comes(three: Running, port: int) -> None:
    session = await opened(port)
    for _ in range(6):  # At least one of them by another worker, all but certainly.
        message = tool_call("counting")
        message["params"]["_meta"] = {"progressToken": 7}
        async with (
            httpx2.AsyncClient(timeout=20, trust_env=False) as client,
            client.stream(
                "POST", url(port), json=message, headers={**ACCEPT, "mcp-session-id": session}
            ) as response,
        ):
            assert response.headers["content-type"] == "text/event-stream"
            whole = "".join([chunk async for chunk in response.aiter_text()])
        assert whole.count("notifications/progress") == 3
        assert '"text":"counted"' in whole


async def test_a_session_can_be_ended_through_any_worker(three: Running, port: int) -> None:
    for _ in range(6):
        session = await opened(port)
        async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
            ended = await client.delete(url(port), headers={"mcp-session-id": session})
        assert ended.status_code == 200
        assert (await post(port, tool_call("who"), mcp_session_id=session)).status_code == 404


@pytest.mark.parametrize("session", ["00000000.abc", "../../etc.x", "deadbeef", "x" * 4000, "0badf00d./../x"])
async def test_a_session_of_no_worker_is_not_found(three: Running, port: int, session: str) -> None:
    assert (await post(port, tool_call("who"), mcp_session_id=session)).status_code == 404


async def test_only_the_user_who_runs_them_can_reach_the_workers(three: Running, port: int) -> None:
    for path in sockets_of(three):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_when_its_worker_died_a_session_is_not_found_and_the_client_begins_anew(
    three: Running, port: int
) -> None:
    async with Client(url(port), mode="legacy", elicit=say_name) as client:
        owner = text(await client.call_tool("who"))
        session = await session_of(owner, port)
        os.kill(int(owner), signal.SIGKILL)
        three.await_saying(f"worker {owner} was ended by SIGKILL")
        eventually(lambda: len(workers_of(three) - {int(owner)}) == 3, "a new worker")
        for _ in range(6):
            response = await post(port, tool_call("who"), mcp_session_id=session)
            assert response.status_code == 404
        answer, _, served_by = text(await client.call_tool("twice", {"word": "on"})).rpartition(" by ")
        assert (answer, served_by != owner) == ("on on!", True)


async def session_of(owner: str, port: int) -> str:
    """A session in one certain worker."""
    for _ in range(100):
        session = await opened(port)
        response = await post(port, tool_call("who"), mcp_session_id=session)
        if response.json()["result"]["content"][0]["text"] == owner:
            return session
    raise AssertionError("a hundred connections never reached that worker")
