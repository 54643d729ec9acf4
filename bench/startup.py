"""How long it takes to import an SDK, and from the spawn of a server to its first answer."""

import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.cells import CELLS, FEW, Setup
from bench.failure import BenchFailure
from bench.measure import record_ceiling
from bench.servers import CONTESTANTS, ROOT, cores, running

_IMPORT_SECONDS: Final = 60
_IMPORTS: Final = {
    "bare": "pass",  # The interpreter alone: what every other figure contains.
    "ekiden": "import ekiden; ekiden.Server",
    "mcp": "from mcp.server.mcpserver import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
}


def import_seconds(times: int) -> dict[str, float]:
    """The median time of a process that only imports, by contestant."""
    taken: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for turn in range(times + 1):
        for name, statement in _IMPORTS.items():
            seconds = _time_import(name, statement)
            if turn:  # The first turn filled the caches of the disk and of compiled modules.
                taken[name].append(seconds)
    return {name: median(seconds) for name, seconds in taken.items()}


def _time_import(name: str, statement: str) -> float:
    core, _ = cores()
    command = ["taskset", "-c", str(core), CONTESTANTS[name].interpreter(), "-c", statement]
    started = time.perf_counter()
    try:
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=_IMPORT_SECONDS)
    except subprocess.SubprocessError as error:
        raise BenchFailure(f"{name}: `{statement}` failed: {error}") from error
    return time.perf_counter() - started


def start_seconds(times: int) -> dict[str, float]:
    """The median time from the spawn to the first answered `server/discover`, by contestant."""
    taken: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    with tempfile.TemporaryDirectory() as folder:
        answers = record_ceiling(CELLS[0], Path(folder) / "answers.json").answers
        for turn in range(times + 1):
            for name in taken:
                seconds = _time_start(name, answers)
                if turn:
                    taken[name].append(seconds)
    return {name: median(seconds) for name, seconds in taken.items()}


def _time_start(name: str, answers: Path) -> float:
    setup = Setup(name, ("--tools", str(FEW)))
    with running(setup, cores()[0], answers if name == "bare" else None) as server:
        return server.started_in
