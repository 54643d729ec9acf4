"""JSON Schemas as validators: nothing is fetched, and a stranger's schema is held to a budget."""

from typing import Any

import pytest
from pydantic import BaseModel

from ekiden.signals import TooCostly, UnusableSchema
from ekiden.wire.schemas.cost import ValidationCost
from ekiden.wire.schemas.pattern_cost import places
from ekiden.wire.schemas.validator import json_validator
from tests.processor import MOMENTS_PER_SECOND, measured


class Leaf(BaseModel):
    name: str


class Tree(BaseModel):
    left: "Tree | None" = None
    right: "Tree | None" = None
    leaf: Leaf | None = None


JSON: dict[str, Any] = {
    "$ref": "#/$defs/value",
    "$defs": {
        "value": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/value"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
            ]
        }
    },
}


@pytest.mark.parametrize("trusted", [True, False])
def test_what_is_wrong_is_named_with_its_place(trusted: bool) -> None:
    check = json_validator(Tree.model_json_schema(), trusted=trusted)
    assert check({"left": {"leaf": {"name": "a"}}}) is None
    problem = check({"left": {"leaf": 5}})
    assert problem is not None
    assert problem.startswith("left")


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://schemas.example/x.json"},
        {"properties": {"a": {"$ref": "other.json"}}},
        {"$ref": "#/nowhere"},
        {"$schema": "https://schemas.example/dialect"},
        {"type": "nonsense"},
        {"pattern": "("},
        5,
        "text",
        None,
        [],
    ],
)
def test_a_schema_that_cannot_be_used_is_told(schema: Any, trusted: bool) -> None:
    with pytest.raises(UnusableSchema):
        json_validator(schema, trusted=trusted)


def test_a_schema_within_a_schema_that_has_an_address_of_its_own_is_not_a_strangers_to_use() -> None:
    schema = {"$defs": {"a": {"$id": "https://schemas.example/a", "type": "string"}}}
    assert json_validator(schema)("x") is None
    with pytest.raises(UnusableSchema, match=r"\$id"):
        json_validator(schema, trusted=False)
    assert json_validator({"properties": {"$id": {"type": "string"}}}, trusted=False)({"$id": "x"}) is None


def deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


def doubling(word: str) -> dict[str, Any]:
    """Twice the work with every level, by one keyword or another."""
    definitions: dict[str, Any] = {f"a{n}": {word: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(50)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, "a50": {"type": "object"}}}


ME = {"$ref": "#"}
BOMBS: dict[str, tuple[Any, Any]] = {
    "allOf": (doubling("allOf"), {}),
    "anyOf": (doubling("anyOf"), {}),
    "oneOf": (doubling("oneOf"), {}),
    "itself": (ME, {}),
    "itself twice": ({"anyOf": [ME, ME]}, {}),
    "not itself": ({"not": ME}, {}),
    "itself if itself": ({"if": ME, "then": ME, "else": ME}, {}),
    "members": ({"properties": {"x": {"allOf": [ME, ME]}}}, deep(100)),
    "other members": ({"additionalProperties": {"allOf": [ME, ME]}}, deep(100)),
    "members by pattern": ({"patternProperties": {"": {"allOf": [ME, ME]}}}, deep(100)),
    "patterns": ({"patternProperties": {"x": ME, "x?": ME}}, deep(100)),
    "dependent": ({"dependentSchemas": {"x": ME}}, deep(1)),
    "anchors": ({"$anchor": "a", "properties": {"x": {"allOf": [{"$ref": "#a"}] * 2}}}, deep(100)),
    "dynamic anchors": (
        {"$dynamicAnchor": "a", "properties": {"x": {"allOf": [{"$dynamicRef": "#a"}] * 2}}},
        deep(100),
    ),
}


def nested(word: str, inner: Any, **beside: Any) -> Any:
    for _ in range(30):
        inner = {word: [inner], **beside}
    return inner


BITS = "".join("01"[number.bit_count() % 2] for number in range(100_000))
"""Text that no small automaton sees through."""

