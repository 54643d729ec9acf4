"""Runs the official suite against `conformance/server.py` and prints a line per scenario and totals."""

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.npm import NODE, environment

ROOT = Path(__file__).parent.parent
SUITE = ROOT / ".peers/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
OUTPUT = ROOT / ".cache/conformance"

NOT_YET = re.compile(r"tasks-")
"""Scenarios of features that are not built yet. They are run and shown, and do not fail the run."""


def main() -> int:
    """Run, print, and say by the exit code whether every scenario in scope passed without warnings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", help="run one scenario only")
    scenario = parser.parse_args().scenario
    shutil.rmtree(OUTPUT, ignore_errors=True)
    with running_server() as url:
        chosen = ["--scenario", scenario] if scenario else ["--suite", "all"]
        suite("server", "--url", url, *chosen, "--spec-version", "2026-07-28", "-o", str(OUTPUT))
    return report(OUTPUT)


@contextmanager
def running_server() -> Iterator[str]:
    """Our fixtures, served on a free port for as long as the block lasts."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(ROOT / "conformance/server.py"), "--port", str(port)])
    try:
        wait_until_listening(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> int:
    """A port below 32768 that nobody listens on."""
    for port in range(18100, 18900):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit("No free port between 18100 and 18900")


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait at most 20 seconds for the server, and make sure that it is ours and alive."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit("The server under test ended before it listened")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("The server under test does not listen")


def suite(*arguments: str) -> None:
    """Call the suite; its verdict is read from the files that it writes, not from its exit code."""
    if not SUITE.exists():
        raise SystemExit("The suite is not installed: run `make conformance`")
    subprocess.run(
        [str(NODE), str(SUITE), *arguments],
        env=environment(),
        check=False,
        timeout=600,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def report(output: Path) -> int:
    """Print what every scenario gave; 1 if one in scope did not pass clean."""
    totals: Counter[str] = Counter()
    failed = 0
    for path in sorted(output.rglob("checks.json")):
        name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", path.parent.name)
        counts = count(json.loads(path.read_text()))
        expected = bool(NOT_YET.search(name))
        bad = counts["FAILURE"] + counts["WARNING"]
        verdict = "pass" if not bad else "not built yet" if expected else "FAIL"
        print(f"  {verdict:14} {name:50} {summary(counts)}")
        for problem in problems(path) if bad and not expected else ():
            print(f"                   {problem}")
        failed += bool(bad and not expected)
        if not expected:
            totals += counts
    print(f"\n  in scope: {summary(totals)}")
    if not totals:
        print("  the suite ran nothing")
        return 1
    return int(failed > 0)


def count(checks: list[dict[str, Any]]) -> Counter[str]:
    """How many checks ended how."""
    return Counter(check["status"] for check in checks)


def problems(path: Path) -> Iterator[str]:
    """The failures and warnings of one scenario, in the suite's words."""
    for check in json.loads(path.read_text()):
        if check["status"] in ("FAILURE", "WARNING"):
            yield f"{check['status']} {check['id']}: {check.get('errorMessage') or check.get('description')}"


def summary(counts: Counter[str]) -> str:
    """Counts in one line, passes first."""
    order = ("SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO")
    return ", ".join(f"{counts[status]} {status.lower()}" for status in order if counts[status])


if __name__ == "__main__":
    sys.exit(main())
