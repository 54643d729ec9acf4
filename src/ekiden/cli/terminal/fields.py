"""The fields of a form: how each is filled in, and what is wrong with a value."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from ekiden.cli.arguments import typed
from ekiden.cli.terminal.screen import one_line
from ekiden.errors import InvalidResult, Mistyped
from ekiden.signals import TooCostly, UnusableSchema
from ekiden.wire.json import JsonObject, is_array, is_object
from ekiden.wire.schemas.validator import SchemaOfPeer

__all__ = ["Field", "fields_of"]

Kind: TypeAlias = Literal["text", "boolean", "choice", "choices"]

_FORMATS: Final = {
    "email": "an e-mail address",
    "uri": "a URL such as https://example.com",
    "date": "a date such as 2026-07-28",
    "date-time": "a time such as 2026-07-28T09:00:00Z",
}
_MOST_FIELDS: Final = 200
"""More than anybody fills in at a terminal."""
_MOST_CHOICES: Final = 1000
"""Choices that are shown. A terminal with more takes long to draw them."""


def fields_of(schema: Mapping[str, Any]) -> "list[Field]":
    """The fields of a requested schema, in its order."""
    properties: Any = schema.get("properties")
    needed = _listed(schema.get("required"))
    if not is_object(properties):
        return []
    if len(properties) > _MOST_FIELDS:
        raise InvalidResult(f"The server's form has {len(properties)} fields; {_MOST_FIELDS} are possible")
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
        label = one_line(title or self.name)
        return f"{label} ({one_line(about)})" if about else label

    @cached_property
    def choices(self) -> list[tuple[str, str]]:
        """Values and their titles."""
        items: Any = self.schema.get("items")
        schema: JsonObject = items if is_object(items) else self.schema
        titled: Any = schema.get("oneOf") or schema.get("anyOf")
        if is_array(titled):
            options = [option for option in titled[:_MOST_CHOICES] if is_object(option) and "const" in option]
            return [(option["const"], one_line(option.get("title", option["const"]))) for option in options]
        values, names = _listed(schema.get("enum"))[:_MOST_CHOICES], _listed(schema.get("enumNames"))
        return [(value, one_line(names[at] if at < len(names) else value)) for at, value in enumerate(values)]

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
        if self._checked is None:
            return None
        try:
            found = next(self._checked.problems(value), None)
        except TooCostly as refusal:
            return f"cannot be checked: {refusal}"
        if found is None:
            return None
        wanted = str(self.schema.get("format"))
        if found.keyword == "format" and wanted in _FORMATS:
            return f"must be {_FORMATS[wanted]}"
        if found.keyword in ("enum", "oneOf", "anyOf") and self.choices:
            return f"must be one of {', '.join(one_line(value) for value, _ in self.choices)}"
        return f"does not fit: {one_line(found.message)}"

    @cached_property
    def _checked(self) -> SchemaOfPeer | None:
        """The field's schema; None if it cannot be used. The server checks the answer anyway."""
        try:
            return SchemaOfPeer(self.schema, formats=True)
        except UnusableSchema:
            return None


def _listed(value: Any) -> list[Any]:
    return value if is_array(value) else []
