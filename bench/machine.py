"""What the figures were taken on: the interpreter, the cores, the versions of what was measured."""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.cells import NEWER
from bench.failure import BenchFailure
from bench.servers import CONTESTANTS, Contestant

_SECONDS: Final = 60
_ASK: Final = """
import importlib.metadata, json, platform, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
versions = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version(), "packages": versions}))
"""


def machine() -> str:
    """The machine in one line."""
    cpu = next((line for line in _cpu_lines() if line.startswith("model name")), ": unknown CPU")
    name = cpu.partition(":")[2].strip()
    return f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, {name}"


def _cpu_lines() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()


def has_newer() -> bool:
    """Whether there are environments with the other Python that some cells are measured on."""
    try:
        CONTESTANTS["mcp"].interpreter(NEWER)
    except BenchFailure:
        return False
    return True


def versions(*, everything: bool) -> dict[str, dict[str, str]]:
    """The packages that matter, by contestant; a missing one is a failure, as is another Python.

    Where not everything is measured, an environment may be missing: whoever needs it says so.
    """
    found = {
        name: _versions(name, contestant)
        for name, contestant in CONTESTANTS.items()
        if everything or contestant.exists
    }
    if has_newer():
        for name, contestant in CONTESTANTS.items():
            if contestant.newer:
                newer = _ask(contestant, NEWER)
                found[f"{name} on {NEWER}"] = {"Python": newer["python"], **newer["packages"]}
    return found


def _versions(name: str, contestant: Contestant) -> dict[str, str]:
    found = _ask(contestant)
    packages: dict[str, str] = found["packages"]
    if missing := [package for package, version in packages.items() if version is None]:
        raise BenchFailure(
            f"the environment of {name} lacks {', '.join(missing)}: "
            "add them to its rule in the Makefile, remove the environment, and run `make bench` again"
        )
    if found["python"] != platform.python_version():
        raise BenchFailure(f"{name} has Python {found['python']}, not {platform.python_version()}")
    return packages


def _ask(contestant: Contestant, version: str = "") -> dict[str, Any]:
    command = [contestant.interpreter(version), "-c", _ASK, *contestant.packages]
    answer = subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found
