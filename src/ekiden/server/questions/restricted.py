"""The restricted JSON Schema that a form may have (client: Elicitation), made of pydantic's or checked.

It knows nothing of answers. What it cannot express is refused, and the error names the field.
"""

from collections.abc import Mapping
from typing import Any, Final

from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["PLAIN_KEYS", "check_field", "restricted"]

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_STRING_KEYS: Final = frozenset({"minLength", "maxLength", "format", "pattern"})
PLAIN_KEYS: Final = frozenset({"type", "title", "description", "default"})
"""The keywords of a field that restricts its value only by type."""
_NUMBER_KEYS: Final = frozenset({"minimum", "maximum"})
_CHOICE_KEYS: Final = frozenset({"enum", "oneOf", "enumNames"})
_LIST_KEYS: Final = frozenset({"items", "minItems", "maxItems"})
_ALLOWED: Final[dict[str, frozenset[str]]] = {
    "string": PLAIN_KEYS | _STRING_KEYS | _CHOICE_KEYS,
    "number": PLAIN_KEYS | _NUMBER_KEYS,
    "integer": PLAIN_KEYS | _NUMBER_KEYS,
    "boolean": PLAIN_KEYS,
    "array": PLAIN_KEYS | _LIST_KEYS,
}


def restricted(schema: JsonObject, what: str, labels: Mapping[str, Mapping[Any, str]]) -> JsonObject:
    """Convert pydantic's schema of a flat type to the keywords that forms allow."""
    definitions = schema.get("$defs", {})
    schema = _resolve(schema, definitions)
    if schema.get("type") != "object" or "properties" not in schema:
        raise UsageError(f"{what}: a form is a flat object of named fields, or a single simple type")
    properties = {
        name: _field(name, _resolve(field, definitions), definitions, labels.get(name))
        for name, field in schema["properties"].items()
    }
    result: JsonObject = {"type": "object", "properties": properties}
    if required := schema.get("required"):
        result["required"] = required
    return result


def _resolve(schema: JsonObject, definitions: Mapping[str, Any]) -> JsonObject:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**definitions[reference.rpartition("/")[2]], **rest}
    return schema


def _field(
    name: str, field: JsonObject, definitions: Mapping[str, object], labels: Mapping[Any, str] | None
) -> JsonObject:
    field = _without_null(_resolve(field, definitions), definitions)
    if "const" in field:
        field = {**{key: value for key, value in field.items() if key != "const"}, "enum": [field["const"]]}
    if is_object(field.get("items")):
        field = {**field, "items": _choices(_resolve(field["items"], definitions), labels, "anyOf")}
    elif "enum" in field:
        field = _choices(field, labels, "oneOf")
    field = {key: value for key, value in field.items() if key != "uniqueItems"}
    if field.get("default", ...) is None:
        del field["default"]
    check_field(name, field)
    return field


def _without_null(field: JsonObject, definitions: Mapping[str, object]) -> JsonObject:
    """Convert `X | None` to an optional field: forms have no null, so the field is absent instead."""
    options = field.get("anyOf")
    if not is_array(options):
        return field
    rest = [option for option in options if option != {"type": "null"}]
    if len(rest) != 1:
        return field
    outer = {key: value for key, value in field.items() if key != "anyOf"}
    return {**_resolve(rest[0], definitions), **outer}


def _choices(field: JsonObject, labels: Mapping[Any, str] | None, keyword: str) -> JsonObject:
    """A choice; with labels, each value has the title that the user sees."""
    if not labels or "enum" not in field:
        return field
    titled = [{"const": value, "title": labels.get(value, str(value))} for value in field["enum"]]
    # A single choice keeps its type; the items of a list have `anyOf` only.
    dropped = {"enum"} if keyword == "oneOf" else {"enum", "type"}
    return {**{key: value for key, value in field.items() if key not in dropped}, keyword: titled}


def check_field(name: str, field: object) -> None:
    """Refuse a field that the restricted schema cannot express; the error names the field."""
    if not is_object(field):
        raise UsageError(f"form field {name!r}: its schema must be an object")
    if field.get("format") == "password" or field.get("writeOnly"):
        raise UsageError(f"form field {name!r} is a secret: forms must not ask for secrets, use elicit_url")
    if not all(isinstance(value, str) for value in _values(field)):
        raise UsageError(f"form field {name!r}: choices must be texts, as in Literal['1', '2'], not numbers")
    allowed = _ALLOWED.get(field.get("type", ""))
    if allowed is None:
        raise UsageError(
            f"form field {name!r}: only strings, numbers, booleans, choices and lists of choices are allowed"
        )
    if unknown := set(field) - allowed:
        raise UsageError(f"form field {name!r}: forms do not allow {', '.join(sorted(unknown))}")
    if field["type"] == "string" and field.get("format", "email") not in _FORMATS:
        raise UsageError(
            f"form field {name!r}: its format must be one of {', '.join(sorted(_FORMATS))}, "
            f"not {field['format']!r}"
        )
    if field["type"] == "array":
        _check_items(name, field.get("items"))


def _values(field: JsonObject) -> list[object]:
    """What can be chosen: in the field, or in the items of its list."""
    schema: JsonObject = field["items"] if is_object(field.get("items")) else field
    titled: list[JsonObject] = schema.get("oneOf") or schema.get("anyOf") or []
    return [*schema.get("enum", ()), *(option["const"] for option in titled if "const" in option)]


def _check_items(name: str, items: object) -> None:
    choices = (items.get("enum") or items.get("anyOf")) if is_object(items) else None
    if not choices:
        raise UsageError(f"form field {name!r}: a list must be a list of choices (an enum or a Literal)")
