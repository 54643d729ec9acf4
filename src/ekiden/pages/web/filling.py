"""A form of a JSON schema: what it shows first, and what the posted form means.

`Form(schema).blank()` is shown first. `Form(schema).read(posted)` has the values, or what is wrong with each
field and everything as it was typed, to be shown again. The schema may be a stranger's: to check a value
against it has a budget, and its patterns are matched without backtracking.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from ekiden.errors import Mistyped, ParseError
from ekiden.pages.web.fields import Field, fields_of, leaves, token_of
from ekiden.pages.web.wording import wrong
from ekiden.signals import TooCostly, UnusableSchema
from ekiden.wire.json import JsonObject, decode, encode, is_array, is_object
from ekiden.wire.printable import one_line
from ekiden.wire.schemas.validator import Problem, SchemaOfPeer

__all__ = ["Filled", "Form", "FormView", "asked_schema"]

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LONGEST_NUMBER: Final = 300
"""Letters. Beyond it a number is a mistake."""
_LOCAL_TIME: Final = re.compile(r"[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
"""What a control for times sends: a time without a zone, and often without seconds."""
_MISSING: Final = object()
_REQUIRED: Final = "This is required."
_MOST_PROBLEMS: Final = 50
"""Problems of one form that are shown."""


def asked_schema(requested: Any) -> JsonObject:
    """The schema of a question as a form shows it.

    A question for one value has a field without a title, of which the message tells: it gets a label.
    """
    fields: Any = requested.get("properties") if is_object(requested) else None
    if is_object(fields) and fields.keys() == {"value"} and is_object(fields["value"]):
        return {**requested, "properties": {"value": {"title": "Your answer", **fields["value"]}}}
    return requested if is_object(requested) else {}


class FormView(msgspec.Struct):
    """A form as it is shown: its fields, what is typed in them, what is wrong."""

    fields: tuple[Field, ...]
    typed: dict[str, list[str]]
    """What each control holds, by its name."""
    errors: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """What is wrong, by the control's name."""
    problem: str | None = None
    """What is wrong with the whole."""

    def text(self, field: Field) -> str:
        """What is typed in a field."""
        return next(iter(self.typed.get(field.name, ())), "")

    def chosen(self, field: Field) -> Sequence[str]:
        """The tokens of what is chosen in a field."""
        return self.typed.get(field.name, ())

    def error(self, field: Field) -> str | None:
        """What is wrong with a field."""
        return self.errors.get(field.name)

    @property
    def faulty(self) -> list[tuple[Field, str]]:
        """The fields that something is wrong with, in order."""
        return [
            (field, self.errors[field.name]) for field in leaves(self.fields) if field.name in self.errors
        ]


class Filled(msgspec.Struct):
    """A form that was posted."""

    values: Any
    """The values, where nothing is wrong; for nearly all forms an object."""
    view: FormView
    """The form as it was typed, with what is wrong."""

    @property
    def fits(self) -> bool:
        """Whether nothing is wrong."""
        return not self.view.errors and self.view.problem is None


class Form:
    """The form of one schema."""

    def __init__(self, schema: Any, *, prefix: str = "field") -> None:
        self._schema = schema
        self.fields = fields_of(schema, prefix=prefix)
        self._blank = {field.name: _shown(field, field.default) for field in leaves(self.fields)}

    def blank(self) -> FormView:
        """The form before it is filled in: with the defaults of the schema."""
        return FormView(self.fields, dict(self._blank))

    def holding(self, values: Any) -> FormView:
        """The form with these values in it."""
        typed = {field.name: _shown(field, _at(values, field.path)) for field in leaves(self.fields)}
        return FormView(self.fields, typed)

    def read(self, posted: Mapping[str, Sequence[str]]) -> Filled:
        """What was posted, by the names of the controls."""
        typed = {field.name: list(posted.get(field.name, ())) for field in leaves(self.fields)}
        view = FormView(self.fields, typed)
        values = _Reader(view, self._blank).values(self.fields)
        self._check(values, view)
        return Filled(values, view)

    def _check(self, values: Any, view: FormView) -> None:
        """Hold the values to the whole schema. If it cannot be used, whoever gets the values checks them."""
        if self._checked is None:
            return
        is_whole = not view.errors  # Otherwise values are missing, of which the schema says nothing new.
        try:
            for count, problem in enumerate(self._checked.problems(values)):
                if count == _MOST_PROBLEMS:
                    break
                self._note(problem, values, view, is_whole=is_whole)
        except TooCostly as refusal:
            if is_whole:
                view.problem = f"This cannot be checked: {refusal}."

    def _note(self, problem: Problem, values: Any, view: FormView, *, is_whole: bool) -> None:
        path = tuple(str(part) for part in problem.path)
        for field in leaves(self.fields):
            if path[: len(field.path)] == field.path and (field.path or len(self.fields) == 1):
                told = self._closer(field, problem, values)
                view.errors.setdefault(field.name, wrong(field, told, path[len(field.path) :]))
                return
        if is_whole:
            words = f"{'.'.join(path) or 'This'} does not fit: {problem.message}"
            view.problem = view.problem or one_line(words)

    def _closer(self, field: Field, problem: Problem, values: Any) -> Problem:
        """What is wrong with a field that may be null, of which the schema says only that nothing fits."""
        if problem.keyword not in ("anyOf", "oneOf") or not field.nullable or not is_object(self._schema):
            return problem
        kept = {word: self._schema[word] for word in ("$defs", "definitions") if word in self._schema}
        try:
            found = SchemaOfPeer({**kept, **field.schema}, formats=True).problems(_at(values, field.path))
            return next(found, problem)
        except (UnusableSchema, TooCostly):
            return problem

    @cached_property
    def _checked(self) -> SchemaOfPeer | None:
        try:
            return SchemaOfPeer(self._schema, formats=True)
        except UnusableSchema:
            return None


