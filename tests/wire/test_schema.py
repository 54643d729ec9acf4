"""JSON Schemas as validators: nothing is fetched, and a stranger's schema is held to a budget."""

import time
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden.errors import TooCostly, UnusableSchema
from ekiden.wire.schema import json_validator
from ekiden.wire.validation_cost import ValidationCost


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


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_means_more_than_it_says_is_refused_in_time(name: str) -> None:
    schema, value = BOMBS[name]
    began = time.process_time()
    with pytest.raises(TooCostly):
        ValidationCost(schema).spend(value)
    assert time.process_time() - began < 2
    problem = json_validator(schema, trusted=False)(value)
    assert problem == "the schema asks for too many checks of a value of this size"


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
