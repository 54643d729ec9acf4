"""`ekiden run` while somebody writes a server: what the terminal says, and what callers get meanwhile."""

import asyncio
import re
import signal
from pathlib import Path

import httpx2
import pytest

from ekiden import Client
from scripts.ports import free_port
from tests.serving import call, headers_for

from .driving import PATIENCE, Running, ekiden, running
from .test_run import url

SLOW = """
import asyncio
from ekiden import Server

server = Server("slow")


@server.tool
async def nap(seconds: float) -> str:
    print("asleep", flush=True)
    with open("asleep", "w"):
        pass
    await asyncio.sleep(seconds)
    return "awake"
"""


def post(port: int, tool: str = "nap") -> httpx2.Response:
    message = call(tool, {"seconds": 0})
    return httpx2.post(url(port), json=message, headers=headers_for(message), timeout=PATIENCE)


# A file that cannot be loaded, under --reload


@pytest.mark.parametrize("workers", ["1", "2"])
def test_callers_of_a_broken_file_are_told_what_is_wrong_until_it_is_mended(
    tmp_path: Path, workers: str
) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    options = ("--port", str(port), "--reload", "--workers", workers)
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        file.write_text("import os\n\ndef nap(:\n    pass\n")
        command.await_saying("waiting for a change")
        for _ in range(3):
            refused = post(port)
            assert refused.status_code == 503
            assert refused.json()["error"]["message"] == (
                "slow.py cannot be loaded: SyntaxError: invalid syntax (line 3 of slow.py)"
            )
        assert "    def nap(:\n            ^\nSyntaxError: invalid syntax\n" in command.said
        file.write_text(SLOW)
        command.await_saying("slow is served at", times=2)
        assert post(port).json()["result"]["content"][0]["text"] == "awake"


def test_the_trace_of_a_broken_file_shows_the_users_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def outer():\n    return inner()\n\n\ndef inner():\n    return 1 / 0\n\n\nouter()\n")
    with running(tmp_path / "log", "run", str(file), "--port", str(free_port()), "--reload") as command:
        command.await_saying("waiting for a change")
        lines = [line.strip() for line in command.said.splitlines() if line.startswith("  File")]
        assert lines == [
            f'File "{file}", line 9, in <module>',
            f'File "{file}", line 2, in outer',
            f'File "{file}", line 6, in inner',
        ]
        assert "ZeroDivisionError: division by zero\n" in command.said


async def test_a_client_that_sends_nothing_does_not_hold_up_the_others(tmp_path: Path) -> None:
    file, port = tmp_path / "broken.py", free_port()
    file.write_text("def (")
    with running(tmp_path / "log", "run", str(file), "--port", str(port), "--reload") as command:
        command.await_saying("waiting for a change")
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        try:
            assert (await asyncio.to_thread(post, port)).status_code == 503
        finally:
            silent.close()


# The access log


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_access_log_has_a_line_for_each_response(tmp_path: Path, workers: str) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    options = ("--port", str(port), "--workers", workers, "--access-log")
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        await asyncio.to_thread(post, port)
        command.await_saying("POST /mcp 200 tools/call nap")
        async with Client(url(port), mode="legacy") as client:
            await client.call_tool("nap", {"seconds": 0})
        command.await_saying("POST /mcp 200 tools/call nap", times=2)
        nowhere = httpx2.get(f"http://127.0.0.1:{port}/else%0A%1B[2J", timeout=PATIENCE)
        assert nowhere.status_code == 404
        command.await_saying("GET /else??[2J 404 ")


ASKS = """
from ekiden import Context, Pages, Server
server = Server("asks", store="memory:", pages=Pages("http://127.0.0.1:{port}", wait_seconds=0.0))
@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Well?", bool)).action
"""


def test_the_access_log_has_no_link_that_opens_a_question(tmp_path: Path) -> None:
    file, port = tmp_path / "asks.py", free_port()
    file.write_text(ASKS.format(port=port))
    options = ("--port", str(port), "--access-log")
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("asks is served at")
        message = call("ask")
        answer = httpx2.post(url(port), json=message, headers=headers_for(message), timeout=PATIENCE)
        found = re.search(r"http://127.0.0.1:\d+/ask/(\w{32}\.[\w-]{43})", answer.text)
        assert found is not None
        assert httpx2.get(found[0], timeout=PATIENCE).status_code == 200
        command.await_saying("GET /ask/... 200 ")
        assert found[1] not in command.said


def test_without_the_option_there_is_no_access_log(tmp_path: Path) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    with running(tmp_path / "log", "run", str(file), "--port", str(port), cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        assert post(port).status_code == 200
        assert command.stop(signal.SIGINT) == 130
        assert "tools/call" not in command.said


async def test_the_access_log_says_that_a_client_left(tmp_path: Path) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    options = ("--port", str(port), "--access-log")
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        message = call("nap", {"seconds": 30})
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            posting = asyncio.ensure_future(http.post(url(port), json=message, headers=headers_for(message)))
            await _until(tmp_path / "asleep")
            posting.cancel()
            await asyncio.wait({posting})
        command.await_saying("POST /mcp left tools/call nap")


def test_the_access_log_is_not_for_stdio(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    refused = ekiden("run", str(file), "--stdio", "--access-log")
    assert refused.returncode == 2
    assert "--access-log" in refused.stderr
    assert "about HTTP: leave --stdio out" in refused.stderr


# Ctrl-C


async def _until(file: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while not file.exists():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_ctrl_c_says_which_calls_it_waits_for(tmp_path: Path, workers: str) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    options = ("--port", str(port), "--workers", workers, "--grace", "20")
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        async with Client(url(port)) as client:
            calling = asyncio.ensure_future(client.call_tool("nap", {"seconds": 2}))
            await _until(tmp_path / "asleep")
            command.process.send_signal(signal.SIGINT)
            await asyncio.to_thread(
                command.await_saying,
                "Waiting up to 20 s for 1 running call (tools/call nap); Ctrl-C again ends at once",
            )
            assert (await calling).content[0].text == "awake"  # type: ignore[union-attr]
        assert await asyncio.to_thread(_ended, command) == 130


def _ended(command: Running) -> int:
    return command.process.wait(PATIENCE)


TASKS = """
import time
from ekiden import Context, Server

server = Server("tasks", store="memory:")


def work() -> str:
    with open("asleep", "w"):
        pass
    time.sleep(1.5)
    return "done"


@server.tool(task="required")
async def build(ctx: Context) -> str:
    return await ctx.step(work)
"""


async def test_ctrl_c_says_which_steps_of_tasks_it_waits_for(tmp_path: Path) -> None:
    file, port = tmp_path / "tasks.py", free_port()
    file.write_text(TASKS)
    options = ("--port", str(port), "--grace", "20")
    with running(tmp_path / "log", "run", str(file), *options, cwd=tmp_path) as command:
        command.await_saying("tasks is served at")
        async with Client(url(port)) as client:
            await client.start_tool("build")
        await _until(tmp_path / "asleep")
        assert command.stop(signal.SIGINT) == 130
        assert "Waiting up to 20 s for the running steps of tasks (build)" in command.said


def test_an_idle_server_ends_without_a_word(tmp_path: Path) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SLOW)
    with running(tmp_path / "log", "run", str(file), "--port", str(port), cwd=tmp_path) as command:
        command.await_saying("slow is served at")
        assert command.stop(signal.SIGINT) == 130
        assert len(command.said.splitlines()) == 1
