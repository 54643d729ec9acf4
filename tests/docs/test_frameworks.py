"""The page on frameworks says what the tests with their clients find, for the versions that are pinned."""

import json
from pathlib import Path

from tests.peers.frameworks.test_frameworks import FRAMEWORKS

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "frameworks.md"
PINS = {
    "fastmcp": ("FastMCP", "constraints.txt", "fastmcp"),
    "fastmcp-tasks": ("FastMCP", "constraints-tasks.txt", "fastmcp"),
    "pydantic-ai": ("pydantic-ai", "constraints-pydantic-ai.txt", "pydantic-ai-slim"),
    "langchain": ("LangChain", "constraints-langchain.txt", "langchain-mcp-adapters"),
    "ai-sdk": ("AI SDK", "ai-sdk/package.json", "@ai-sdk/mcp"),
}
"""By environment: the title in the table, and where the version is pinned."""


def row_of(title: str) -> list[str]:
    """The cells after the title, in the row that is bold because it is tested."""
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| **{title}**")]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def pinned(file: str, package: str) -> str:
    text = (ROOT / "peers" / file).read_text()
    if file.endswith(".json"):
        return str(json.loads(text)["dependencies"][package])
    return dict(line.split("==") for line in text.splitlines() if "==" in line)[package]


def test_every_framework_that_is_tested_has_its_pinned_version_and_its_wire_in_the_table() -> None:
    for framework in FRAMEWORKS:
        title, file, package = PINS[framework.environment]
        assert row_of(title)[:2] == [pinned(file, package), framework.version], title


def test_the_table_says_what_each_can_be_asked() -> None:
    for framework in FRAMEWORKS:
        *questions, tasks = row_of(PINS[framework.environment][0])[2:]
        asked = ("book", "sign_in", "ask_model", "ask_roots")
        assert [cell != "no" for cell in questions] == [tool in framework.answers for tool in asked]
        needs_tasks_package = tasks == "with `fastmcp-tasks`"
        assert framework.has_tasks == (needs_tasks_package and framework.environment != "fastmcp")
