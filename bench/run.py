"""`python -m bench.run`: measure, print, judge. Exit code 1: a floor is missed; 2: nothing measured.

A full run also writes `bench/RESULTS.md`; `--quick` and `--only` are for trying things out, and
leave it alone.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from bench.cells import CELLS, NEWER
from bench.client import measure_clients
from bench.failure import BenchFailure
from bench.gateway import measure_gateway
from bench.load import ensure_wrk
from bench.machine import has_newer, machine, versions
from bench.measure import Plan, measure_cell
from bench.report import Figures, render, verdicts
from bench.rounds import measure_replay
from bench.startup import import_seconds, start_seconds
from bench.tasks import TASKS
from bench.verdict import Section, Tell

_RESULTS: Final = Path(__file__).parent / "RESULTS.md"
_QUICK: Final = Plan(pairs=2, peer_turns=1, slices=1, starts=2, repeats=2, calls=100, rows=100_000)
_SECTIONS: Final[dict[str, Callable[[Plan, Tell], Section]]] = {
    "replay": measure_replay,
    "client": measure_clients,
    "gateway": measure_gateway,
    **TASKS,
}


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)  # So that servers are stopped then, too.
    options = _options()
    try:
        figures = _measure(
            _chosen(options.only), _QUICK if options.quick else Plan(), everything=not options.only
        )
    except BenchFailure as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 2
    report = render(figures)
    print(f"\n{report}")
    if not options.quick and not options.only:
        _RESULTS.write_text(report)
    missed = [verdict for verdict in verdicts(figures) if verdict.holds is False]
    print(f"floors missed: {len(missed)}")
    return 1 if missed else 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure ekiden against its floors.")
    parser.add_argument("--quick", action="store_true", help="two short pairs: to try out, not to judge")
    parser.add_argument(
        "--only", default="", help=f"parts, of {','.join(_parts())}; tasks is all of its parts"
    )
    return parser.parse_args()


def _parts() -> list[str]:
    return [*(cell.key for cell in CELLS), *_SECTIONS]


def _chosen(only: str) -> list[str]:
    known = _parts()
    wanted = only.split(",") if only else known
    groups = {part.partition(":")[0] for part in known if ":" in part}
    if unknown := [part for part in wanted if part not in known and part not in groups]:
        raise BenchFailure(f"there is no part {', '.join(unknown)}; there are {', '.join(known)}")
    return [part for part in known if part in wanted or part.partition(":")[0] in wanted]


def _measure(chosen: list[str], plan: Plan, *, everything: bool) -> Figures:
    if any(cell.key in chosen for cell in CELLS):
        ensure_wrk()
    about, packages = machine(), versions(everything=everything)
    if not has_newer():
        _tell(f"There is no Python {NEWER} for the rows that are measured on it, too: they are left out")
        chosen = [part for part in chosen if not part.endswith(NEWER)]
    imports = import_seconds(plan.starts) if everything else {}
    starts = start_seconds(plan.starts) if everything else {}
    found = [measure_cell(cell, plan, _tell) for cell in CELLS if cell.key in chosen]
    sections = [measure(plan, _tell) for name, measure in _SECTIONS.items() if name in chosen]
    return Figures(about, packages, plan, found, imports, starts, sections)


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
