"""The fields of a form: how each is filled in, and what is wrong with a value."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from ekiden.cli.arguments import typed
from ekiden.cli.terminal.screen import harmless
from ekiden.errors import Mistyped
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["Field", "fields_of"]

Kind: TypeAlias = Literal["text", "boolean", "choice", "choices"]

_FORMATS: Final = {
    "email": "an e-mail address",
    "uri": "a URL such as https://example.com",
    "date": "a date such as 2026-07-28",
    "date-time": "a time such as 2026-07-28T09:00:00Z",
}


def fields_of(schema: Mapping[str, Any]) -> "list[Field]":
    """The fields of a requested schema, in its order."""
    properties: Any = schema.get("properties")
    needed = _listed(schema.get("required"))
    if not is_object(properties):
        return []
    return [Field(name, field, name in needed) for name, field in properties.items() if is_object(field)]


class Field:
    """One field of a requested schema."""

    def __init__(self, name: str, schema: JsonObject, required: bool) -> None:
        self.name = name
        self.schema = schema
        self.required = required

    @property
    def kind(self) -> Kind:
        """How it is filled in."""
        if self.choices:
            return "choices" if self.schema.get("type") == "array" else "choice"
        return "boolean" if self.schema.get("type") == "boolean" else "text"

    @property
    def label(self) -> str:
        """What the user reads."""
        title, about = self.schema.get("title"), self.schema.get("description")
        label = harmless(title or self.name).replace("\n", " ")
        return f"{label} ({harmless(about)})".replace("\n", " ") if about else label

    @cached_property
    def choices(self) -> list[tuple[str, str]]:
        """Values and their titles."""
        items: Any = self.schema.get("items")
        schema: JsonObject = items if is_object(items) else self.schema
        titled: Any = schema.get("oneOf") or schema.get("anyOf")
        if is_array(titled):
            options = [option for option in titled if is_object(option) and "const" in option]
            return [(option["const"], harmless(option.get("title", option["const"]))) for option in options]
        values, names = _listed(schema.get("enum")), _listed(schema.get("enumNames"))
        return [(value, harmless(names[at] if at < len(names) else value)) for at, value in enumerate(values)]

    @property
    def default(self) -> Any:
        """The server's default, if it is valid."""
        suggested = self.schema.get("default")
        return None if suggested is None or self.problem(suggested) is not None else suggested

    def read(self, text: str) -> Any:
        """The value of the typed text, or `Mistyped`."""
        is_text = self.schema.get("type", "string") == "string"
        value = text if is_text else typed(text.strip(), self.schema)
        if (problem := self.problem(value)) is not None:
            raise Mistyped(problem)
        return value

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in words that follow the field's name; None if it is valid."""
        error = next(iter(self._validator.iter_errors(value)), None)
        if error is None:
            return None
        broken, wanted = error.schema_path[-1], str(self.schema.get("format"))
        if broken == "format" and wanted in _FORMATS:
            return f"must be {_FORMATS[wanted]}"
        if broken in ("enum", "oneOf", "anyOf") and self.choices:
            return f"must be one of {', '.join(str(value) for value, _ in self.choices)}"
        return f"does not fit: {harmless(error.message)}"

    @cached_property
    def _validator(self) -> Any:
        import jsonschema_rs  # It takes 20 ms to load, and only forms need it.

        try:
            return jsonschema_rs.validator_for(self.schema, validate_formats=True, retriever=_never_fetch)
        except (ValueError, jsonschema_rs.ReferencingError):
            return jsonschema_rs.validator_for({})  # The server checks the answer anyway.


def _listed(value: Any) -> list[Any]:
    return value if is_array(value) else []


def _never_fetch(uri: str) -> Any:
    raise ValueError(f"$ref {uri!r} leaves the schema, and references are never fetched")
