"""Runs the official suite against our server and our client, and prints a line per scenario and totals."""

import argparse
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from conformance.report import report
from scripts.npm import NODE, environment
from scripts.ports import free_port

ROOT = Path(__file__).parent.parent
SUITE = ROOT / ".peers/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
OUTPUT = ROOT / ".cache/conformance"

CLIENT_SECONDS = 300
"""For one scenario of the client. The suite starts all of them at once, and two cores need a while."""


class Suite(NamedTuple):
    """One run of the suite."""

    title: str
    side: Literal["server", "client"]
    group: str
    version: str | None
    """None leaves it to the suite: extensions and history belong to no version."""

    @property
    def output(self) -> Path:
        """Where its results go."""
        return OUTPUT / self.title.replace(" ", "-")


SUITES = (
    Suite("server 2026-07-28", "server", "all", "2026-07-28"),
    Suite("server 2025-11-25", "server", "all", "2025-11-25"),
    Suite("server tasks", "server", "tasks", None),
    Suite("server skills", "server", "skills", None),
    Suite("client 2026-07-28", "client", "all", "2026-07-28"),
    Suite("client 2025-11-25", "client", "all", "2025-11-25"),
    Suite("client extensions", "client", "extensions", None),
    Suite("client skills", "client", "skills", None),
    Suite("client authorization of 2025-03-26", "client", "backcompat", None),
)


TASK_SCENARIOS = tuple(
    f"tasks-{name}"
    for name in (
        "lifecycle",
        "capability-negotiation",
        "wire-fields",
        "request-state-removal",
        "mrtr-input",
        "request-headers",
        "dispatch-and-envelope",
        "status-notifications",
        "required-task-error",
        "mrtr-composition",
    )
)
SKILL_SCENARIOS = tuple(f"sep-2640-skills-{name}" for name in ("enumeration", "manifest", "directory"))
CLIENT_SKILL_SCENARIOS = tuple(
    f"sep-2640-client-{name}"
    for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
)
BY_NAME = {
    "server tasks": TASK_SCENARIOS,
    "server skills": SKILL_SCENARIOS,
    "client skills": CLIENT_SKILL_SCENARIOS,
}
"""The scenarios that are run one by one, by title: the suite has no name for all of one extension."""


def main() -> int:
    """Run, print, and say by the exit code whether every scenario in scope passed without warnings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("server", "client"), help="run one side only")
    parser.add_argument("--scenario", help="run one scenario only, at every version that has it")
    options = parser.parse_args()
    if not SUITE.exists():
        raise SystemExit("The suite is not installed: run `make conformance`")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    suites = [suite for suite in SUITES if options.only in (None, suite.side)]
    with running_server() as url:  # One process for all suites: it serves both eras.
        if options.scenario:
            return int(not run_scenario(options.scenario, suites, url))
        verdicts = [
            run_by_name(suite, url) if suite.title in BY_NAME else run(suite, url, "--suite", suite.group)
            for suite in suites
        ]
    return int(not all(verdicts))


def run_by_name(suite: Suite, url: str) -> bool:
    """Run the scenarios of one extension, one after the other."""
    for name in BY_NAME[suite.title]:
        call_suite(suite, url, "--scenario", name)
    return report(suite.title, suite.output)


def run_scenario(name: str, suites: list[Suite], url: str) -> bool:
    """Run one scenario where it exists; without a version only if no version has it."""
    verdicts: list[bool] = []
    for suite in suites:
        if suite.version is None and verdicts:
            continue
        passed = run(suite, url, "--scenario", name, quiet=True)
        if any(suite.output.rglob("checks.json")):
            verdicts.append(passed)
    if not verdicts:
        print(f"No suite has a scenario {name!r}")
    return bool(verdicts) and all(verdicts)


def run(suite: Suite, url: str, *chosen: str, quiet: bool = False) -> bool:
    """Run a suite and print its report, unless it had nothing to run and may be quiet about it."""
    call_suite(suite, url, *chosen)
    if quiet and not any(suite.output.rglob("checks.json")):
        return False
    return report(suite.title, suite.output)


def call_suite(suite: Suite, url: str, *chosen: str) -> None:
    """Call the suite for what was chosen, against our server or our client."""
    arguments = [suite.side, *chosen, "-o", str(suite.output)]
    if suite.version is not None:
        arguments += ["--spec-version", suite.version]
    if suite.side == "server":
        call(*arguments, "--url", url)
    else:
        client = f"{sys.executable} {ROOT / 'conformance/client.py'}"
        call(*arguments, "--command", client, "--timeout", str(CLIENT_SECONDS * 1000))


def call(*arguments: str) -> None:
    """Call the suite; its verdict is read from the files that it writes, not from its exit code."""
    subprocess.run(
        [str(NODE), str(SUITE), *arguments],
        env=environment(),
        check=False,
        timeout=900,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


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


if __name__ == "__main__":
    sys.exit(main())
