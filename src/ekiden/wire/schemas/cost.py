"""An estimate of the work of a validation, made before it.

A hostile schema can be short and mean years of checking: references double its work with every line,
`unevaluatedProperties` triples that of what it surrounds, a list of allowed values is compared one by one
with each item, a pattern is held against a long text. So the walk that a validator would take is counted
first, keyword by keyword, and given up when it is out of all proportion to the value. A schema that is short
even with its references written out is not walked.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from ekiden.signals import TooCostly
from ekiden.wire.json import JsonObject, is_array, is_object
from ekiden.wire.schemas.pattern_cost import places

__all__ = ["Size", "ValidationCost", "measure"]

_PER_NODE: Final = 500
"""Checks for each part of a value. Schemas that people write need a handful; large unions some dozens."""
_AT_LEAST: Final = 10_000
_AT_MOST: Final = 2_000_000
"""About a second of counting."""
_LARGEST: Final = 50_000
"""Parts of a schema. To compile this many takes half a second."""
_MOST_PLACES: Final = 20_000
"""Places of all patterns of a schema. To compile this many takes half a second."""
_LEAST_PLACES: Final = 16
"""What any pattern costs besides its places."""
_MOST_MATCHING: Final = 50_000_000
"""Places times letters, of all patterns together: half a second."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLES: Final = ("not", "if", "then", "else")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""What these surround is evaluated again, and again to find out what it has evaluated."""
_OF_EACH_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_OF_EACH_ITEM: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_DEPENDENT: Final = ("dependentSchemas", "dependencies")


class Size(msgspec.Struct, frozen=True):
    """How large a value is."""

    nodes: int
    letters: int
    """Of all its texts and names."""


