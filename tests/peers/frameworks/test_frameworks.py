"""The MCP clients of agent frameworks at an ekiden server: what they speak and can be asked, and their tasks.

One run of a client gives one observation; each test looks at one fact of it. What is asserted here is told to
users in `docs/how-to/frameworks.md`.
"""

import json
import runpy
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.peers import running
from tests.peers.foreign import http_server

HERE = Path(__file__).parent
SERVER = [sys.executable, "-W", "error", str(HERE / "server.py")]
STEPS = [
    ("caller", {}),
    ("add", {"a": 1, "b": 2}),
    ("book", {}),
    ("sign_in", {}),
    ("ask_model", {}),
    ("ask_roots", {}),
    ("clean", {"room": 7}),
    ("cleaned", {}),
]
NEEDED = {"book": "elicitation", "sign_in": "elicitation", "ask_model": "sampling", "ask_roots": "roots"}
"""The tools that ask, and the capability that each needs."""
ANSWERED = {"book": "Mio for 2", "sign_in": "accept", "ask_model": "old pond", "ask_roots": "file:///inn"}
"""What they say if the client has answered."""


class Framework(NamedTuple):
    environment: str
    """Where under `.peers` it lives."""
    script: str
    version: str
    answers: set[str]
    """The tools whose questions it can answer, with all its callbacks."""
    has_tasks: bool = False

    def command(self) -> list[str]:
        environment = running.ROOT / ".peers" / self.environment
        running.require(environment)
        if self.script.endswith(".py"):
            return [str(environment / "bin" / "python"), str(HERE / self.script)]
        node = runpy.run_path(str(running.ROOT / "scripts" / "npm.py"))["NODE"]
        return [str(node), str(HERE / self.script)]


FRAMEWORKS = (
    Framework("fastmcp", "fastmcp_client.py", "2026-07-28", {*ANSWERED}),
    Framework("fastmcp-tasks", "fastmcp_client.py", "2026-07-28", {*ANSWERED}, has_tasks=True),
    Framework("pydantic-ai", "pydantic_ai_client.py", "2026-07-28", {*ANSWERED}, has_tasks=True),
    Framework("langchain", "langchain_client.py", "2025-11-25", {*ANSWERED}),
    Framework("ai-sdk", "ai_sdk_client.mjs", "2026-07-28", {"book"}),
)


class Observation(NamedTuple):
    framework: Framework
    full: bool
    seen: dict[str, dict[str, Any]]

    def said(self, tool: str) -> Any:
        """What a tool's call gave, as plain data: some clients give content, some structure, some text."""
        outcome = self.seen[tool]
        assert "result" in outcome, f"{tool}: {outcome['error']}"
        value = outcome["result"]
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            (value,) = value
        try:
            return json.loads(value) if isinstance(value, str) else value
        except ValueError:
            return value

    def refusal(self, tool: str) -> str:
        """Why a call was refused: as an error, or as a text for the model."""
        return str(self.seen[tool].get("error") or self.said(tool))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((framework, full), id=name, marks=pytest.mark.xdist_group(f"framework-{name}"))
        for framework, full in product(FRAMEWORKS, (False, True))
        for name in [f"{framework.environment}-{'full' if full else 'bare'}"]
    ],
)
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observation:
    framework, full = request.param
    folder = tmp_path_factory.mktemp(framework.environment)
    with http_server(SERVER, folder / "server.log") as url:
        ended = subprocess.run(
            [*framework.command(), "full" if full else "bare", url],
            input=json.dumps(STEPS),
            capture_output=True,
            text=True,
            timeout=running.RUN_SECONDS,
        )
    if ended.returncode != 0:
        pytest.fail(f"{framework.environment} failed:\n{ended.stderr}", pytrace=False)
    return Observation(framework, full, json.loads(ended.stdout.splitlines()[-1]))


pytestmark = pytest.mark.slow


def test_it_speaks_its_version_and_declares_tasks_if_it_has_them(observed: Observation) -> None:
    caller = observed.said("caller")
    assert caller["version"] == observed.framework.version
    extensions = caller["capabilities"].get("extensions", {})
    assert ("io.modelcontextprotocol/tasks" in extensions) == observed.framework.has_tasks


def test_a_tool_that_asks_nothing_is_called(observed: Observation) -> None:
    assert observed.said("add") == 3


def test_what_the_framework_can_be_asked_is_answered(observed: Observation) -> None:
    expected = observed.framework.answers if observed.full else set()
    assert {tool: observed.said(tool) for tool in expected} == {tool: ANSWERED[tool] for tool in expected}


def test_what_it_cannot_be_asked_is_refused_with_what_is_missing(observed: Observation) -> None:
    refused = set(NEEDED) - (observed.framework.answers if observed.full else set())
    assert [tool for tool in refused if NEEDED[tool] not in observed.refusal(tool)] == []


def test_a_tool_that_may_be_a_task_gives_its_result_and_works_once(observed: Observation) -> None:
    assert observed.said("clean") == "room 7 is clean"
    assert observed.said("cleaned") == [7]
