"""The table and the tests are bound to each other: no row without a test, no test without a row."""

import ast
from collections import Counter
from pathlib import Path

from .table import ROWS, TABLE

TESTS = Path(__file__).parents[1]


def named_ids() -> set[str]:
    """Every id that some test file names with `requirement(...)`, however it is imported."""
    return {
        argument.value
        for path in TESTS.rglob("test_*.py")
        if "requirement(" in (text := path.read_text())  # Few name any, and to parse them all takes seconds.
        for node in ast.walk(ast.parse(text, path.name))
        if isinstance(node, ast.Call) and _name(node.func) == "requirement"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_every_row_that_binds_the_library_has_a_test() -> None:
    assert sorted({row.id for row in ROWS if not row.author} - named_ids()) == []


def test_every_test_names_rows_that_exist() -> None:
    assert sorted(named_ids() - set(TABLE)) == []


def test_no_id_stands_for_two_rows() -> None:
    assert [id_ for id_, times in Counter(row.id for row in ROWS).items() if times > 1] == []


def test_rows_left_to_the_author_say_why_and_have_no_test() -> None:
    authors = {row.id for row in ROWS if row.author}
    assert authors & named_ids() == set()
    assert [row.id for row in ROWS if row.author is not bool(row.why)] == []
