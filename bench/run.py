"""`python -m bench.run`: measure, print, judge. Exit code 1: a floor is missed; 2: nothing measured.

A full run also writes `bench/RESULTS.md`; `--quick` and `--only` are for trying things out, and
leave it alone.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from bench.cells import CELLS, Cell
from bench.failure import BenchFailure
from bench.load import ensure_wrk
from bench.machine import machine, versions
from bench.measure import Plan, measure_cell
from bench.report import Figures, render, verdicts
from bench.startup import import_seconds, start_seconds

_RESULTS: Final = Path(__file__).parent / "RESULTS.md"
_QUICK: Final = Plan(pairs=2, peer_turns=1, slices=1, starts=2)


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
    parser.add_argument("--only", default="", help=f"cells, of {','.join(cell.key for cell in CELLS)}")
    return parser.parse_args()


def _chosen(only: str) -> list[Cell]:
    known = {cell.key: cell for cell in CELLS}
    keys = only.split(",") if only else list(known)
    if unknown := [key for key in keys if key not in known]:
        raise BenchFailure(f"there is no cell {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[key] for key in keys]


def _measure(cells: list[Cell], plan: Plan, *, everything: bool) -> Figures:
    ensure_wrk()
    about, packages = machine(), versions()
    found = [measure_cell(cell, plan, _tell) for cell in cells]
    imports = import_seconds(plan.starts) if everything else {}
    starts = start_seconds(plan.starts) if everything else {}
    return Figures(about, packages, plan, found, imports, starts)


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
