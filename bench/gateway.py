"""The section on gateways: what a call through one costs over a call of the upstream itself.

The upstream and the gateway share a core, the load has the other. Calls are made one after the other over a
connection that stays open. Ours and the detour take turns; CPU time is that of all server processes. What a
gateway holds for an open question is its growth over some thousand of them.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.cells import Setup
from bench.exchange import PATH, Call
from bench.failure import BenchFailure
from bench.measure import Plan
from bench.process import cpu_seconds, rss_megabytes
from bench.servers import ROOT, cores, running, stop
from bench.verdict import Tell, Verdict, spread, table
from scripts.ports import free_port

_MOST_MS: Final = 1.5
"""The gateway's cost per call, over the upstream's own."""
_MOST_HELD: Final = 0.1
"""KiB that the process may grow by for each question that is open, by chance: it holds nothing for them."""
_OPEN: Final = 4000
"""Questions that are left open."""
_ASKS: Final[dict[str, Any]] = {"elicitation": {"form": {}}}
_START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Detour:
    """What was found, turn by turn."""

    own_ms: list[float]
    """CPU time of a call of the upstream itself."""
    more_ms: list[float]
    """How much more a call through the gateway takes: CPU time of both processes."""
    own_wall: list[float]
    more_wall: list[float]
    held_kib: float

    def verdicts(self) -> list[Verdict]:
        more, held = median(self.more_ms), f"{self.held_kib:.3f} KiB"
        return [
            Verdict(
                "a call through a gateway, CPU time over the upstream's own",
                f"{spread(self.more_ms)} ms",
                f"at most {_MOST_MS} ms",
                more <= _MOST_MS,
            ),
            Verdict("the same, wall time", f"{spread(self.more_wall)} ms"),
            Verdict(
                "growth of a gateway per open question of a 2026 upstream",
                held,
                f"at most {_MOST_HELD} KiB",
                self.held_kib <= _MOST_HELD,
            ),
        ]

    def render(self) -> str:
        rows = [
            ("CPU time", f"{spread(self.own_ms)} ms", f"{spread(self.more_ms)} ms"),
            ("wall time", f"{spread(self.own_wall)} ms", f"{spread(self.more_wall)} ms"),
        ]
        head = ("a call of `greet`", "of the upstream itself", "more, through a gateway")
        held = f"Open questions: {_OPEN}, growth of the gateway's memory {self.held_kib:.3f} KiB for each."
        return f"## Gateway\n\n{table(head, rows)}\n\n{held}\n"


def measure_gateway(plan: Plan, tell: Tell) -> Detour:
    core, _ = cores()
    with running(Setup("ekiden"), core) as upstream, _gateway(upstream.port, core) as front:
        own, through = _Line(upstream.port), _Line(front.port)
        pids = (upstream.pid, front.pid)
        for line, name in ((own, "greet"), (through, "up_greet")):
            _turn(line, name, plan.calls, pids)  # Warm.
        turns: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for number in range(plan.pairs):
            pair = (own, "greet"), (through, "up_greet")
            measured = [_turn(line, name, 4 * plan.calls, pids) for line, name in _alternately(pair, number)]
            turns.append((measured[number % 2], measured[1 - number % 2]))
            (cpu, wall), (more_cpu, more_wall) = turns[-1]
            shown = f"{cpu:.3f} ms, {more_cpu - cpu:.3f} more; wall {wall:.3f}, {more_wall - wall:.3f} more"
            tell(f"gateway {number + 1}: {shown}")
        held = _held(through, front.pid)
    return Detour(
        [own[0] for own, _ in turns],
        [there[0] - own[0] for own, there in turns],
        [own[1] for own, _ in turns],
        [there[1] - own[1] for own, there in turns],
        held,
    )


def _alternately(pair: Any, number: int) -> Any:
    return pair if number % 2 == 0 else pair[::-1]


def _turn(line: "_Line", name: str, count: int, pids: tuple[int, ...]) -> tuple[float, float]:
    """Milliseconds per call: CPU time of the servers, and wall time."""
    call = Call("tools/call", {"name": name, "arguments": {"name": "Ada"}}, name)
    before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
    for _ in range(count):
        line.send(call)
    wall = time.perf_counter() - began
    return (sum(map(cpu_seconds, pids)) - before) / count * 1e3, wall / count * 1e3


def _held(line: "_Line", pid: int) -> float:
    """KiB that the gateway grows by for each question that is open."""
    call = Call("tools/call", {"name": "up_confirm", "arguments": {"name": "Ada"}}, "up_confirm", _ASKS)
    for _ in range(_OPEN):  # What grows once only has grown then.
        line.send(call)
    before = rss_megabytes(pid)
    for _ in range(_OPEN):
        if line.send(call).get("resultType") != "input_required":
            raise BenchFailure("the gateway does not pass on what the upstream asks")
    return max(0.0, rss_megabytes(pid) - before) * 1024 / _OPEN


class _Line:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def send(self, call: Call) -> dict[str, Any]:
        self._connection.request("POST", PATH, call.body().encode(), call.headers())
        response = self._connection.getresponse()
        message = json.loads(response.read())
        if "result" not in message or message["result"].get("isError"):
            raise BenchFailure(f"no result: {message}")
        result: dict[str, Any] = message["result"]
        return result


@dataclass(frozen=True)
class _Front:
    pid: int
    port: int


@contextmanager
def _gateway(upstream: int, core: int) -> Iterator[_Front]:
    """A gateway in front of a server."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mcp.json"
        servers = {"up": {"url": f"http://127.0.0.1:{upstream}{PATH}"}}
        file.write_text(json.dumps({"mcpServers": servers}))
        command = [sys.executable, "-m", "ekiden.cli", "gateway", str(file), "--port", str(port)]
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(port)
            yield _Front(process.pid, port)
        finally:
            stop(process)


def _await(port: int) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < deadline:
        try:
            if any(tool["name"] == "up_greet" for tool in _Line(port).send(Call("tools/list"))["tools"]):
                return
        except OSError:
            time.sleep(0.05)
    raise BenchFailure(f"the gateway did not answer within {_START_SECONDS:.0f} s")
