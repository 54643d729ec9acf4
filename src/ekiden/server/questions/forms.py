"""Forms: what may be asked of a user, as the spec's restricted JSON Schema (client: Elicitation).

A form is a flat object of strings, numbers, booleans and choices. It is made from a pydantic
model (or dataclass, or typed dict), from a single type such as `bool` or an `Enum`, from a list of texts
to choose from, or from a JSON Schema of the author's own. A field that the restricted schema cannot
express is refused by name, and so is every secret type: secrets go through `elicit_url`, not through forms.
"""

import enum
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ekiden.errors import UsageError
from ekiden.rounds.asks import ELICIT, Ask
from ekiden.rounds.journal import fingerprint, framed
from ekiden.server.questions.restricted import PLAIN_KEYS, check_field, restricted
from ekiden.server.schemas import explain, json_validator, lean_schema, type_adapter
from ekiden.signals import MalformedAnswer, UnfitAnswer
from ekiden.wire.json import (
    ENCODE_ERRORS,
    JsonObject,
    canonical,
    copied,
    decode,
    encode,
    is_object,
)

__all__ = [
    "Accepted",
    "Answer",
    "Cancelled",
    "Declined",
    "Form",
    "accepted_content",
    "elicitation_reader",
    "form_for",
    "with_meta",
]

T = TypeVar("T")


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """The user agreed; `data` is what was filled in."""

    data: T
    action: Literal["accept"] = "accept"


class Declined(msgspec.Struct, frozen=True):
    """The user said no."""

    data: None = None
    action: Literal["decline"] = "decline"


class Cancelled(msgspec.Struct, frozen=True):
    """The user dismissed the question without an answer."""

    data: None = None
    action: Literal["cancel"] = "cancel"


Answer: TypeAlias = Accepted[T] | Declined | Cancelled

_NEEDS: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}

_WRAPPED: Final = "value"
"""The name of the one field that a single type becomes."""

_REMEMBERED: Final = 128
"""How many questions a form caches."""
_SHORT: Final = 500
"""Characters of a message up to which its question is cached."""


class Form(msgspec.Struct):
    """A requested schema, and how to read what was filled in."""

    schema: JsonObject
    read: Callable[[Any], Answer[Any]]
    spelled: bytes
    """The form's part of the fingerprint of every question."""
    asked: dict[str, Ask] = msgspec.field(default_factory=dict[str, Ask])
    """A cache of questions by message: a replay comes to each of them again in every later round."""

    def ask(self, message: str) -> Ask:
        """The question that shows this form with a message."""
        known = self.asked.get(message)
        if known is None:
            known = self._ask(message)
            if len(message) <= _SHORT:
                if len(self.asked) >= _REMEMBERED:
                    self.asked.clear()
                self.asked[message] = known
        return known

    def _ask(self, message: str) -> Ask:
        text = message.encode()
        return Ask(
            ELICIT,
            {"mode": "form", "message": message, "requestedSchema": self.schema},
            _NEEDS,
            self.read,
            fingerprint(b"%b%d:%b" % (self.spelled, len(text), text)),
        )


def with_meta(ask: Ask, meta: Mapping[str, Any]) -> Ask:
    """The question with a `_meta`. Its fingerprint stays: that says how it is shown, not what it asks."""
    try:
        spelled = decode(encode(dict(meta)))
    except ENCODE_ERRORS as error:
        raise UsageError(f"meta= must be a JSON object: {error}") from None
    return msgspec.structs.replace(ask, params={**(ask.params or {}), "_meta": spelled})


def _form(schema: JsonObject, read: Callable[[JsonObject], Any]) -> Form:
    return Form(schema, elicitation_reader(read), framed(b"form", canonical(schema)))


def elicitation_reader(read: Callable[[JsonObject], Any]) -> Callable[[Any], Answer[Any]]:
    """Reads an `ElicitResult` as an answer; `read` checks the content of an accepted one."""

    def read_result(raw: Any) -> Answer[Any]:
        content = accepted_content(raw)
        if content is not None:
            return Accepted(read(content))
        return Declined() if raw["action"] == "decline" else Cancelled()

    return read_result


def accepted_content(raw: Any) -> JsonObject | None:
    """What was filled in, in an `ElicitResult`; None if the user did not agree."""
    action = raw.get("action") if raw.__class__ is dict else None
    if action == "accept":
        content: JsonObject | None = raw.get("content")
        if content.__class__ is dict:
            return content
        if content is None:
            return {}
        raise MalformedAnswer("`content` must be an object")
    if action == "decline" or action == "cancel":
        return None
    raise MalformedAnswer("`action` must be accept, decline or cancel")


def form_for(schema: object) -> Form:
    """The form for a type, for texts to choose from, or for a JSON Schema; made once for each type."""
    if isinstance(schema, type):  # Most are, and to tell a mapping takes ten times as long.
        return _form_of_type(schema)
    if isinstance(schema, Mapping):
        return _explicit_form(typing.cast("Mapping[str, Any]", schema))
    if isinstance(schema, list | tuple):
        return _form_of_choices(typing.cast("Sequence[object]", schema))
    return _form_of_type(schema)


