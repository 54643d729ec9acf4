"""An estimate of the work of a validation, made before it.

References make schemas short, and let a hostile one double its work with every line. So the walk that
a validator would take is counted first, keyword by keyword, and given up when it is out of all proportion
to the value. A schema that is short even with its references written out is not counted.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ekiden.errors import TooCostly
from ekiden.wire.json import is_array, is_object

__all__ = ["ValidationCost"]

_PER_NODE: Final = 500
"""Checks for each part of a value. Schemas that people write need a handful; large unions some dozens."""
_AT_LEAST: Final = 10_000
_AT_MOST: Final = 2_000_000
"""About a second of counting."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLES: Final = ("not", "if", "then", "else")
_OF_EACH_MEMBER: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_EACH_ITEM: Final = ("items", "additionalItems", "unevaluatedItems", "contains")


class ValidationCost:
    """Counts the checks that a schema asks for."""

    def __init__(self, schema: Any) -> None:
        """`ValueError` if a reference in the schema leads to nothing."""
        self._root = schema
        self._targets: dict[str, Any] = {}
        anchors: dict[str, Any] = {}
        references: set[str] = set()
        for part in _parts(schema):
            if part is not schema and isinstance(part.get("$id"), str):
                raise ValueError("a schema within a schema must not have an $id")
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(part.get(keyword), str):
                    anchors["#" + part[keyword]] = part
            references.update(part[word] for word in _REFERENCES if isinstance(part.get(word), str))
        for reference in references:
            self._targets[reference] = (
                anchors[reference] if reference in anchors else _pointed_at(schema, reference)
            )
        self._is_small = not references or self._written_out(schema, {}) <= _PER_NODE

    def _written_out(self, schema: Any, sizes: dict[int, int]) -> int:
        """The parts of a schema with its references written out; beyond any bound if it refers to itself."""
        if not is_object(schema) and not is_array(schema):
            return 0
        if id(schema) not in sizes:
            sizes[id(schema)] = _AT_MOST  # If it is met again before its size is known, it contains itself.
            inner = list(_inner(schema))
            if is_object(schema):
                inner.extend(
                    self._targets[schema[word]] for word in _REFERENCES if isinstance(schema.get(word), str)
                )
            size = 1 + sum(self._written_out(part, sizes) for part in inner)
            sizes[id(schema)] = min(size, _AT_MOST)
        return sizes[id(schema)]

    def spend(self, value: Any) -> None:
        """Refuse a value that cannot be checked within the budget."""
        if self._is_small:
            return
        left = min(_AT_MOST, _AT_LEAST + _PER_NODE * sum(1 for _ in _nodes(value)))
        waiting: list[tuple[Any, Any]] = [(self._root, value)]
        while waiting:
            schema, part = waiting.pop()
            left -= 1
            if left < 0:
                raise TooCostly("the schema asks for too many checks of a value of this size")
            if is_object(schema):
                waiting.extend(self._steps(schema, part))

    def _steps(self, schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        """The next pairs of a schema and the part of the value that it applies to."""
        for word in _REFERENCES:
            if isinstance(schema.get(word), str):
                yield self._targets[schema[word]], value
        for word in _LISTS:
            if is_array(schema.get(word)):
                yield from ((inner, value) for inner in schema[word])
        yield from ((schema[word], value) for word in _SINGLES if word in schema)
        if is_object(value):
            yield from _of_members(schema, value)
        elif is_array(value):
            yield from _of_items(schema, value)


def _of_members(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    named = schema.get("properties")
    if is_object(named):
        yield from ((named[name], member) for name, member in value.items() if name in named)
    each = [schema[word] for word in _OF_EACH_MEMBER if word in schema]
    patterns = schema.get("patternProperties")
    if is_object(patterns):
        each.extend(patterns.values())
    yield from ((inner, member) for inner in each for member in value.values())
    for word in ("dependentSchemas", "dependencies"):
        dependent = schema.get(word)
        if is_object(dependent):
            yield from ((dependent[name], value) for name in value if name in dependent)


def _of_items(schema: dict[str, Any], value: list[Any]) -> Iterator[tuple[Any, Any]]:
    for word in _OF_EACH_ITEM:
        inner = schema.get(word)
        if is_object(inner):
            yield from ((inner, item) for item in value)
    for word in ("prefixItems", "items"):
        inner = schema.get(word)
        if is_array(inner):
            yield from zip(inner, value, strict=False)


def _pointed_at(schema: Any, reference: str) -> Any:
    """What a JSON pointer leads to."""
    from urllib.parse import unquote

    if reference != "#" and not reference.startswith("#/"):
        raise ValueError(f"$ref {reference[:200]!r} leaves the schema, and references are never fetched")
    found = schema
    for name in unquote(reference[2:]).split("/") if len(reference) > 1 else ():
        name = name.replace("~1", "/").replace("~0", "~")
        if is_object(found) and name in found:
            found = found[name]
        elif is_array(found) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise ValueError(f"$ref {reference[:200]!r} leads nowhere")
    return found


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema, also those that are only data."""
    return (node for node in _nodes(schema) if is_object(node))


def _nodes(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(_inner(node))


def _inner(node: Any) -> Iterable[Any]:
    return node.values() if is_object(node) else node if is_array(node) else ()
