"""Words of a command line as values: `name=value` gets its type from a JSON Schema, `name:=json` is JSON."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ekiden.errors import Mistyped, ParseError, UsageError
from ekiden.wire.json import JsonObject, decode, is_array, is_object

__all__ = ["named_headers", "parse_arguments", "read_json", "split_pair", "typed", "variables"]

_YES: Final = ("true", "yes", "y", "on", "1")
_NO: Final = ("false", "no", "n", "off", "0")
_KINDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no (true or false)",
    "object": "a JSON object",
    "array": "a JSON array",
    "null": "null",
}


def split_pair(word: str) -> tuple[str, str, bool]:
    """`name=value` or `name:=json`: the name, the text, and whether it is JSON."""
    name, equals, text = word.partition("=")
    if not equals or not name.rstrip(":"):
        raise UsageError(f"{word!r} is not an argument: write name=value, or name:=json")
    return name.removesuffix(":"), text, name.endswith(":")


def parse_arguments(words: Iterable[str], schema: Mapping[str, Any], *, of: str = "the tool") -> JsonObject:
    """The arguments of a call, with types from the tool's input schema. Errors speak `of` the tool."""
    arguments: JsonObject = {}
    for word in words:
        name, text, raw = split_pair(word)
        try:
            value = read_json(text) if raw else _typed_argument(name, text, schema, of)
        except Mistyped as error:
            raise UsageError(f"argument {name!r} {error}") from None
        if name not in arguments:
            arguments[name] = value
        elif is_array(arguments[name]) and is_array(value):
            arguments[name] += value
        else:
            raise UsageError(f"argument {name!r} is given twice")
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    if missing:
        raise UsageError(f"{of} needs {', '.join(f'{name}=...' for name in missing)}")
    return arguments


def _typed_argument(name: str, text: str, schema: Mapping[str, Any], of: str) -> Any:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if name in properties:
        return typed(text, properties[name], schema)
    if schema.get("additionalProperties") is False:
        raise UsageError(f"{of} has no argument {name!r}; it has {', '.join(properties) or 'none'}")
    return typed(text, schema.get("additionalProperties", True), schema)


def read_json(text: str) -> Any:
    """The value of a JSON text, or `Mistyped`."""
    try:
        return decode(text.encode())
    except ParseError as error:
        raise Mistyped(f"is not JSON: {text!r} ({error.message.removeprefix('Parse error: ')})") from None


def typed(text: str, schema: Any, root: Mapping[str, Any] | None = None) -> Any:
    """The value of a word that must fit `schema`, or `Mistyped`."""
    root = {} if root is None else root
    kinds = _kinds(schema, root, 0)
    if kinds == {"string"}:
        return text
    if "array" in kinds and "string" not in kinds and not text.lstrip().startswith("["):
        return [typed(text, _resolved(schema, root).get("items", True), root)]
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if not kinds or kind in kinds:
            fits, value = _read_as(kind, text, guess="integer" in kinds or not kinds)
            if fits:
                return value
    if not kinds or "string" in kinds:
        return text
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in sorted(kinds))
    raise Mistyped(f"must be {wanted}, not {text!r}")


def _read_as(kind: str, text: str, *, guess: bool) -> tuple[bool, Any]:
    """Whether a word can be read as this JSON type, and its value."""
    if kind == "boolean" and not guess and text.lower() in (*_YES, *_NO):
        return True, text.lower() in _YES
    try:
        value = decode(text.encode())
    except ParseError:
        return False, None
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return True, int(value)
    fits = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "array": is_array(value),
        "object": is_object(value),
    }
    return fits[kind], value


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    schema = _resolved(schema, root)
    if depth > 20:  # A schema that refers to itself.
        return set()
    named = schema.get("type")
    if named is not None:
        return {str(kind) for kind in named} if is_array(named) else {str(named)}
    kinds: set[str] = set()
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        kinds |= _kinds(branch, root, depth + 1)
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if values and all(isinstance(value, str) for value in values):
        kinds.add("string")
    return kinds


def _resolved(schema: Any, root: Mapping[str, Any]) -> JsonObject:
    for _ in range(20):
        if not is_object(schema):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
        schema = target
    return {}


def variables(words: Sequence[str]) -> dict[str, str]:
    """Those of `--env`: `NAME=VALUE`, or `NAME` alone for the value that it has here."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or "\0" in word:
            raise UsageError(f"--env {word!r} is not NAME=VALUE or NAME")
        if equals:
            given[name] = value
        elif name in os.environ:
            given[name] = os.environ[name]
        else:
            raise UsageError(f"--env {name}: there is no such variable here; write {name}=VALUE")
    return given


def named_headers(words: Sequence[str]) -> dict[str, str]:
    """Those of `--header`: `Name: value`."""
    pairs = [word.partition(":") for word in words]
    if wrong := [word for word, (_, colon, _) in zip(words, pairs, strict=True) if not colon]:
        raise UsageError(f"--header {wrong[0]!r} is not 'Name: value'")
    return {name.strip(): value.strip() for name, _, value in pairs}
