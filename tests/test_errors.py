"""`ekiden.errors` and `ekiden.signals` hold every exception, and draw them as they are."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import ekiden
from ekiden import errors, signals

SOURCE = Path(ekiden.__file__).parent
CLASSES = {
    name: kind
    for module in (errors, signals)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and kind.__module__ == module.__name__
}
DRAWN = re.compile(r"^    (?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: |$)")


def drawn_parents() -> dict[str, str | None]:
    """The classes in the drawing, each with the class that it hangs from."""
    parents: dict[str, str | None] = {}
    above: dict[int, str] = {}
    for line in f"{errors.__doc__}\n{signals.__doc__}".splitlines():
        if match := DRAWN.match(line):
            depth = len(match["bars"]) // 4
            parents[match["name"]] = above.get(depth - 1) if depth else None
            above[depth] = match["name"]
    return parents


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_exception_is_drawn_below_its_parent(name: str) -> None:
    parent = CLASSES[name].__base__
    assert parent is not None
    assert drawn_parents()[name] == (None if name == "EkidenError" else parent.__name__)


def test_nothing_is_drawn_that_does_not_exist() -> None:
    assert drawn_parents().keys() - CLASSES.keys() == {"Exception", "OSError", "ValueError"}


def test_what_leaves_the_library_has_one_root_and_signals_do_not() -> None:
    for kind in CLASSES.values():
        assert issubclass(kind, errors.EkidenError) == (kind.__module__ == errors.__name__)


@pytest.mark.parametrize(
    "folder",
    [
        "bus",
        "cli",
        "client",
        "rounds",
        "server",
        "sessions",
        "stores",
        "tasks",
        "telemetry",
        "testing",
        "transports",
        "wire",
    ],
)
def test_no_exception_is_defined_elsewhere(folder: str) -> None:
    bases = {*CLASSES, "Exception", "BaseException", "OSError", "ValueError", "RuntimeError"}
    found = {
        node.name
        for path in (SOURCE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and bases & {ast.unparse(base) for base in node.bases}
    }
    assert found <= {"InputRequired"}, "an outcome that may also be raised"
