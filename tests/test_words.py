"""Plain English: turns of phrase that readers stumble over are found in code and documentation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (
    "src/ekiden/cli",
    "src/ekiden/client",
    "src/ekiden/engine",
    "src/ekiden/integrations",
    "src/ekiden/rounds",
    "src/ekiden/server",
    "src/ekiden/tasks",
    "src/ekiden/telemetry",
    "src/ekiden/transports",
    "src/ekiden/wire",
    "docs",
)
"""Where the words are checked: `stores` and `testing` are still to come."""

UNWANTED = {
    r"(?<!there )(?:is|are) no ": "say 'is not a' or 'has no'",
    r"\b(?:is|are) none of\b": "say 'must be one of'",
    r"\b(?:he|him|his|himself)\b": "a process, a client or an owner is 'it'",
}
"""Patterns, without regard to case, and what to write instead."""

ALLOWED = (
    "is no longer ",  # Plain English: "not any more".
    "are no longer ",
    "are no more exact than ",  # A comparison.
)

FILES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")
)


def found_in(text: str) -> list[str]:
    """What is unwanted in a text, with the words around it and advice. Line breaks count as spaces."""
    words = re.sub(r"[\s#]+", " ", text)
    for allowed in ALLOWED:
        words = words.replace(allowed, "")
    return [
        f"...{words[max(0, match.start() - 40) : match.end() + 30]}...: {advice}"
        for pattern, advice in UNWANTED.items()
        for match in re.finditer(pattern, words, re.IGNORECASE)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_written_in_plain_english(folder: str) -> None:
    files = [path for path in FILES if path.is_relative_to(ROOT / folder)]
    assert files, f"there is nothing in {folder}"
    found = [f"{path.relative_to(ROOT)}: {what}" for path in files for what in found_in(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no URL",
        "legs are\n    no requests",
        "# It is\n# no list",
        "it is none of a, b",
        "asks Him first",
    ],
)
def test_an_unwanted_turn_is_found(text: str) -> None:
    assert len(found_in(text)) == 1


@pytest.mark.parametrize(
    "text", ["there is no key", "There are no keys", "the lease is no longer valid", "this", "one of a, b"]
)
def test_plain_english_is_let_through(text: str) -> None:
    assert found_in(text) == []