class _Reader:
    """Reads what was typed, and notes what cannot be read."""

    def __init__(self, view: FormView, blank: Mapping[str, list[str]]) -> None:
        self._view = view
        self._blank = blank

    def values(self, fields: tuple[Field, ...]) -> Any:
        if len(fields) == 1 and fields[0].path == ():
            whole = self._value(fields[0])
            return None if whole is _MISSING else whole
        return self._members(fields)

    def _members(self, fields: tuple[Field, ...]) -> JsonObject:
        read = {field.path[-1]: self._value(field) for field in fields}
        return {name: value for name, value in read.items() if value is not _MISSING}

    def _value(self, field: Field) -> Any:
        """The value of a field; `_MISSING` if it is left out, or if something is wrong with it."""
        if field.kind == "group":
            if field.required and not field.nullable:
                return self._members(field.fields)
            value = self._members(field.fields) if self._begun(field) else _MISSING
        else:
            try:
                value = _read(field, self._view.typed[field.name])
            except Mistyped as error:
                self._view.errors[field.name] = str(error)
                return _MISSING
        if value is not _MISSING or not field.required:
            return value
        if field.nullable:
            return None
        self._view.errors[field.name] = _REQUIRED
        return _MISSING

    def _begun(self, group: Field) -> bool:
        """Whether something was typed into an optional group. What it showed first does not count."""
        return any(
            _plain(self._view.typed[field.name]) not in ([], _plain(self._blank[field.name]))
            for field in leaves(group.fields)
        )


def _plain(typed: Sequence[str]) -> list[str]:
    return [text.replace("\r\n", "\n") for text in typed if text]


def _read(field: Field, posted: list[str]) -> Any:
    """The value that was typed; `Mistyped` with a whole sentence if it is none."""
    if field.kind == "choices":
        known = _known(field)
        chosen = [_choice(known, token) for token in posted if token]
        return chosen if chosen or field.required or field.default else _MISSING
    text = posted[0].replace("\r\n", "\n") if posted else ""
    if not (text if field.kind in ("text", "long") else text.strip()):
        return _MISSING
    if field.kind in ("choice", "boolean"):
        return _choice(_known(field), text)
    if field.kind in ("integer", "number"):
        return _number(field, text.strip())
    if field.kind == "json":
        try:
            return decode(text.encode(errors="replace"))
        except ParseError as error:
            reason = error.message.removeprefix("Parse error: ")
            raise Mistyped(f"This is not JSON: {one_line(reason)}.") from None
    if field.input == "datetime-local" and (local := _LOCAL_TIME.fullmatch(text.strip())):
        return f"{local[0]}{'' if local[1] else ':00'}Z"
    return text if field.input in ("text", "password") else text.strip()


def _known(field: Field) -> dict[str, Any]:
    """The values that may be chosen, by token; of two with the same token, the first."""
    return {choice.token: choice.value for choice in reversed(field.choices)}


def _choice(known: Mapping[str, Any], token: str) -> Any:
    if token not in known:
        raise Mistyped("Choose one of the values that are offered.")
    return known[token]


def _number(field: Field, text: str) -> int | float:
    kind = "a whole number" if field.kind == "integer" else "a number"
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise Mistyped(f"This must be {kind}.")
    if text.lstrip("+-").isdecimal():
        return int(text)
    value = float(text)
    if value.is_integer() and field.kind == "integer":
        return int(value)
    if field.kind == "integer" or value in (float("inf"), float("-inf")):
        raise Mistyped(f"This must be {kind}.")
    return value


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values.get(name) if is_object(values) else None
    return values


def _shown(field: Field, value: Any) -> list[str]:
    """A value as its control holds it; nothing if it is not of the field's kind."""
    if value is None:
        return []
    if field.kind == "choices":
        known = {choice.token for choice in field.choices}
        return [token_of(item) for item in value if token_of(item) in known] if is_array(value) else []
    if field.kind in ("choice", "boolean"):
        return [token_of(value)]
    if field.kind == "json":
        return [msgspec.json.format(encode(value), indent=2).decode()]
    if field.kind in ("integer", "number"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return [token_of(value)] if is_number else []
    if not isinstance(value, str):
        return []
    return [_in_utc(value)] if field.input == "datetime-local" else [value]


def _in_utc(text: str) -> str:
    """A time as its control holds it, in UTC and without a zone; nothing if it is not a time."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() if moment.tzinfo else moment.isoformat()