@functools.lru_cache(maxsize=1024)
def _form_of_type(hint: object) -> Form:
    what = f"form {getattr(hint, '__name__', None) or hint}"
    single = _is_single(hint)
    adapter = type_adapter(_one_field(hint) if single else hint, what)
    schema = restricted(lean_schema(adapter, "validation", what), what, _labels(hint))
    return _form(schema, _reader(adapter, schema, single))


def _is_single(hint: object) -> bool:
    """Whether the type is one value rather than an object of named fields."""
    origin = typing.get_origin(hint) or hint
    if origin in (Literal, list, typing.Annotated):
        return True
    return isinstance(origin, type) and issubclass(origin, str | int | float | bool | enum.Enum)


def _one_field(hint: object) -> Any:
    make_typed_dict: Any = TypedDict  # Made at run time, which type checkers do not follow.
    return make_typed_dict("Form", {_WRAPPED: hint})


def _reader(adapter: TypeAdapter[Any], schema: JsonObject, single: bool) -> Callable[[JsonObject], Any]:
    problems = _lazy_validator(schema)
    validate, validate_dict = adapter.validator.validate_json, adapter.validator.validate_python
    plain = all(PLAIN_KEYS.issuperset(field) for field in schema["properties"].values())
    bare = plain and _is_bare(adapter.core_schema)

    def read(content: JsonObject) -> Any:
        if plain:
            # If the schema restricts only types, strict mode checks the same. A failure is explained below.
            try:
                if bare:
                    value = validate_dict(content, strict=True)
                else:
                    value = validate(encode(content), strict=True)
            except ValidationError:
                pass
            else:
                return value[_WRAPPED] if single else value
        if (found := problems(content)) is not None:
            raise UnfitAnswer(found)
        try:
            value = validate(canonical(content))
        except ValidationError as error:
            raise UnfitAnswer(explain(error)) from None
        return value[_WRAPPED] if single else value

    return read


def _is_bare(schema: Any) -> bool:
    """Whether a type consists of scalars, without validators or constructors of the author.

    Then it can be validated from Python values, with the same result as from JSON: it holds nothing of them
    that can be changed. Fields that it does not know could be, so it must not keep them.
    """
    kind = schema["type"]
    if "allow" in (schema.get("extra_behavior"), schema.get("config", {}).get("extra_fields_behavior")):
        return False
    if kind in ("model", "default", "nullable"):
        return not schema.get("custom_init") and _is_bare(schema["schema"])
    if kind in ("model-fields", "typed-dict"):
        return all(_is_bare(field["schema"]) for field in schema["fields"].values())
    return kind in ("str", "int", "float", "bool")


def _lazy_validator(schema: JsonObject) -> Callable[[Any], str | None]:
    """A validator of answers by the schema that was sent; compiled when the first answer comes."""
    made: list[Callable[[Any], str | None]] = []

    def problems(content: object) -> str | None:
        if not made:
            made.append(json_validator(schema, "form", formats=True))
        return made[0](content)

    return problems


def _form_of_choices(choices: Sequence[object]) -> Form:
    """One of some texts, which are known only when the handler runs."""
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise UsageError('a list of choices must have texts, as in ["red", "blue"], and at least one of them')
    field: JsonObject = {"type": "string", "enum": list(dict.fromkeys(choices))}
    schema: JsonObject = {"type": "object", "properties": {_WRAPPED: field}, "required": [_WRAPPED]}
    problems = _lazy_validator(schema)

    def read(content: JsonObject) -> str:
        if (found := problems(content)) is not None:
            raise UnfitAnswer(found)
        chosen: str = content[_WRAPPED]
        return chosen

    return _form(schema, read)


def _explicit_form(schema: Mapping[str, Any]) -> Form:
    given = dict(schema)
    if given.get("type") != "object" or not is_object(given.get("properties", {})):
        raise UsageError('a form needs "type": "object" and "properties"')
    for name, field in given.get("properties", {}).items():
        check_field(name, field)
    problems = _lazy_validator(given)

    def read(content: JsonObject) -> JsonObject:
        if (found := problems(content)) is not None:
            raise UnfitAnswer(found)
        own: JsonObject = copied(content)
        return own

    return _form(given, read)


def _labels(hint: object) -> dict[str, dict[Any, str]]:
    """The labels of enums whose members have a `label`, by field."""
    if _is_single(hint):
        return {_WRAPPED: found} if (found := _labels_in(hint)) else {}
    hints = typing.get_type_hints(hint)
    return {name: found for name, field in hints.items() if (found := _labels_in(field))}


def _labels_in(hint: object) -> dict[Any, str]:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {member.value: str(label) for member in hint if (label := getattr(member, "label", None))}
    for argument in typing.get_args(hint):
        if found := _labels_in(argument):
            return found
    return {}
