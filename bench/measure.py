"""How a cell is measured: server CPU time per request, contestants taking turns.

Every turn has fresh server processes, so that no single process's luck with its memory layout
decides. Within a turn the servers are loaded one after the other in short slices, again and again,
so that a machine that slows down for a while slows both sides of a ratio.
"""

import base64
import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.cells import DISCOVER, Cell, Setup
from bench.exchange import SENDERS, Answer, Call, Sender
from bench.load import run_load
from bench.process import cpu_seconds, rss_megabytes
from bench.servers import Running, cores, running

_SLICE_SECONDS: Final = 1


@dataclass(frozen=True)
class Plan:
    """How long and how often. A turn must be long against the 10 ms steps of the CPU clock."""

    pairs: int = 7
    peer_turns: int = 3
    """The peers are so far from their floors that fewer turns tell enough."""
    slices: int = 4
    """How often each server is loaded within a turn, for a second each; even, so that neither goes first."""
    warm_up: int = 1
    starts: int = 5
    repeats: int = 7
    """How often ours and theirs take turns where wall time is measured, as for clients."""
    calls: int = 300
    """Sequential calls of a client in one such turn."""
    rows: int = 1_000_000
    """Tasks in a store that has very many."""


@dataclass(frozen=True)
class Sample:
    """One measurement of one server."""

    cpu_us: float
    """CPU time per request, in microseconds."""
    per_second: float
    rss: float
    """Resident megabytes after the load."""
    busy: float
    """The part of the time that the server had the core; less than nearly all: others took it."""


@dataclass
class CellResult:
    """The samples of one cell, by who was measured, in the order of the turns."""

    cell: Cell
    samples: dict[Setup, list[Sample]] = field(default_factory=dict)

    def ratios(self, other: Setup) -> list[float]:
        """The other's CPU time over ekiden's, turn by turn."""
        pairs = zip(self.samples[other], self.samples[self.cell.subject], strict=False)
        return [theirs.cpu_us / ours.cpu_us for theirs, ours in pairs]

    def rss(self, setup: Setup) -> float:
        return median(sample.rss for sample in self.samples[setup])


@dataclass(frozen=True)
class Ceiling:
    """ekiden's own exchange, which the bare server repeats with constant bytes."""

    calls: list[Call]
    answers: Path


def measure_cell(cell: Cell, plan: Plan, tell: Callable[[str], None]) -> CellResult:
    """Measure one cell; `tell` hears of every sample."""
    found = CellResult(cell)
    with tempfile.TemporaryDirectory() as folder:
        ceiling = record_ceiling(cell, Path(folder) / "answers.json")
        for turn in range(plan.pairs):
            peers = cell.peers if turn < plan.peer_turns else ()
            samples = _take_turn(cell, (cell.reference, cell.subject, *peers), ceiling, plan)
            for setup, sample in samples.items():
                found.samples.setdefault(setup, []).append(sample)
                tell(f"{cell.key:6} {turn + 1}/{plan.pairs} {setup.label:28} {sample.cpu_us:8.1f} us")
    return found


def record_ceiling(cell: Cell, file: Path) -> Ceiling:
    """Ask ekiden once, and keep what it answers for the bare server."""
    with running(cell.subject, cores()[0]) as server, server.blamed():
        calls = _prepared(cell, server)
        call = calls[0]
        answers = {DISCOVER.method: server.ask(DISCOVER), call.method: server.ask(call)}
        cell.accept(answers[call.method].result())
    file.write_text(json.dumps({method: _recorded(answer) for method, answer in answers.items()}))
    return Ceiling(calls, file)


def _recorded(answer: Answer) -> dict[str, Any]:
    body = base64.b64encode(answer.body).decode()
    return {"status": answer.status, "headers": answer.headers, "body": body}


def _prepared(cell: Cell, server: Running) -> list[Call]:
    """The call as each of the client programs makes it."""
    return [replace(cell.prepare(_asker(server, sender)), sender=sender) for sender in SENDERS]


def _asker(server: Running, sender: Sender) -> Callable[[Call], dict[str, Any]]:
    return lambda call: server.ask(replace(call, sender=sender)).result()


def _take_turn(cell: Cell, setups: tuple[Setup, ...], ceiling: Ceiling, plan: Plan) -> dict[Setup, Sample]:
    with ExitStack() as servers:
        meters = [_Meter(servers.enter_context(_start(setup, ceiling)), cell, ceiling) for setup in setups]
        for meter in meters:
            meter.warm_up(plan.warm_up)
        for number in range(plan.slices):
            for meter in meters if number % 2 == 0 else reversed(meters):
                meter.load()
        return {meter.server.setup: meter.sample() for meter in meters}


def _start(setup: Setup, ceiling: Ceiling) -> AbstractContextManager[Running]:
    return running(setup, cores()[0], ceiling.answers if setup.contestant == "bare" else None)


class _Meter:
    """Loads one server, slice by slice, and adds up what it spends."""

    def __init__(self, server: Running, cell: Cell, ceiling: Ceiling) -> None:
        self.server = server
        self._cell = cell
        self._core = cores()[1]
        self._requests = 0
        self._seconds = 0.0
        self._spent = 0.0
        with server.blamed():
            bare = server.setup.contestant == "bare"
            calls = ceiling.calls if bare else _prepared(cell, server)
            self._calls = [server.admitted(call) for call in calls]
            self._check()

    def _check(self) -> None:
        for call in self._calls:
            self._cell.accept(self.server.ask(call).result())

    def warm_up(self, seconds: int) -> None:
        with self.server.blamed():
            run_load(self.server.port, self._calls, seconds, self._core)

    def load(self) -> None:
        before = cpu_seconds(self.server.pid)
        with self.server.blamed():
            load = run_load(self.server.port, self._calls, _SLICE_SECONDS, self._core)
        self._spent += cpu_seconds(self.server.pid) - before
        self._requests += load.requests
        self._seconds += load.seconds

    def sample(self) -> Sample:
        with self.server.blamed():
            self._check()
        return Sample(
            cpu_us=self._spent / self._requests * 1e6,
            per_second=self._requests / self._seconds,
            rss=rss_megabytes(self.server.pid),
            busy=self._spent / self._seconds,
        )
