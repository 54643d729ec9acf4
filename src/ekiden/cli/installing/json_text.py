"""Changes one value in a JSON text, and leaves everything else as it is: order, spaces, comments.

Editors allow comments and a comma after the last item, so both are read here. What is not JSON beyond that is
refused, and never repaired.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import UsageError
from ekiden.wire.json import MAX_DEPTH, decode, encode

__all__ = ["drop", "get", "put"]

_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_UNIT: Final = re.compile(r"\n([ \t]+)\S")

Path = Sequence[str | int]
"""Names of members and numbers of items, from the outside in."""


class _Item(msgspec.Struct, frozen=True):
    """A member of an object, or an item of an array, which has no name."""

    name: str | None
    start: int
    value: "_Node"


class _Node(msgspec.Struct, frozen=True):
    """A value, and where it stands in the text."""

    start: int
    end: int
    items: list[_Item] | None = None
    """Of an object or an array."""
    is_object: bool = False


def get(text: str, path: Path) -> Any:
    """The value at a path, or None if there is none."""
    node: _Node | None = _Reader(text).document()
    for part in path:
        node = None if node is None else _child(node, part)
    return None if node is None else _value(text, node)


def put(text: str, path: Path, value: Any) -> str:
    """The text with this value at the path. Objects on the way that are missing are added.

    A number as the last part adds an item to the array, unless the array has that item.
    """
    if not text.strip():
        text = "{}\n"
    node = _Reader(text).document()
    for depth, part in enumerate(path):
        child = _child(node, part)
        if child is None:
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value} if isinstance(outer, str) else [value]
            return _inserted(text, node, part if isinstance(part, str) else None, value)
        node = child
    if _value(text, node) == value:
        return text
    return text[: node.start] + _spelled(text, value, _indent(text, node.start)) + text[node.end :]


def drop(text: str, path: Path) -> str:
    """The text without the value at the path, if it is there."""
    *outer, last = path
    node: _Node | None = _Reader(text).document()
    for part in outer:
        node = None if node is None else _child(node, part)
    if node is None or node.items is None or _child(node, last) is None:
        return text
    return _removed(text, node, _number(node, last))


def _child(node: _Node, part: str | int) -> _Node | None:
    if node.items is None or node.is_object is not isinstance(part, str):
        wanted = "an object" if isinstance(part, str) else "an array"
        raise UsageError(f"{part!r} is looked for in something that is not {wanted}")
    number = _number(node, part)
    return None if number < 0 else node.items[number].value


def _number(node: _Node, part: str | int) -> int:
    items = node.items or []
    if isinstance(part, int):
        return part if part < len(items) else -1
    found = [number for number, item in enumerate(items) if item.name == part]
    if len(found) > 1:
        raise UsageError(f"{part!r} stands twice in one object: remove one of them")
    return found[0] if found else -1


def _value(text: str, node: _Node) -> Any:
    if node.items is None:
        return decode(text[node.start : node.end].encode())
    if node.is_object:
        return {item.name: _value(text, item.value) for item in node.items}
    return [_value(text, item.value) for item in node.items]


def _inserted(text: str, node: _Node, name: str | None, value: Any) -> str:
    """A new last item. It comes after a comment that follows the item before it."""
    items = node.items or []
    head = "" if name is None else f"{encode(name).decode()}: "
    closing = node.end - 1
    if not items:
        outer = _indent(text, node.start)
        inner = outer + _unit(text)
        line = _newline(text)
        inside = text[node.start + 1 : closing].rstrip()  # A comment, perhaps.
        new = f"{inside}{line}{inner}{head}{_spelled(text, value, inner)}{line}{outer}"
        return text[: node.start + 1] + new + text[closing:]
    last = items[-1].value.end
    comma = _comma(text, last)
    if "\n" not in text[node.start : node.end]:
        rest = "" if comma is None else ","
        new = f", {head}{encode(value).decode()}{rest}"
        return text[:last] + new + text[last if comma is None else comma + 1 :]
    between = text[last:closing] if comma is None else text[last : comma + 1] + text[comma + 1 : closing]
    kept = between.rstrip()
    inner = _indent(text, items[-1].start)
    new = f"{_newline(text)}{inner}{head}{_spelled(text, value, inner)}"
    if comma is None:
        return f"{text[:last]},{kept}{new}{between[len(kept) :]}{text[closing:]}"
    return f"{text[:last]}{kept}{new},{between[len(kept) :]}{text[closing:]}"


def _removed(text: str, node: _Node, number: int) -> str:
    """Without one item, its comma, and the line break before it."""
    items = node.items or []
    item = items[number]
    start, end = item.start, item.value.end
    comma = _comma(text, end)
    start -= len(text[:start]) - len(text[:start].rstrip())
    if comma is not None:
        return text[:start] + text[end:comma] + text[comma + 1 :]
    if number == 0:
        rest = text[end : node.end - 1]
        return text[:start] + (rest if rest.strip() else "") + text[node.end - 1 :]
    before = _comma(text, items[number - 1].value.end)
    assert before is not None  # Between two items there is one.
    return text[:before] + text[before + 1 : start] + text[end:]


def _comma(text: str, position: int) -> int | None:
    found = _SPACE.match(text, position)
    after = position if found is None else found.end()
    return after if text[after : after + 1] == "," else None


def _indent(text: str, position: int) -> str:
    """The spaces at the beginning of the line of a position."""
    line = text[:position].rpartition("\n")[2]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = _UNIT.search(text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _spelled(text: str, value: Any, indent: str) -> str:
    """A value over several lines, with the indentation that the text has."""
    unit, newline = _unit(text), _newline(text)
    lines = msgspec.json.format(encode(value), indent=1).decode().split("\n")
    levels = [len(line) - len(line.lstrip(" ")) for line in lines]
    spaced = [unit * level + line.lstrip(" ") for level, line in zip(levels, lines, strict=True)]
    return f"{newline}{indent}".join(spaced)


class _Reader:
    """Reads a text once. A mistake is a `UsageError` that says the line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> _Node:
        if self._text.startswith("\ufeff"):
            self._at = 1
        self._skip()
        node = self._node(1)
        self._skip()
        if self._at < len(self._text):
            self._refuse("there is more after the end")
        if not node.is_object:
            self._refuse("it is not an object")
        return node

    def _node(self, depth: int) -> _Node:
        start = self._at
        if depth > MAX_DEPTH:
            self._refuse(f"it is deeper than {MAX_DEPTH} levels")
        opening = self._text[start : start + 1]
        if opening in ("{", "["):
            items = self._items("}" if opening == "{" else "]", depth)
            return _Node(start, self._at, items, is_object=opening == "{")
        found = (_STRING if opening == '"' else _SCALAR).match(self._text, start)
        if found is None:
            self._refuse("a value is missing")
        else:
            self._at = found.end()
        return _Node(start, self._at)

    def _items(self, closing: str, depth: int) -> list[_Item]:
        items: list[_Item] = []
        self._at += 1
        self._skip()
        while not self._take(closing):
            start = self._at
            name = self._name() if closing == "}" else None
            items.append(_Item(name, start, self._node(depth + 1)))
            self._skip()
            if not self._take(",") and self._text[self._at : self._at + 1] != closing:
                self._refuse(f"a comma or {closing!r} is missing")
            self._skip()
        return items

    def _name(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._refuse("a name in quotation marks is missing")
            return ""
        self._at = found.end()
        self._skip()
        if not self._take(":"):
            self._refuse("a colon is missing")
        self._skip()
        return str(decode(found[0].encode()))

    def _take(self, letter: str) -> bool:
        taken = self._text[self._at : self._at + 1] == letter
        self._at += taken
        return taken

    def _skip(self) -> None:
        if found := _SPACE.match(self._text, self._at):
            self._at = found.end()

    def _refuse(self, what: str) -> None:
        line = self._text.count("\n", 0, self._at) + 1
        raise UsageError(f"it is not JSON: {what} in line {line}")
