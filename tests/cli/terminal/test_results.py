"""What is printed of a result that says the same twice: as data, and as text for older clients."""

from pathlib import Path
from typing import Any

import pytest

from ekiden.cli.list import _tool_rows
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


class Counted(str):
    """A text that counts how often texts of its kind are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_what_is_too_large_for_a_table_is_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    different = [{f"c{number}": number} for number in range(300)]
    many = [{"a": number} for number in range(20_000)]
    for rows in (different, many):
        assert shown(capsys, {"result": rows})[0] == "["
    assert shown(capsys, {"word": "x" * 20_000})[0] == "{"
    assert shown(capsys, {"result": different[:3]})[0].split() == ["c0", "c1", "c2"]


def test_many_blocks_are_not_compared_with_every_entry(capsys: pytest.CaptureFixture[str]) -> None:
    Counted.compared = 0
    shown(capsys, {"result": [str(number) for number in range(500)]}, *[Counted("other")] * 500)
    assert Counted.compared < 10_000


def test_many_arguments_are_not_compared_with_every_required_one() -> None:
    names = [Counted(f"a{number}") for number in range(500)]
    required = [Counted(f"b{number}") for number in range(500)]
    Counted.compared = 0
    tool = {"name": "t", "inputSchema": {"properties": {name: {} for name in names}, "required": required}}
    _, rows = _tool_rows({"tools": [tool]})
    assert rows[0][1].startswith("[a0=any]")
    assert Counted.compared < 10_000
