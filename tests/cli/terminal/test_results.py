"""What is printed of a result that says the same twice: as data, and as text for older clients."""

from pathlib import Path
from typing import Any

import pytest

from ekiden.cli.terminal.results import show_result
from ekiden.cli.terminal.screen import Screen


def shown(capsys: pytest.CaptureFixture[str], structured: Any, *texts: str) -> list[str]:
    content = [{"type": "text", "text": text} for text in texts]
    show_result(Screen(), {"structuredContent": structured, "content": content}, "tool", Path())
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_a_text_that_is_the_only_field_of_the_data_is_shown_once_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(capsys, {"content": "one\ntwo"}, "one\ntwo") == ["one", "two"]
    assert shown(capsys, {"result": "one"}, "one") == ["one"]


def test_a_text_for_each_entry_of_a_list_is_not_shown_beside_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"name": "Mio", "age": 4}, {"name": "Ren", "age": 7}]
    table = ["name age", "Mio 4", "Ren 7"]
    printed = shown(capsys, {"result": rows}, '{"name": "Mio", "age": 4}', '{"age": 7, "name": "Ren"}')
    assert [line for line in printed if "─" not in line] == table
    assert shown(capsys, {"result": ["a", "b"]}, "a", "b") == ["[", '"a",', '"b"', "]"]


def test_a_text_that_says_something_else_is_shown_beside_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"degrees": 21}, "It is warm.") == ["degrees 21", "It is warm."]
    assert shown(capsys, {"content": "short"}, "something longer") == ["content short", "something longer"]