class _Plan(msgspec.Struct):
    """What one schema asks for."""

    compared: int
    """Comparisons with `enum` and `const`."""
    places: int
    """Of `pattern`."""
    places_of_names: int
    """Of the patterns in `patternProperties`."""
    in_place: list[Any]
    """Schemas for the same value, as often as they are evaluated."""
    members: JsonObject
    """Schemas for members, by name."""
    each_member: list[Any]
    names: list[Any]
    dependent: list[JsonObject]
    """Schemas for the same value if it has a member of some name."""
    items: list[Any]
    """Schemas for the first items."""
    each_item: list[Any]

    def steps_at_most(self, value: Any) -> int:
        """How many `steps` there are, and members that are looked at in vain."""
        count = len(self.in_place)
        if is_object(value):
            each = len(self.each_member) + len(self.names) + len(self.dependent) + bool(self.members)
            count += each * len(value) + len(self.each_member)
        elif is_array(value):
            count += len(self.each_item) * len(value) + min(len(self.items), len(value))
        return count

    def steps(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """The next pairs of a schema and the part of the value that it applies to."""
        for schema in self.in_place:
            yield schema, value
        if is_object(value):
            yield from self._of_members(value)
        elif is_array(value):
            yield from ((schema, item) for schema in self.each_item for item in value)
            yield from zip(self.items, value, strict=False)

    def _of_members(self, value: JsonObject) -> Iterator[tuple[Any, Any]]:
        if self.members:
            yield from ((self.members[name], value[name]) for name in value if name in self.members)
        yield from ((schema, member) for schema in self.each_member for member in value.values())
        yield from ((schema, name) for schema in self.names for name in value)
        for dependent in self.dependent:
            yield from ((dependent[name], value) for name in value if name in dependent)

    def matching(self, value: Any) -> int:
        """Places times letters of the patterns that are held against a value, or against its names."""
        if self.places and isinstance(value, str):
            return self.places * len(value)
        if self.places_of_names and is_object(value):
            return self.places_of_names * (sum(map(len, value)) + len(value))
        return 0


class ValidationCost:
    """Counts the checks that a schema asks for."""

    def __init__(self, schema: Any) -> None:
        """`ValueError` if the schema is too large, or if a reference in it leads to nothing."""
        self._root = schema
        self._places: dict[str, int] = {}
        parts = list(_parts(schema))
        self._targets = _targets(schema, parts)
        self._plans = {id(part): self._plan(part) for part in parts}
        self._all_places = sum(self._places.values())
        if self._all_places > _MOST_PLACES:
            raise ValueError("its patterns are too large")
        self._written = self._written_out(schema, {})

    def _plan(self, part: JsonObject) -> _Plan:
        by_pattern = _object(part.get("patternProperties"))
        items = [inner for word in ("prefixItems", "items") for inner in _array(part.get(word))]
        return _Plan(
            compared=_comparisons(part),
            places=self._places_of(part.get("pattern")),
            places_of_names=sum(map(self._places_of, by_pattern)),
            in_place=self._in_place(part),
            members=_object(part.get("properties")),
            each_member=[*(part[word] for word in _OF_EACH_MEMBER if word in part), *by_pattern.values()],
            names=[part["propertyNames"]] if "propertyNames" in part else [],
            dependent=[_object(part.get(word)) for word in _DEPENDENT if word in part],
            items=items,
            each_item=[part[word] for word in _OF_EACH_ITEM if is_object(part.get(word))],
        )

    def _places_of(self, pattern: object) -> int:
        if not isinstance(pattern, str):
            return 0
        if pattern not in self._places:
            self._places[pattern] = _LEAST_PLACES + places(pattern)
        return self._places[pattern]

    def _in_place(self, part: JsonObject) -> list[Any]:
        found = [self._targets[part[word]] for word in _REFERENCES if isinstance(part.get(word), str)]
        for word in _LISTS:
            found += _array(part.get(word))
        found += [part[word] for word in _SINGLES if word in part]
        return found * 3 if any(word in part for word in _UNEVALUATED) else found

    def _written_out(self, schema: Any, sizes: dict[int, int]) -> int:
        """The parts of a schema with its references written out; beyond any bound if it refers to itself."""
        if is_array(schema):
            return sum(self._written_out(part, sizes) for part in schema)
        if not is_object(schema):
            return 0
        if id(schema) not in sizes:
            sizes[id(schema)] = _AT_MOST  # If it is met again before its size is known, it contains itself.
            plan = self._plans[id(schema)]
            size = sum(self._written_out(part, sizes) for part in (*plan.in_place, *schema.values()))
            sizes[id(schema)] = min(1 + size + plan.compared, _AT_MOST)
        return sizes[id(schema)]

    def spend(self, value: Any) -> int:
        """How many checks of a value are made at most; `TooCostly` if they are beyond the budget."""
        size = measure(value)
        if self._written <= _PER_NODE and self._all_places * size.letters <= _MOST_MATCHING:
            return self._written * size.nodes
        return self._walk(value, min(_AT_MOST, _AT_LEAST + _PER_NODE * size.nodes))

    def _walk(self, value: Any, budget: int) -> int:
        left, matching = budget, _MOST_MATCHING
        waiting: list[tuple[Any, Any]] = [(self._root, value)]
        while waiting:
            schema, part = waiting.pop()
            if not is_object(schema):
                continue
            plan = self._plans[id(schema)]
            steps = plan.steps_at_most(part)
            left -= plan.compared + steps
            matching -= plan.matching(part)
            if left < 0 or matching < 0:
                raise TooCostly("the schema asks for too many checks of a value of this size")
            if steps:
                waiting.extend(plan.steps(part))
        return budget - left


def measure(value: Any) -> Size:
    """How large a value is."""
    nodes = letters = 0
    for node in _nodes(value):
        nodes += 1
        if isinstance(node, str):
            letters += len(node)
        elif is_object(node):
            letters += sum(map(len, node)) + len(node)
    return Size(nodes, letters)


def _comparisons(schema: JsonObject) -> int:
    """Comparisons with `enum` and `const`. One look is enough for values of one simple type."""
    values = [schema["const"]] if "const" in schema else []
    values += _array(schema.get("enum"))
    kinds = set(map(type, values))
    if len(kinds) <= 1 and not kinds & {dict, list}:
        return 0
    return sum(1 for value in values for _ in _nodes(value))


def _targets(schema: Any, parts: list[JsonObject]) -> JsonObject:
    """What the references in a schema lead to."""
    anchors: JsonObject = {}
    references: set[str] = set()
    for part in parts:
        if part is not schema and isinstance(part.get("$id"), str):
            raise ValueError("a schema within a schema must not have an $id")
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(part.get(keyword), str):
                anchors["#" + part[keyword]] = part
        references.update(part[word] for word in _REFERENCES if isinstance(part.get(word), str))
    return {name: anchors[name] if name in anchors else _pointed_at(schema, name) for name in references}


def _object(value: Any) -> JsonObject:
    return value if is_object(value) else {}


def _array(value: Any) -> list[Any]:
    return value if is_array(value) else []


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


def _parts(schema: Any) -> Iterator[JsonObject]:
    """Every object in a schema, also those that are only data."""
    for number, node in enumerate(_nodes(schema)):
        if number > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} parts")
        if is_object(node):
            yield node


def _nodes(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(_inner(node))


def _inner(node: Any) -> Iterable[Any]:
    return node.values() if is_object(node) else node if is_array(node) else ()
