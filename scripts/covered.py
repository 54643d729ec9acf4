"""A table of what the tests cover, folder by folder, and a floor under some of them.

`make coverage` runs the tests and then this. It reads the data that coverage.py has collected, and fails if
too few branches are covered where a mistake costs most.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path("src/ekiden")
FLOOR = 95.0
"""Per cent of branches, for each of the folders in `HELD`, with all that is inside."""
HELD = ("rounds", "tasks", "stores", "server/rounds")


class Covered(NamedTuple):
    """How many statements and branches there are, and how many of them were run."""

    statements: int = 0
    statements_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def plus(self, other: "Covered") -> "Covered":
        """Both together."""
        return Covered(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def of_statements(self) -> float:
        """Per cent."""
        return 100.0 * self.statements_run / self.statements if self.statements else 100.0

    @property
    def of_branches(self) -> float:
        """Per cent."""
        return 100.0 * self.branches_run / self.branches if self.branches else 100.0


def measured() -> dict[str, Any]:
    """The report of coverage.py, file by file."""
    tool = [sys.executable, "-m", "coverage"]
    subprocess.run([*tool, "combine", "--quiet"], check=False)
    printed = subprocess.run(
        [*tool, "json", "--quiet", "-o", "-"], check=True, capture_output=True, text=True
    )
    files: dict[str, Any] = json.loads(printed.stdout)["files"]
    return files


def by_folder(files: dict[str, Any]) -> dict[str, Covered]:
    """The figures of each folder, without those inside it."""
    folders: defaultdict[str, Covered] = defaultdict(Covered)
    for name, report in files.items():
        figures = report["summary"]
        folder = Path(name).parent.relative_to(SOURCE).as_posix()
        folders[folder] = folders[folder].plus(
            Covered(
                figures["num_statements"],
                figures["covered_lines"],
                figures["num_branches"],
                figures["covered_branches"],
            )
        )
    return dict(sorted(folders.items()))


def within(folder: str, folders: dict[str, Covered]) -> Covered:
    """The figures of a folder with those inside it."""
    total = Covered()
    for name, covered in folders.items():
        if name == folder or name.startswith(f"{folder}/"):
            total = total.plus(covered)
    return total


def missed(folder: str, files: dict[str, Any]) -> list[str]:
    """The branches of a folder that no test takes, as `file: from -> to`."""
    return [
        f"{name}: {start} -> {end if end > 0 else 'end'}"
        for name, report in sorted(files.items())
        if name.startswith(f"{SOURCE / folder}/")
        for start, end in report["missing_branches"]
    ]


def main() -> int:
    """Print the table and the branches that are missed; 1 if a folder is below its floor."""
    files = measured()
    folders = by_folder(files)
    print(f"\n{'folder':<28}{'statements':>12}{'branches':>12}")
    for name, covered in folders.items():
        print(f"{name:<28}{covered.of_statements:>10.1f} %{covered.of_branches:>10.1f} %")
    low = [folder for folder in HELD if within(folder, folders).of_branches < FLOOR]
    for folder in HELD:
        for branch in missed(folder, files):
            print(f"no test takes {branch}")
    for folder in HELD:
        verdict = "too few" if folder in low else "ok"
        print(f"{folder}: {within(folder, folders).of_branches:.1f} % of branches, {verdict}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
