"""Whatever text of a server reaches a terminal: nothing in it is obeyed, hidden, or looks like our own."""

import json
import re
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ekiden.cli.terminal.screen import harmless, one_line
from tests.cli.driving import DOWN, ENTER, FOLDER, SPACE, Person, person
from tests.cli.servers.poisoned import CONTENT, FORGED, POISON

UNWANTED = re.compile(
    "[\x00-\x06\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\U000e0000-\U000e0fff]"
)


@contextmanager
def at_terminal(
    kind: str, command: str, *words: str, cwd: Path | None = None, columns: int = 140
) -> Generator[Person]:
    """Somebody who runs a command with the server whose every text is poisoned."""
    target = shlex.join([sys.executable, str(FOLDER / "servers" / "poisoned.py"), kind])
    with person(command, target, *words, cwd=cwd, columns=columns) as user:
        yield user
        user.ends()
        raw = user.raw.decode()
        assert UNWANTED.search(raw) is None, repr(raw)
        assert "\x1b]" not in raw
        assert "\x1b[2J" not in raw


def forged_lines(user: Person) -> list[str]:
    return [line for line in user.screen.splitlines() if line.startswith((FORGED, "FORGED"))]


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("text", "tools"),
        ("text", "prompts"),
        ("text", "resources"),
        ("text", "read x://y"),
        ("text", "prompt deed"),
        ("refused", "tools"),
        ("refused", "call deed"),
        ("refused", "read x://y"),
        ("refused", "prompt deed"),
        ("refused", "tasks get 1"),
        ("text", "call other"),
        ("text", "prompt other"),
        ("image", "call deed"),
        ("no image", "call deed"),
        ("link", "call deed"),
        ("table", "call deed"),
        ("fields", "call deed"),
        ("told", "call deed -v --json"),
        ("garbage", "call deed --json"),
        ("task", "call deed --detach"),
        ("task", "tasks cancel 1"),
        ("task", "tasks answer 1"),
    ],
)
def test_no_line_of_a_server_looks_like_one_of_ours(kind: str, command: str, tmp_path: Path) -> None:
    name, *words = command.split()
    with at_terminal(kind, name, *words, cwd=tmp_path) as user:
        user.ends()
        assert forged_lines(user) == []


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("text", "call deed"),
        ("failed", "call deed"),
        ("data", "call deed"),
        ("text", "call deed --json"),
        ("text", "tools --json"),
        ("task", "call deed -v"),
        ("task", "tasks get 1"),
        ("task", "tasks wait 1 -v"),
    ],
)
def test_a_result_at_a_terminal_has_only_its_own_words_and_lines(kind: str, command: str) -> None:
    name, *words = command.split()
    with at_terminal(kind, name, *words) as user:
        user.ends()
        assert "Text" in user.screen or "Deep" in user.screen or "Name" in user.screen


def test_a_form_with_poison_in_every_place_can_be_filled_in() -> None:
    # A question and its answer share a line, which breaks anywhere if it is too long for the terminal.
    with at_terminal("form", "call", "deed", "-v", columns=500) as user:
        user.reads("asks:")
        user.reads("(about")
        user.presses("x", ENTER)
        user.reads("shorter than 2")
        user.presses("y", ENTER)
        user.reads("Choice")
        user.presses(ENTER)
        user.reads("Many")
        user.presses(ENTER)
        user.reads("has less than 1 item")
        user.reads("choices")
        user.presses(SPACE, ENTER)
        user.reads("sure")
        user.presses("y")
        user.reads("guess")
        user.presses(ENTER)
        user.reads("Send this to Server")
        assert forged_lines(user) == []
        user.presses(ENTER)


def test_a_page_is_named_as_a_browser_would_open_it() -> None:
    with at_terminal("page", "call", "deed") as user:
        user.reads("It wants you to open a page of evil.example:")
        user.reads("https://evil.example/@bank.example/page")
        user.reads("Open evil.example in the browser")
        assert forged_lines(user) == []
        user.presses(DOWN, DOWN, ENTER)


def test_a_question_to_the_model_is_shown_without_its_poison() -> None:
    with at_terminal("model", "call", "deed") as user:
        user.reads("you write what the model says")
        assert forged_lines(user) == []
        user.presses("hello", ENTER)


def test_json_at_a_terminal_is_still_json_with_the_same_value() -> None:
    with at_terminal("text", "call", "deed", "--json") as user:
        user.ends()
        assert json.loads(user.screen) == CONTENT["text"]


def test_letters_of_all_languages_are_kept() -> None:
    kept = "naïve Zürich 東京 שלום हिन्दी 👩\u200d💻 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\tx\ny"
    assert harmless(kept) == kept
    assert one_line(kept) == kept.replace("\t", " ").replace("\n", " ")
    assert one_line(POISON).count("\n") == 0
    assert len(one_line("x" * 1_000_000)) < 1100
