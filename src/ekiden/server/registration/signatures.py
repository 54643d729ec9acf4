"""What a handler's signature says: its parameters, its context, its return type, its docstring.

The parameters become one closed object schema. Descriptions come from `Annotated[..., Field(...)]`
or from the docstring; defaults stay with the function.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired

import docstring_parser
import msgspec
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from ekiden.errors import RegistrationError
from ekiden.server.context import Context
from ekiden.server.schemas import explain, lean_schema, type_adapter
from ekiden.signals import ArgumentsInvalid
from ekiden.wire.json import canonical, encode

__all__ = ["HintedParameters", "Signature", "read_signature"]


class Signature(msgspec.Struct):
    """What a handler's signature says."""

    summary: str | None
    """The docstring without its parameter section."""
    parameters: "HintedParameters"
    returns: Any
    """The return annotation, or `inspect.Signature.empty`."""
    context: str | None
    """The name of the parameter that wants the `Context`."""


def read_signature(function: Callable[..., Any], *, what: str, context: type = Context) -> Signature:
    """Read a handler's signature; `what` names it in errors, and `context` is the type of its context."""
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except Exception as error:
        raise RegistrationError(f"{what}: a type hint cannot be resolved: {error}") from error
    docs = docstring_parser.parse(inspect.getdoc(function) or "")
    descriptions = {param.arg_name: param.description for param in docs.params if param.description}
    wanting: str | None = None
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        _check_written(name, position, hints.get(name), what, context)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RegistrationError(f"{what}: parameter {name!r} must be callable by keyword")
        hint = hints.get(name, Any)
        if _is_context(hint, context):
            wanting = name
            continue
        fields[name], default = _field(hint, parameter.default, descriptions.get(name))
        if default is not inspect.Parameter.empty:
            defaults[name] = default
    return Signature(
        summary=_summary(docs),
        parameters=HintedParameters(fields, defaults, what),
        returns=hints.get("return", inspect.Signature.empty),
        context=wanting,
    )


_CONTEXTS: Final = ("Context", "ExtensionContext")

_PLAIN: Final = (str, int, bool, float)
"""Types whose JSON values need no conversion."""


def _bare(hint: Any) -> Any:
    """A hint without its description. A hint with constraints is returned unchanged."""
    metadata = getattr(hint, "__metadata__", ())
    if metadata and all(isinstance(entry, FieldInfo) and not entry.metadata for entry in metadata):
        return hint.__origin__
    return hint


def _annotated(function: Callable[..., Any]) -> Any:
    """What has the annotations: the function inside a partial, the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _is_context(hint: object, context: type) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):  # `ctx: Context | None = None`
        return any(_is_context(option, context) for option in typing.get_args(hint))
    origin = typing.get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, context)


def _check_written(name: str, position: int, hint: object, what: str, context: type) -> None:
    """Refuse what authors write by mistake, and say what to write instead."""
    if hint is None and position == 0 and name in ("self", "cls"):
        raise RegistrationError(
            f"{what} is a method, and nothing fills in its {name!r}: make the object first, and register its "
            "method with `server.add_...(thing.method)`, or write a function"
        )
    if hint is None and name == "ctx":
        raise RegistrationError(
            f"{what}: parameter 'ctx' has no type: write `ctx: {context.__name__}` ({_import_of(context)}), "
            "or give it another name if it is an argument"
        )
    if isinstance(hint, type) and hint.__name__ in _CONTEXTS and not _is_context(hint, context):
        raise RegistrationError(
            f"{what}: parameter {name!r} wants the {hint.__name__} of {hint.__module__}: "
            f"write {_import_of(context)}"
        )


def _import_of(context: type) -> str:
    home = "ekiden" if context is Context else "ekiden.extensions"
    return f"`from {home} import {context.__name__}`"


def _summary(docs: docstring_parser.Docstring) -> str | None:
    parts = [docs.short_description, docs.long_description]
    return "\n\n".join(part for part in parts if part) or None


def _field(hint: object, default: object, description: str | None) -> tuple[Any, Any]:
    """The annotation of one field, and its default; `x: int = Field(3, ...)` is supported too."""
    if isinstance(default, FieldInfo):
        info, default = default, inspect.Parameter.empty
        hint = typing.Annotated[hint, info]
        if not info.is_required():
            default = info.get_default(call_default_factory=True, validated_data={})
    if description is not None and not _has_description(hint):
        described = FieldInfo(description=description)
        hint = typing.Annotated[hint, described]
    return hint, default


def _has_description(hint: object) -> bool:
    metadata = getattr(hint, "__metadata__", ())
    return any(isinstance(entry, FieldInfo) and entry.description for entry in metadata)


class HintedParameters:
    """Parameters described by type hints, validated by pydantic."""

    def __init__(self, fields: dict[str, Any], defaults: dict[str, Any], what: str) -> None:
        annotations = {name: NotRequired[hint] if name in defaults else hint for name, hint in fields.items()}
        make_typed_dict: Any = TypedDict  # Made at run time, which type checkers do not follow.
        shape = make_typed_dict("Arguments", annotations)
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
        adapter = type_adapter(shape, what)
        self._validate = adapter.validator.validate_python
        self._validate_json = adapter.validator.validate_json
        self.schema = lean_schema(adapter, "validation", what)
        self.schema.setdefault("properties", {})
        self._show_defaults(fields, defaults)
        self.names = tuple(fields)
        self.required = tuple(name for name in fields if name not in defaults)
        described = {name: _bare(hint) for name, hint in fields.items()}
        self._plain = described if all(kind in _PLAIN for kind in described.values()) else None

    def _show_defaults(self, fields: dict[str, Any], defaults: dict[str, Any]) -> None:
        for name, default in defaults.items():
            try:
                shown = TypeAdapter(fields[name]).dump_python(default, mode="json", warnings=False)
                encode(shown)
            except Exception:  # noqa: S112  a default that JSON cannot show is simply not shown
                continue
            subschema = self.schema["properties"][name]
            if "$ref" in subschema and shown is None:
                continue
            subschema.setdefault("default", shown)

    def bind(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Validate and convert. Absent fields stay absent: the function has their defaults.

        Strict, as the published schema is: a string of digits is not an integer. But 1.0 is one, as in
        JSON Schema.
        """
        plain = self._plain
        if plain is not None:
            # The schema restricts only types. If all of them are exact, no validator is needed.
            for name, value in arguments.items():
                if plain.get(name) is not type(value):
                    break
            else:
                if len(arguments) == len(plain) or all(map(arguments.__contains__, self.required)):
                    return dict(arguments)
        try:
            bound: dict[str, Any] = self._validate_json(encode(arguments), strict=True)
        except ValidationError as error:
            spelled = canonical(arguments)
            if spelled == encode(arguments):
                raise ArgumentsInvalid(explain(error)) from None
            return self._bind_spelled(spelled)
        return bound

    def _bind_spelled(self, arguments: bytes) -> dict[str, Any]:
        try:
            bound: dict[str, Any] = self._validate_json(arguments, strict=True)
        except ValidationError as error:
            raise ArgumentsInvalid(explain(error)) from None
        return bound

    def bind_text(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Validate and convert arguments that can only be text: those of prompts and URI templates."""
        try:
            bound: dict[str, Any] = self._validate(arguments)
        except ValidationError as error:
            raise ArgumentsInvalid(explain(error)) from None
        return bound