BOMBS |= {
    # Not one reference
    "evaluated again": (nested("allOf", {}, unevaluatedProperties=False), {}),
    "evaluated again, items": (nested("anyOf", {}, unevaluatedItems=True), []),
    "objects compared": ({"items": {"enum": [{"a": n} for n in range(3000)]}}, [{"a": 2999}] * 10_000),
    "mixed values compared": ({"items": {"enum": [*"abc", *range(3000)]}}, [2999] * 10_000),
    "long lists compared": ({"items": {"const": [*range(3000)]}}, [[*range(3000)]] * 800),
    "a union for each item": ({"items": {"anyOf": [{"minLength": n} for n in range(999)]}}, [5] * 2999),
    "a member for each schema": (
        {"allOf": [{"properties": {"a": {}}}] * 9999},
        {str(n): 0 for n in range(9999)},
    ),
    "a pattern for each name": (
        {"patternProperties": {f"{n}x": {} for n in range(800)}},
        {str(n): 0 for n in range(99_999)},
    ),
    # Patterns
    "a long pattern for a long text": ({"pattern": "1[01]{5000}[23]"}, BITS),
    "a pattern for many texts": ({"items": {"pattern": "1[01]{999}[23]"}}, [BITS[:2000]] * 100),
    "a pattern for many names": ({"propertyNames": {"pattern": "1[01]{5000}[23]"}}, {BITS: 1}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_means_more_than_it_says_is_refused_in_time(name: str) -> None:
    schema, value = BOMBS[name]
    with measured() as took:
        problem = json_validator(schema, trusted=False)(value)
    assert took.moments < 2 * MOMENTS_PER_SECOND
    assert problem == "the schema asks for too many checks of a value of this size"


def test_what_costs_too_much_is_told_by_a_signal_of_its_own() -> None:
    with pytest.raises(TooCostly, match=r"^the schema asks for too many checks of a value of this size$"):
        ValidationCost(doubling("allOf")).spend({})


def test_items_are_counted_too() -> None:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    for word in ("items", "contains", "unevaluatedItems"):
        with pytest.raises(TooCostly):
            ValidationCost({word: {"allOf": [ME, ME]}}).spend(value)
    with pytest.raises(TooCostly):
        ValidationCost({"prefixItems": [{"allOf": [ME, ME]}]}).spend(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Tree.model_json_schema(), {"left": {"right": {"left": {"leaf": {"name": "a"}}}}}),
        (JSON, [deep(20)] * 200),
        (JSON, deep(120)),
        ({"properties": {"left": ME, "right": ME}}, {"left": {"left": {}, "right": {}}, "right": {}}),
        (
            {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "$defs": {"leaf": Leaf.model_json_schema()}},
            [],
        ),
        (True, 5),
        ({}, deep(100)),
    ],
)
def test_what_people_write_is_within_the_budget(schema: Any, value: Any) -> None:
    assert json_validator(schema, trusted=False)(value) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "((?=(a*)*(a*)*(a*)*x)|.)*y"},
        {"patternProperties": {r"(a+)+\1$": True}},
        {"anyOf": [{"pattern": rf"\p{{L}}{{10}}{number}"} for number in range(99)]},
        {"pattern": "(((a{100}){100}){100}){100}"},
        {"anyOf": [{"pattern": f"^a{{100}}{number}"} for number in range(999)]},
        {"anyOf": [{"items": {"minLength": number}} for number in range(20_000)]},
    ],
    ids=["lookahead", "reference", "classes", "repetitions", "many patterns", "large"],
)
def test_a_schema_is_not_a_strangers_to_use_if_only_its_preparation_could_hang(schema: Any) -> None:
    with measured() as took, pytest.raises(UnusableSchema):
        json_validator(schema, trusted=False)
    assert took.moments < 2 * MOMENTS_PER_SECOND


def test_a_strangers_pattern_never_backtracks() -> None:
    check = json_validator({"pattern": "^(a+)+$"}, trusted=False)
    assert check("a" * 100_000) is None
    assert check("a" * 100_000 + "b") is not None


def test_a_large_value_is_refused_without_being_quoted_by_every_branch() -> None:
    branches = [{"type": "string", "minLength": number} for number in range(100)]
    check = json_validator({"anyOf": branches}, trusted=False)
    assert check([0] * 100_000) == "arguments: does not fit the schema"
    problem = check(["x" * 10_000])
    assert problem is not None
    assert len(problem) < 600


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("", 1),
        ("^[A-Z]{2}[0-9]{6}$", 11),
        (r"\d{3}-\d{4}", 9),
        ("(ab){10}", 31),
        ("(?:a{10}){10}", 111),
        ("(?<name>a|b)+c*?", 8),
        ("[)(]{7}", 8),
        (r"\{5}", 4),
        (r"\p{L}{2}", 81),
        ("a{3,}", 5),
        # What can be read in two ways, at its worst
        ("[[]a{10}]", 91),
        ("(?x: # (\n a){10}", 161),
    ],
)
def test_places_of_a_pattern_are_not_counted_too_low(pattern: str, count: int) -> None:
    assert places(pattern) >= count
    assert places(pattern) <= 2 * count + 10
