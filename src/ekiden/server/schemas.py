"""JSON Schemas from signatures, and the validators that hold callers to them.

A handler's parameters become one closed object schema. Descriptions come from
`Annotated[..., Field(...)]` or from the docstring; defaults stay with the function. Whoever wants
to write the JSON Schema himself may: it is passed through verbatim and checked by a 2020-12
validator that never fetches a `$ref` from the network.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, Protocol

import docstring_parser
import msgspec
from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from ekiden.errors import RegistrationError
from ekiden.server.context import Context

__all__ = [
    "ArgumentsInvalid",
    "Parameters",
    "Signature",
    "explicit_parameters",
    "json_validator",
    "read_signature",
]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAX_REPORTED: Final = 10
"""Errors named to the caller; enough to mend a call, short enough for a model's context."""


class ArgumentsInvalid(Exception):
    """Arguments do not fit their schema; the text names each field and why."""


class Parameters(Protocol):
    """A schema and its validator."""

    schema: dict[str, Any]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments to call with, or `ArgumentsInvalid`."""
        ...


class Signature(msgspec.Struct):
    """What a handler's signature says."""

    summary: str | None
    """The docstring without its parameter section."""
    parameters: "_HintedParameters"
    returns: Any
    """The return annotation, or `inspect.Signature.empty`."""
    context: str | None
    """The name of the parameter that wants the `Context`."""


def read_signature(function: Callable[..., Any], *, what: str) -> Signature:
    """Read a handler's signature; `what` names it in errors."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise RegistrationError(f"{what}: a type hint cannot be resolved: {error}") from error
    docs = docstring_parser.parse(inspect.getdoc(function) or "")
    descriptions = {param.arg_name: param.description for param in docs.params if param.description}
    context: str | None = None
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RegistrationError(f"{what}: parameter {name!r} must be callable by keyword")
        hint = hints.get(name, Any)
        if _is_context(hint):
            context = name
            continue
        fields[name], default = _field(hint, parameter.default, descriptions.get(name))
        if default is not inspect.Parameter.empty:
            defaults[name] = default
    return Signature(
        summary=_summary(docs),
        parameters=_HintedParameters(fields, defaults, what),
        returns=hints.get("return", inspect.Signature.empty),
        context=context,
    )


def _is_context(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, Context)


def _summary(docs: docstring_parser.Docstring) -> str | None:
    parts = [docs.short_description, docs.long_description]
    return "\n\n".join(part for part in parts if part) or None


def _field(hint: Any, default: Any, description: str | None) -> tuple[Any, Any]:
    """The annotation of one field, and its default; `x: int = Field(3, ...)` is understood too."""
    if isinstance(default, FieldInfo):
        info, default = default, inspect.Parameter.empty
        hint = typing.Annotated[hint, info]
        if not info.is_required():
            default = info.get_default(call_default_factory=True, validated_data={})
    if description is not None and not _has_description(hint):
        described = FieldInfo(description=description)
        hint = typing.Annotated[hint, described]
    return hint, default


def _has_description(hint: Any) -> bool:
    metadata = getattr(hint, "__metadata__", ())
    return any(isinstance(entry, FieldInfo) and entry.description for entry in metadata)


class _LeanSchema(GenerateJsonSchema):
    """Without the titles that pydantic derives from names: a model reads every byte of a tool list."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def get_title_from_name(self, name: str) -> str:
        return ""


def lean_schema(
    adapter: TypeAdapter[Any], mode: typing.Literal["validation", "serialization"]
) -> dict[str, Any]:
    """The adapter's JSON Schema without derived titles."""
    schema = adapter.json_schema(schema_generator=_LeanSchema, mode=mode)
    _drop_model_titles(schema)
    for definition in schema.get("$defs", {}).values():
        _drop_model_titles(definition)
    return schema


