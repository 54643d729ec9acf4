"""`ekiden run`: over HTTP in one process and in several, over stdio, and what it says when it cannot."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_types import CallToolResult

from ekiden import Client, PendingCall
from ekiden.server.sealing.keys import new_key
from scripts.ports import free_port

from .driving import EKIDEN, PATIENCE, SHOP, Running, ekiden, environment, eventually, running


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


async def first_round(port: int, tool: str = "ten_rounds") -> PendingCall:
    async with Client(url(port), elicit=never) as client:
        pending = await client.start_tool(tool)
    assert isinstance(pending, PendingCall)
    return pending


async def next_round(port: int, pending: PendingCall) -> CallToolResult | PendingCall:
    """One round, by a client and over a connection of its own."""
    async with Client(url(port), elicit=never) as client:
        (key,) = pending.requests
        answer = {"action": "accept", "content": {"value": True}}
        return await client.resume(pending, {key: answer})


async def never(params: Any) -> Any:
    raise AssertionError("the answers are given by hand")


async def rest_of(port: int, pending: PendingCall) -> list[int]:
    """Drive a call to its end; the processes that served it."""
    ended: CallToolResult | PendingCall = pending
    while isinstance(ended, PendingCall):
        ended = await next_round(port, ended)
    served: list[int] = ended.structured_content  # type: ignore[assignment]
    assert len(served) == 10
    return served


def workers_of(command: Running) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(command.process.pid).children()}
    return set()


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers") / "log"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


THREE = pytest.mark.xdist_group("three workers")  # They are started once, not by every process that tests.


@pytest.fixture(scope="module")
def three(log: Path, port: int) -> Iterator[Running]:
    """Three workers with a key of the parent's making."""
    with running(log, "run", SHOP, "--workers", "3", "--port", str(port), forks=False) as command:
        command.await_saying("shop is served at")
        eventually(lambda: len(workers_of(command)) == 3, "three workers")
        yield command


@THREE
async def test_any_worker_goes_on_with_a_call(three: Running, port: int) -> None:
    assert f"by 3 workers of process {three.process.pid}" in three.said
    assert "no keys are set" in three.said
    # Who accepts a connection is up to the kernel, so one call may reach one worker only.
    for _ in range(20):
        served = await rest_of(port, await first_round(port))
        assert set(served) <= workers_of(three)
        if len(set(served)) > 1:
            return
    raise AssertionError("twenty calls of ten rounds never reached two workers")


@THREE
def test_the_command_line_calls_it_over_http(three: Running, port: int) -> None:
    done = ekiden("call", url(port), "ten_rounds", "--answer", "Round=yes", "--verbose", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["structuredContent"]) <= workers_of(three)
    assert done.stderr.splitlines()[-1].startswith("round 11: ")


@THREE
async def test_a_worker_that_is_killed_is_replaced_and_the_call_goes_on(three: Running, port: int) -> None:
    eventually(lambda: len(workers_of(three)) == 3, "three workers")
    before = workers_of(three)
    pending = await next_round(port, await first_round(port))
    assert isinstance(pending, PendingCall)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    three.await_saying(f"worker {victim} was ended by SIGKILL; another one starts in")
    eventually(lambda: len(workers_of(three) - {victim}) == 3, "a new worker")
    served = await rest_of(port, pending)
    assert victim not in served[3:]
    assert len(workers_of(three) - before) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_to_the_parent_ends_all_workers(tmp_path: Path, number: signal.Signals, code: int) -> None:
    port = free_port()
    with running(tmp_path / "log", "run", SHOP, "--workers", "2", "--port", str(port)) as command:
        command.await_saying("is served at")
        eventually(lambda: len(workers_of(command)) == 2, "two workers")
        workers = workers_of(command)
        assert command.stop(number) == code
        assert all(has_ended(pid) for pid in workers)
        assert "Traceback" not in command.said
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "log", "run", SHOP, "--workers", "2", "--port", str(free_port())) as command:
        command.await_saying("is served at")
        eventually(lambda: len(workers_of(command)) == 2, "two workers")
        workers = workers_of(command)
        command.stop(signal.SIGKILL)
        eventually(lambda: all(has_ended(pid) for pid in workers), "the workers end")
        assert "Traceback" not in command.said


async def test_keys_of_the_user_are_the_workers_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(new_key())
    port, log = free_port(), tmp_path / "log"
    arguments = ("run", SHOP, "--workers", "2", "--port", str(port), "--keys-file", str(keys))
    with running(log, *arguments, EKIDEN_KEYS=new_key()) as command:
        command.await_saying("is served at")
        pending = await first_round(port)
    with running(log, *arguments) as command:
        command.await_saying("is served at")
        assert "no keys are set" not in command.said
        assert isinstance(await next_round(port, pending), PendingCall)


async def test_one_process_serves_until_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "log", "run", f"{SHOP}:server", "--port", str(port)) as command:
        command.await_saying(f"shop is served at {url(port)}")
        async with Client(url(port)) as client:
            result = await client.call_tool("rows")
        assert isinstance(result.structured_content, list)
        assert command.stop(signal.SIGINT) == 130
        assert "Traceback" not in command.said


SAVED = """
from ekiden import Context, Server

server = Server("saved")


@server.tool(once=True)
async def version(ctx: Context) -> str:
    await ctx.elicit("Sure?", bool)
    return "VERSION"
"""


