"""The processes: some that serve, and workers. One that dies is replaced at once."""

import asyncio
import base64
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from scripts.ports import free_port
from tests.chaos.process import start
from tests.network import Network, behind_a_network

__all__ = ["Disturbance", "Fleet", "Slot", "running_fleet"]

SERVER = Path(__file__).with_name("server.py")
GRACE_SECONDS = 2
STOP_SECONDS = 15.0
"""How long a process may take to stop when it is told to, on a busy machine."""
SKEW_PART = 0.3
"""How far the clocks of two processes are apart at most, in leases: a third is said to be allowed."""
_LOOK_SECONDS = 0.02


@dataclass
class Disturbance:
    """Something that was done to a process, or to the store and so to all of them."""

    kind: str
    process: int | None
    began: float
    ended: float = float("inf")


@dataclass
class Slot:
    """A place for a process; when that dies, another one takes its place."""

    arguments: list[str]
    environment: dict[str, str]
    log: Path
    network: Network | None
    url: str | None
    """Where it serves clients; a worker serves nobody."""
    process: ForkServerProcess | None = None

    @property
    def pid(self) -> int:
        """The process that has the place now."""
        assert self.process is not None
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_dead(self) -> bool:
        """Whether it was started and has ended."""
        return self.process is not None and self.process.exitcode is not None


@dataclass
class Fleet:
    """All places, and what was done to those who had them."""

    slots: list[Slot]
    notes: Path
    disturbances: list[Disturbance] = field(default_factory=list)
    slow_stops: list[int] = field(default_factory=list)
    """Processes that did not stop when they were told to."""
    is_over: bool = False

    @property
    def urls(self) -> list[str]:
        """Where clients are served."""
        return [slot.url for slot in self.slots if slot.url is not None]

    def start(self, slot: Slot) -> None:
        """Start a process in a place."""
        slot.process = start(slot.arguments, slot.environment, slot.log)

    def up(self) -> list[Slot]:
        """The places whose processes have begun their work."""
        return [slot for slot in self.slots if not slot.is_dead and (self.notes / str(slot.pid)).exists()]

    def disturbed(self, kind: str, process: int | None) -> Disturbance:
        """Something is done from now on."""
        made = Disturbance(kind, process, time.monotonic())
        self.disturbances.append(made)
        return made

    async def keep_manned(self) -> None:
        """Replace the processes that have died, for whatever reason, poisonous tasks included."""
        while not self.is_over:
            for slot in self.slots:
                if slot.is_dead:
                    self.disturbed("died", slot.pid)
                    self.start(slot)
            await asyncio.sleep(_LOOK_SECONDS)

    # What can be done to a process

    def kill(self, slot: Slot) -> None:
        """SIGKILL."""
        self.disturbed("kill", slot.pid)
        _send(slot.pid, signal.SIGKILL)
        assert slot.process is not None
        slot.process.join(STOP_SECONDS)
        self.start(slot)

    async def freeze(self, slot: Slot, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        pid, made = slot.pid, self.disturbed("freeze", slot.pid)
        _send(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            _send(pid, signal.SIGCONT)
            made.ended = time.monotonic()

    async def block(self, slot: Slot, seconds: float) -> None:
        """Let code that does not await anything hold the event loop up."""
        made = self.disturbed("block", slot.pid)
        _send(slot.pid, signal.SIGUSR1)
        await asyncio.sleep(seconds)
        made.ended = time.monotonic()

    async def terminate(self, slot: Slot) -> None:
        """SIGTERM; the replacement of a worker starts at once, that of a server when the port is free."""
        made, process = self.disturbed("terminate", slot.pid), slot.process
        assert process is not None
        process.terminate()
        if slot.url is None:
            self.start(slot)
        deadline = time.monotonic() + STOP_SECONDS
        while process.exitcode is None:
            if time.monotonic() > deadline:
                self.slow_stops.append(made.process or 0)
                process.kill()
                deadline = float("inf")
            await asyncio.sleep(_LOOK_SECONDS)
        made.ended = time.monotonic()

    async def cut_off(self, slot: Slot, seconds: float) -> None:
        """Let nothing through between a process and the database."""
        assert slot.network is not None
        made = self.disturbed("cut off", slot.pid)
        slot.network.cut()
        try:
            await asyncio.sleep(seconds)
        finally:
            slot.network.heal()
            made.ended = time.monotonic()

    async def stop(self) -> None:
        """Tell everybody to stop, and see to it that they do."""
        self.is_over = True
        running = [slot for slot in self.slots if slot.process is not None]
        for slot in running:
            _send(slot.pid, signal.SIGCONT)
            _send(slot.pid, signal.SIGTERM)
        await asyncio.gather(*(self._end(slot) for slot in running))

    async def _end(self, slot: Slot) -> None:
        assert slot.process is not None
        try:
            deadline = time.monotonic() + STOP_SECONDS
            while slot.process.exitcode is None and time.monotonic() < deadline:
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            if slot.process.exitcode is None:
                self.slow_stops.append(slot.pid)
                slot.process.kill()
                slot.process.join(STOP_SECONDS)


def _send(pid: int, number: signal.Signals) -> None:
    """Signal a process. It may have died of a task meanwhile, which is noticed a moment later."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@asynccontextmanager
async def running_fleet(
    folder: Path, store: str, servers: int, workers: int, lease: float
) -> AsyncGenerator[Fleet, None]:
    """Servers and workers that are ready. In the end all are stopped, whatever happens."""
    notes = folder / "notes"
    notes.mkdir()
    async with AsyncExitStack() as stack:
        fleet = Fleet([], notes)
        for number in range(servers + workers):
            network, database = None, store
            if store.startswith("postgresql:"):
                network, database = await stack.enter_async_context(behind_a_network(store))
            port = free_port() if number < servers else None
            url = None if port is None else f"http://127.0.0.1:{port}/mcp"
            skew = lease * SKEW_PART * (number / (servers + workers - 1) - 0.5)
            environment, log = _environment(database, notes, lease, skew), folder / f"log-{number}"
            fleet.slots.append(Slot(_arguments(port), environment, log, network, url))
        stack.push_async_callback(fleet.stop)
        for slot in fleet.slots:
            fleet.start(slot)
        await _ready(fleet)
        manning = asyncio.create_task(fleet.keep_manned())
        stack.callback(manning.cancel)
        yield fleet


def _arguments(port: int | None) -> list[str]:
    grace = ["--grace", str(GRACE_SECONDS)]
    if port is None:
        return ["worker", str(SERVER), *grace]
    return ["run", str(SERVER), "--port", str(port), *grace]


def _environment(store: str, notes: Path, lease: float, skew: float) -> dict[str, str]:
    keys = base64.urlsafe_b64encode(bytes(range(32))).decode()
    return {
        "EKIDEN_STORE": store,
        "EKIDEN_KEYS": keys,
        "NOTES": str(notes),
        "LEASE": str(lease),
        "SKEW": str(skew),
    }


async def _ready(fleet: Fleet) -> None:
    async with asyncio.timeout(4 * STOP_SECONDS):
        while len(fleet.up()) < len(fleet.slots):
            for slot in fleet.slots:
                assert not slot.is_dead, slot.log.read_text()
            await asyncio.sleep(_LOOK_SECONDS)
