"""What the official suite wrote, told in a line per scenario and a total per suite."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BAD = ("FAILURE", "WARNING")


def report(title: str, output: Path) -> bool:
    """Print what every scenario of a suite gave; whether all passed clean."""
    print(f"\n{title}\n")
    totals: Counter[str] = Counter()
    clean = True
    for path in sorted(output.rglob("checks.json")):
        name = scenario_name(path.parent.relative_to(output))
        counts, trouble = Counter(check["status"] for check in read(path)), list(problems(path))
        show(name, counts, trouble)
        clean = clean and not trouble
        totals += counts
    print(f"\n  {summary(totals) or 'nothing'}")
    return clean and bool(totals)


def scenario_name(folder: Path) -> str:
    """The scenario that a folder of the suite's output is of."""
    return re.sub(r"^server-|-\d{4}-\d\d-\d\dT[^/]*$", "", str(folder))


def show(name: str, counts: Counter[str], trouble: list[str]) -> None:
    """One scenario: its verdict, its counts, and what went wrong."""
    print(f"  {'FAIL' if trouble else 'pass'}  {name:50} {summary(counts)}", flush=True)
    for problem in trouble:
        print(f"          {problem}")


def read(path: Path) -> list[dict[str, Any]]:
    """The checks of one scenario."""
    checks: list[dict[str, Any]] = json.loads(path.read_text())
    return checks


def problems(path: Path) -> Iterator[str]:
    """What went wrong in one scenario: in the suite's words, or in those of the client under test."""
    checks = read(path)
    if not checks:
        yield "The suite checked nothing"
    for check in checks:
        if check["status"] in BAD:
            yield f"{check['status']} {check['id']}: {check.get('errorMessage') or check.get('description')}"
    stderr = path.with_name("stderr.txt")  # Only clients have one: the suite starts them.
    if stderr.exists() and (said := stderr.read_text().strip()):
        yield f"The client ended with: {said.splitlines()[-1]}"


def summary(counts: Counter[str]) -> str:
    """Counts in one line, passes first."""
    order = ("SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO")
    return ", ".join(f"{counts[status]} {status.lower()}" for status in order if counts[status])