async def test_a_changed_file_is_served_anew_and_open_calls_go_on(tmp_path: Path) -> None:
    file, port = tmp_path / "saved.py", free_port()
    file.write_text(SAVED)
    store = f"sqlite:///{tmp_path / 'rounds.db'}"
    arguments = ("run", str(file), "--reload", "--port", str(port), "--store", store)
    with running(tmp_path / "log", *arguments) as command:
        command.await_saying("saved is served at")
        pending = await first_round(port, "version")
        file.write_text("def (")
        command.await_saying("saved.py cannot be loaded: SyntaxError")
        command.await_saying("waiting for a change")
        file.write_text(SAVED.replace("VERSION", "the new one"))
        command.await_saying("saved is served at", times=2)
        ended = await next_round(port, pending)
        assert isinstance(ended, CallToolResult)
        assert ended.content[0].text == "the new one"  # type: ignore[union-attr]
    assert (tmp_path / "rounds.db").exists()


PRIVATE = """
from ekiden import ProtocolError, Server

server = Server("private")


@server.tool
async def greet() -> str:
    return "hello"


@server.middleware
async def guard(request, call_next):
    if request.headers.get(b"authorization") != b"Bearer me":
        raise ProtocolError("Who are you?", code=-32001)
    return await call_next(request)
"""


def test_headers_of_the_users_go_with_every_request(tmp_path: Path) -> None:
    file, port = tmp_path / "private.py", free_port()
    file.write_text(PRIVATE)
    with running(tmp_path / "log", "run", str(file), "--port", str(port)) as command:
        command.await_saying("is served at")
        let_in = ekiden("call", url(port), "greet", "--header", "Authorization: Bearer me")
        assert (let_in.returncode, let_in.stdout) == (0, "hello\n"), let_in.stderr
        kept_out = ekiden("call", url(port), "greet")
        assert kept_out.returncode == 1


def test_stdio_carries_nothing_but_messages() -> None:
    listed = ekiden("tools", f"{EKIDEN[0]} -m ekiden.cli run {SHOP} --stdio", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "typed" in {tool["name"] for tool in json.loads(listed.stdout)}
    served = subprocess.run(
        [*EKIDEN, "run", SHOP, "--stdio"],
        input=b"\n",
        capture_output=True,
        timeout=PATIENCE,
        env=environment(),
    )
    assert (served.returncode, served.stdout) == (0, b"")


# What cannot be served


def failure_of(*arguments: str, **settings: str) -> str:
    """The one line that a command which cannot work says."""
    done = ekiden(*arguments, **settings)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_told_in_one_line(workers: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port := free_port()))
        taken.listen()
        said = failure_of("run", SHOP, "--port", str(port), "--workers", workers)
    assert said == f"ekiden: port {port} of 127.0.0.1 is taken; choose another with --port"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1", "has no Server object"),
        ("from ekiden import Server\na, b = Server('a'), Server('b')", "has 2 servers (a, b); choose one: "),
        ("import os\n\nprices = [1]\nprices[7]", "IndexError: list index out of range (line 4)"),
        ("def f(:", "SyntaxError: invalid syntax (line 1 of file.py)"),
        ("import sys\nsys.exit('no config')", "it exits with 'no config'"),
        ("from ekiden import Server\nServer('a').run()", "it calls server.run() when it is loaded"),
        ("from ekiden import Server\nServer('a', keys=[b'short'])", "a key needs at least 32 bytes"),
    ],
)
def test_a_file_that_cannot_be_served_is_told_in_one_line(tmp_path: Path, code: str, said: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(code)
    assert said in failure_of("run", str(file), "--port", str(free_port()))


def test_workers_tell_once_why_none_of_them_can_serve(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("1 / 0")
    line = failure_of("run", str(file), "--port", str(free_port()), "--workers", "3")
    assert line == "ekiden: file.py cannot be loaded: ZeroDivisionError: division by zero (line 1)"


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (["nowhere.py"], {}, "there is no file nowhere.py"),
        ([f"{SHOP}:shelf"], {}, "has no Server named 'shelf'; it has 1 server (server)"),
        ([SHOP], {"EKIDEN_KEYS": "c2hvcnQ="}, "a key needs at least 32 bytes, this one has 5"),
        ([SHOP, "--keys-file", "nowhere"], {}, "the key file nowhere cannot be read"),
        ([SHOP, "--store", "redis://x"], {}, "must be sqlite:///path, postgresql://... or memory:"),
        ([SHOP, "--store", "memory:", "--workers", "2"], {}, "memory: belongs to one process"),
        ([SHOP, "--stdio", "--workers", "2"], {}, "leave --workers and --reload out"),
    ],
)
def test_options_that_cannot_work_are_told_in_one_line(
    arguments: list[str], settings: dict[str, str], said: str
) -> None:
    assert said in failure_of("run", *arguments, "--port", str(free_port()), **settings)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_lifespan_that_fails_ends_the_command(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(
        "from ekiden import Server\n\ndef lifespan(server):\n    raise RuntimeError('no database')\n\n"
        "server = Server('a', lifespan=lifespan)\n"
    )
    arguments = ("run", str(file), "--port", str(free_port()), "--workers", workers)
    with running(tmp_path / "log", *arguments) as command:
        assert command.process.wait(PATIENCE) == 1
        assert "no database" in command.said
        assert command.said.splitlines()[-1] == "ekiden: a could not start; the reason is above"
