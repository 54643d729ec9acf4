"""Changes one entry of a YAML text in block style, and leaves everything else as it is, comments too.

Lines and their indentation are read, not YAML as a whole. That is enough for the settings of a program, and
what is written differently (`{}` around an entry, two documents, tabs) is refused rather than guessed at.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import UsageError
from ekiden.wire.json import decode, encode, is_array, is_object

__all__ = ["drop", "has", "put", "spelled"]

_KEY: Final = re.compile(
    r"""(?P<indent>[ ]*)
    (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)'|(?P<plain>(?:[^\s\#&*!|>'"%@`?:,\[\]{}-]|[-?](?=\S))[^:\#]*?))
    [ ]*:(?P<value>[ \t].*|)$""",
    re.VERBOSE,
)
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""JSON may have these as they are, YAML must not."""
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_EMPTY: Final = frozenset({"", "{}", "null", "~"})


class _Entry(msgspec.Struct, frozen=True):
    """A key with the lines that belong to it."""

    key: str
    indent: int
    first: int
    end: int
    """The line after the last one. Comments and empty lines at the end belong to what follows."""
    value: str
    """What stands behind the colon."""


def has(text: str, path: Sequence[str]) -> bool:
    """Whether there is an entry at the path."""
    return _find(_lines(text), path) is not None


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with this value at the path. Mappings on the way that are missing are added."""
    lines = _lines(text)
    found = _find(lines, path)
    if found is not None:
        new = [*lines[: found.first], *_block(path[-1], value, found.indent), *lines[found.end :]]
        return _newline(text).join(new)
    if len(path) > 1:
        if _find(lines, path[:-1]) is None:
            return put(text, path[:-1], {path[-1]: value})
        return _newline(text).join(_added(lines, path, value))
    end = _content_end(lines, 0, len(lines), 0)
    return _newline(text).join([*lines[:end], *_block(path[0], value, 0), *(lines[end:] or [""])])


def _added(lines: list[str], path: Sequence[str], value: Any) -> list[str]:
    """The lines with a new last entry in a mapping that is there."""
    parent = _find(lines, path[:-1])
    assert parent is not None
    inner = _entries(lines, parent)
    new = _block(path[-1], value, inner[0].indent if inner else parent.indent + 2)
    head = lines[parent.first]
    if written := _behind(parent.value):  # It said that it is empty.
        place = head.rindex(written)
        head = head[:place].rstrip() + head[place + len(written) :]
    return [*lines[: parent.first], head, *lines[parent.first + 1 : parent.end], *new, *lines[parent.end :]]


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the entry at the path, if it is there."""
    lines = _lines(text)
    found = _find(lines, path)
    if found is None:
        return text
    left = [*lines[: found.first], *lines[found.end :]]
    if len(path) > 1:  # A mapping whose only entry is gone is an empty one, not nothing.
        parent = _find(left, path[:-1])
        if parent is not None and not _entries(left, parent):
            head = left[parent.first]
            colon = head.index(":", len(head) - len(parent.value) - 1)
            left[parent.first] = f"{head[: colon + 1]} {{}}{head[colon + 1 :]}"
    return _newline(text).join(left)


def spelled(value: Any) -> str:
    """A text as YAML: plain where that is safe, or else in quotation marks as in JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode(value).decode())


def _block(key: str, value: Any, indent: int) -> list[str]:
    head = f"{' ' * indent}{spelled(key)}:"
    if is_object(value) and value:
        inner = [line for name, item in value.items() for line in _block(name, item, indent + 2)]
        return [head, *inner]
    if is_array(value) and value:
        return [head, *(f"{' ' * (indent + 2)}- {spelled(item)}" for item in value)]
    return [f"{head} {spelled(value)}"]


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        content = line.strip()
        if "\t" in line[: len(line) - len(line.lstrip())] and content:
            raise UsageError(f"line {number} begins with a tab, which YAML does not allow")
        if content in ("---", "...") and any(_has_content(earlier) for earlier in lines[: number - 1]):
            raise UsageError(f"line {number} begins a second document")
    return lines


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "%")) and line.strip() != "---"


def _find(lines: list[str], path: Sequence[str]) -> _Entry | None:
    found: _Entry | None = None
    for key in path:
        if found is not None and _behind(found.value) not in _EMPTY:
            raise UsageError(
                f"line {found.first + 1} has its value behind the colon: write it in lines of its own"
            )
        entries = [entry for entry in _entries(lines, found) if entry.key == key]
        if len(entries) > 1:
            raise UsageError(f"{key!r} stands twice: remove one of them")
        if not entries:
            return None
        found = entries[0]
    return found


def _entries(lines: list[str], parent: _Entry | None) -> list[_Entry]:
    """The entries of a mapping, in order."""
    first, end = (0, len(lines)) if parent is None else (parent.first + 1, parent.end)
    contents = [number for number in range(first, end) if _has_content(lines[number])]
    if not contents:
        return []
    indent = _indent(lines[contents[0]])
    begun: list[tuple[int, re.Match[str]]] = []
    for number in contents:
        line = lines[number]
        if _indent(line) > indent or (begun and line.lstrip().startswith("- ")):
            continue
        key = _KEY.match(line)
        if key is None or _indent(line) < indent:
            raise UsageError(f"line {number + 1} cannot be read")
        begun.append((number, key))
    ends = [number for number, _ in begun[1:]] + [end]
    return [
        _Entry(_name(key), indent, number, _content_end(lines, number + 1, after, indent), key["value"])
        for (number, key), after in zip(begun, ends, strict=True)
    ]


def _content_end(lines: list[str], first: int, end: int, indent: int) -> int:
    """The end without the comments and empty lines that stand before what follows."""
    while end > first and not (_has_content(lines[end - 1]) or _is_deeper(lines[end - 1], indent)):
        end -= 1
    return end


def _is_deeper(line: str, indent: int) -> bool:
    return bool(line.strip()) and _indent(line) > indent


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _behind(value: str) -> str:
    """What stands behind a colon, without a comment."""
    return re.sub(r"(?:^|\s)#.*$", "", value).strip()


def _name(key: re.Match[str]) -> str:
    if key["double"] is not None:
        return str(decode(f'"{key["double"]}"'.encode()))
    if key["single"] is not None:
        return key["single"].replace("''", "'")
    return key["plain"].strip()