def _drop_model_titles(schema: dict[str, Any]) -> None:
    title = schema.get("title")
    if isinstance(title, str) and title.isidentifier():
        del schema["title"]


def type_adapter(hint: Any, what: str) -> TypeAdapter[Any]:
    """A `TypeAdapter`, with pydantic's refusal turned into ours."""
    try:
        return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise RegistrationError(f"{what}: pydantic cannot handle a type hint: {error}") from error


class _HintedParameters:
    """Parameters described by type hints, validated by pydantic."""

    def __init__(self, fields: dict[str, Any], defaults: dict[str, Any], what: str) -> None:
        annotations = {name: NotRequired[hint] if name in defaults else hint for name, hint in fields.items()}
        make_typed_dict: Any = TypedDict  # Made at run time, which type checkers do not follow.
        shape = make_typed_dict("Arguments", annotations)
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
        adapter = type_adapter(shape, what)
        self._validate = adapter.validator.validate_python
        try:
            self.schema = lean_schema(adapter, "validation")
        except PydanticInvalidForJsonSchema as error:
            raise RegistrationError(f"{what}: a type hint has no JSON Schema: {error}") from error
        self.schema.setdefault("properties", {})
        self._show_defaults(fields, defaults)
        self.names = tuple(fields)
        self.required = tuple(name for name in fields if name not in defaults)

    def _show_defaults(self, fields: dict[str, Any], defaults: dict[str, Any]) -> None:
        for name, default in defaults.items():
            try:
                shown = TypeAdapter(fields[name]).dump_python(default, mode="json", warnings=False)
                msgspec.json.encode(shown)
            except Exception:  # noqa: S112  a default that JSON cannot show is simply not shown
                continue
            subschema = self.schema["properties"][name]
            if "$ref" in subschema and shown is None:
                continue
            subschema.setdefault("default", shown)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate and convert. Absent fields stay absent: the function has their defaults."""
        try:
            bound: dict[str, Any] = self._validate(arguments)
        except ValidationError as error:
            raise ArgumentsInvalid(_explain(error)) from None
        return bound


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{_path(problem['loc'])}: {problem['msg']}" for problem in problems[:_MAX_REPORTED]]
    if len(problems) > _MAX_REPORTED:
        lines.append(f"and {len(problems) - _MAX_REPORTED} more")
    return "; ".join(lines)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "arguments"


class explicit_parameters:  # noqa: N801  reads as the function it is
    """Parameters described by a JSON Schema of the author's own."""

    def __init__(self, schema: Mapping[str, Any], names: tuple[str, ...], *, spread: bool, what: str) -> None:
        self.schema = dict(schema)
        if self.schema.get("type") != "object":
            raise RegistrationError(f'{what}: an input schema needs "type": "object" at its root')
        self._problems = json_validator(self.schema, what)
        self._spread = spread
        self._names = names

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate; the arguments go to the handler as they came."""
        if problems := self._problems(arguments):
            raise ArgumentsInvalid(problems)
        if self._spread:
            return dict(arguments)
        return {self._names[0]: dict(arguments)} if self._names else {}


def json_validator(schema: Mapping[str, Any], what: str) -> Callable[[Any], str | None]:
    """A validator of JSON values: it returns what is wrong, or None.

    2020-12 unless `$schema` says otherwise; an unknown dialect, an invalid schema and a `$ref`
    that leaves the document are refused.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(dict(schema), retriever=_never_fetch)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise RegistrationError(f"{what}: not a valid JSON Schema: {error}") from error

    def problems(value: Any) -> str | None:
        found: list[str] = []
        for error in validator.iter_errors(value):
            if len(found) == _MAX_REPORTED:
                found.append("and more")
                break
            found.append(f"{_path(tuple(error.instance_path))}: {error.message}")
        return "; ".join(found) or None

    return problems


def _never_fetch(uri: str) -> Any:
    raise ValueError(f"$ref {uri!r} leaves the schema, and references are never fetched")
