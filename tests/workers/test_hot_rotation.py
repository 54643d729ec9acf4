"""Keys change in their file while workers serve: nothing is restarted, and no round is lost."""

import asyncio
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from ekiden.server.sealing.keys import KeyRing, new_key
from scripts.ports import free_port
from tests.cli.driving import Running, running

from .calls import Call, post

SERVER = Path(__file__).with_name("asking_server.py")
CALLERS = 12
ROTATIONS = 4
CALLS_BETWEEN = 15
"""Calls of three rounds that end between two rotations."""
PATIENCE = 120.0


class Port:
    """Where requests go: the kernel chooses the worker."""

    def __init__(self, port: int) -> None:
        self.port = port


def replace(path: Path, keys: list[str]) -> None:
    """As an operator should: the file is never half written."""
    fresh = path.with_suffix(".new")
    fresh.touch(0o600)
    fresh.write_text("\n".join(keys) + "\n")
    fresh.replace(path)


def sealed_by(key: str) -> str:
    return KeyRing([key]).ids[0]


class Load:
    """Clients that call without a pause, each round over a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = Port(port)
        self.ended = 0
        self.seals: set[str] = set()
        self.served_by: set[str] = set()

    async def call_until(self, stop: asyncio.Event, caller: int) -> None:
        number = 0
        while not stop.is_set():
            call = Call("twice", f"{caller}-{number}")
            while call.result is None:
                call.take(await post(self._port, call.request()), self._port)  # type: ignore[arg-type]
                if call.result is None:
                    self.seals.add(call.state.split(".")[1])
            first, second, pid = call.result["content"][0]["text"].split()
            assert (first, second) == (f"{call.name}/1", f"{call.name}/2"), "another call's answers"
            self.served_by.add(pid)
            self.ended += 1
            number += 1

    async def more(self, count: int) -> None:
        """Wait until so many more calls have ended."""
        goal = self.ended + count
        while self.ended < goal:
            await asyncio.sleep(0.01)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def workers(tmp_path: Path, keys_file: Path) -> Generator[tuple[Running, int], None, None]:
    replace(keys_file, [new_key()])
    port = free_port()
    options = ["--port", str(port), "--workers", "3", "--keys-file", str(keys_file), "--log-level", "info"]
    with running(tmp_path / "log", "run", str(SERVER), *options) as command:
        command.await_saying("is served at")
        yield command, port


@pytest.mark.parametrize("tells", [True, False], ids=["by SIGHUP", "by the file alone"])
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_no_round_is_lost_while_keys_rotate_under_load(
    workers: tuple[Running, int], keys_file: Path, tells: bool, times: int
) -> None:
    command, port = workers
    calls_between = CALLS_BETWEEN * times
    keys = [keys_file.read_text().strip()]
    load, stop = Load(port), asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(load.call_until(stop, caller))
        for _ in range(ROTATIONS * times):
            await load.more(calls_between)
            keys.insert(0, new_key())
            replace(keys_file, keys[:2])
            if tells:
                os.kill(command.process.pid, signal.SIGHUP)
            while sealed_by(keys[0]) not in load.seals:
                await asyncio.sleep(0.01)
        await load.more(calls_between)
        stop.set()
    assert load.ended > ROTATIONS * times * calls_between
    assert load.seals == {sealed_by(key) for key in keys}
    assert "requestState refused" not in command.said
    assert command.said.count("served at") == 1
    assert "another one starts" not in command.said, "no worker was replaced"
    assert len(load.served_by) > 1, "the kernel spreads connections"


async def test_a_key_that_was_removed_opens_nothing_any_more(
    workers: tuple[Running, int], keys_file: Path
) -> None:
    command, port = workers
    where = Port(port)
    call = Call("twice", "late")
    call.take(await post(where, call.request()), where)  # type: ignore[arg-type]
    replace(keys_file, [new_key()])
    os.kill(command.process.pid, signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while "result" in (reply := await post(where, call.request())):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
    assert reply["error"]["message"] == "Invalid or expired requestState: restart the call"
