"""JSON Schemas, made from types or written by authors, and validators for them.

A schema that an author wrote is passed through verbatim and checked by a 2020-12 validator that
never fetches a `$ref` from the network.
"""

import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from pydantic import (
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema

from ekiden.errors import RegistrationError
from ekiden.signals import ArgumentsInvalid, UnusableSchema
from ekiden.wire.json import JsonObject, copied
from ekiden.wire.schemas.validator import MAX_REPORTED, path_text
from ekiden.wire.schemas.validator import json_validator as schema_validator

__all__ = [
    "ExplicitParameters",
    "Parameters",
    "explain",
    "json_validator",
    "lean_schema",
    "type_adapter",
]


class Parameters(Protocol):
    """A schema and its validator."""

    schema: JsonObject

    def bind(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """The keyword arguments to call with, or `ArgumentsInvalid`."""
        ...


class _LeanSchema(GenerateJsonSchema):
    """Leaves out the titles that pydantic derives from names: a model reads every byte of a tool list."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: Any) -> JsonObject:
        return _untitled(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> JsonObject:
        return _untitled(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: Any) -> JsonObject:
        return _untitled(super().typed_dict_schema(schema), schema.get("cls"))


def _untitled(schema: JsonObject, cls: object) -> JsonObject:
    """The schema of a class without the class's name; a title that its author gave stays."""
    if schema.get("title") == getattr(cls, "__name__", None):
        del schema["title"]
    return schema


def lean_schema(
    adapter: TypeAdapter[Any], mode: typing.Literal["validation", "serialization"], what: str
) -> JsonObject:
    """The adapter's JSON Schema without derived titles."""
    try:
        schema = adapter.json_schema(schema_generator=_LeanSchema, mode=mode)
    except PydanticInvalidForJsonSchema as error:
        raise RegistrationError(f"{what}: a type hint has no JSON Schema: {error}") from error
    for name, definition in schema.get("$defs", {}).items():
        # Titles of enums are added after the generator has run, so they are removed here.
        if "enum" in definition and definition.get("title") == name:
            del definition["title"]
    return schema


def type_adapter(hint: Any, what: str) -> TypeAdapter[Any]:
    """A `TypeAdapter`; pydantic's errors become a `RegistrationError`."""
    try:
        return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise RegistrationError(f"{what}: pydantic cannot handle a type hint: {error}") from error


_MOST_PROBLEMS: Final = 5_000
"""pydantic takes a microsecond or more to tell of one problem, and tells of all or none."""


def explain(error: ValidationError) -> str:
    """The problems that pydantic found, in one line that names each field."""
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count()} problems, which are too many to list"
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{path_text(problem['loc'])}: {problem['msg']}" for problem in problems[:MAX_REPORTED]]
    if len(problems) > MAX_REPORTED:
        lines.append(f"and {len(problems) - MAX_REPORTED} more")
    return "; ".join(lines)


class ExplicitParameters:
    """Parameters described by a JSON Schema of the author's own."""

    def __init__(self, schema: Mapping[str, Any], names: tuple[str, ...], *, what: str) -> None:
        self.schema = dict(schema)
        if self.schema.get("type") != "object":
            raise RegistrationError(f'{what}: an input schema needs "type": "object" at its root')
        self._problems = json_validator(self.schema, what)
        properties = self.schema.get("properties", {})
        self._whole = names[0] if len(names) == 1 and names[0] not in properties else None
        self._names = frozenset(names)

    def bind(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Validate; the handler gets a copy of the arguments, without those that it has no parameter for."""
        if problems := self._problems(arguments):
            raise ArgumentsInvalid(problems)
        own: JsonObject = copied(arguments)
        if self._whole is not None:
            return {self._whole: own}
        return {name: value for name, value in own.items() if name in self._names}


def json_validator(
    schema: Mapping[str, object], what: str, *, formats: bool = False, quotes: bool = True
) -> Callable[[Any], str | None]:
    """A validator of JSON values: it returns what is wrong, or None if nothing is.

    2020-12 unless `$schema` says otherwise; an unknown dialect, an invalid schema and a `$ref`
    that leaves the document are refused.
    """
    try:
        return schema_validator(dict(schema), formats=formats, quotes=quotes)
    except UnusableSchema as error:
        raise RegistrationError(f"{what}: not a valid JSON Schema: {error}") from error
