"""The fields of a form, made of a JSON schema. The schema may be a stranger's.

Each property becomes a field of one kind. A nested object becomes a group of fields; what no control can show
(lists, unions, maps) is typed as JSON. A schema that has no fields to show, or too many, becomes one field
for the JSON of the whole. Knows: which control suits a schema. Refuses to know: how it is drawn, and
whether a value is valid (`ekiden.pages.web.filling`). A `pattern` is never handed to the browser: its engine
can be made to run for years.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ekiden.wire.json import JsonObject, encode, is_array, is_object
from ekiden.wire.printable import harmless, one_line

__all__ = ["Choice", "Field", "Kind", "fields_of", "leaves", "token_of"]

Kind: TypeAlias = Literal[
    "text", "long", "number", "integer", "boolean", "choice", "choices", "json", "group"
]

_MOST_FIELDS: Final = 200
"""More than anybody fills in on one page."""
_MOST_CHOICES: Final = 500
"""Choices that a page shows. A field with more is typed as JSON."""
_DEEPEST: Final = 4
"""Groups within groups. What is deeper is typed as JSON."""
_MOST_HOPS: Final = 20
"""References that are followed one after the other: a schema may refer to itself."""
_LONGEST_LINE: Final = 120
"""Letters that are typed into one line. A text that may be longer gets an area."""
_MOST_WORDS: Final = 4000
"""Letters of a description."""
_MOST_BUTTONS: Final = 6
"""Choices that are all shown, each with a button."""
_INPUTS: Final = {
    "email": "email",
    "uri": "url",
    "date": "date",
    "date-time": "datetime-local",
    "password": "password",
}
"""The control for each format. Others are plain text."""
_YES_OR_NO: Final = ((True, "Yes"), (False, "No"))


class Choice(msgspec.Struct, frozen=True):
    """One of several values."""

    value: Any
    title: str

    @property
    def token(self) -> str:
        """What the browser sends if it is chosen."""
        return token_of(self.value)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form, as data for a template and for reading what was posted."""

    path: tuple[str, ...]
    """Where its value belongs in the whole."""
    kind: Kind
    id: str
    """For the `id` of its control: safe letters only, and different for every field of a page."""
    label: str
    description: str = ""
    required: bool = False
    """Whether it must be filled in. Of an optional group it says what holds once the group is begun."""
    forced: bool = False
    """Whether the browser may insist on it: it is required, and so is every group around it."""
    nullable: bool = False
    """Whether null is a value: it is sent if a required field is left empty."""
    input: str = "text"
    """The type of the control, for those that are typed in one line."""
    choices: tuple[Choice, ...] = ()
    minimum: float | int | None = None
    maximum: float | int | None = None
    max_length: int | None = None
    default: Any = None
    """The default of the schema; None if it has none."""
    fields: tuple["Field", ...] = ()
    """The fields of a group."""
    schema: JsonObject = msgspec.field(default_factory=dict[str, Any])
    """Its schema, with the references at its top followed."""

    @property
    def name(self) -> str:
        """The name of its control: a JSON pointer, so that no property can take another control's name."""
        escaped = (part.replace("~", "~0").replace("/", "~1") for part in self.path)
        return "".join(f"/{part}" for part in escaped) or "."

    @property
    def control(self) -> str:
        """The `id` of its first control."""
        has_own = self.kind not in ("choice", "choices", "boolean") or self.is_list
        return self.id if has_own else f"{self.id}-1"

    @property
    def is_list(self) -> bool:
        """Whether one of its choices is picked from a list that folds out: there are too many to show all."""
        return self.kind == "choice" and len(self.choices) > _MOST_BUTTONS

    @property
    def unit(self) -> str:
        """What whoever fills it in must know besides the description."""
        pattern = self.schema.get("pattern")
        if self.kind == "json":
            return "Written as JSON."
        if self.input == "datetime-local":
            return "The time is in UTC."
        return f"It must match {one_line(pattern)}" if self.kind in ("text", "long") and pattern else ""

    @property
    def example(self) -> str:
        """JSON that may stand in a field that is typed as JSON."""
        return {"array": "[]", "object": "{}"}.get(str(self.schema.get("type")), "")


def fields_of(schema: Any, *, prefix: str = "field") -> tuple[Field, ...]:
    """The fields of an object's schema, in its order. `prefix` begins their ids."""
    root: JsonObject = schema if is_object(schema) else {}
    maker = _Maker(root, prefix)
    top = maker.resolved(root)
    properties: Any = top.get("properties")
    if not is_object(properties) or not properties:
        is_closed = not any(word in top for word in ("anyOf", "oneOf", "allOf", "patternProperties", "$ref"))
        if is_closed and top.get("additionalProperties", False) in (False, {}, True):
            return ()
        return (maker.whole(top),)
    made = maker.of_object(top, (), forced=True)
    return made if maker.count <= _MOST_FIELDS else (maker.whole(top),)


def leaves(fields: Iterable[Field]) -> Iterator[Field]:
    """All fields that have a control of their own."""
    for field in fields:
        if field.kind == "group":
            yield from leaves(field.fields)
        else:
            yield field


def token_of(value: Any) -> str:
    """A value as the text that a control sends for it."""
    return encode(value).decode()


class _Maker:
    """Makes the fields of one schema."""

    def __init__(self, root: JsonObject, prefix: str) -> None:
        self._root = root
        self._prefix = prefix
        self.count = 0

    def whole(self, schema: JsonObject) -> Field:
        """One field for the JSON of everything."""
        return Field(
            path=(),
            kind="json",
            id=f"{self._prefix}-0",
            label=one_line(schema.get("title") or "Value"),
            description=_words(schema.get("description")),
            required=True,
            forced=True,
            default=schema.get("default"),
            schema=schema,
        )

    def of_object(self, schema: JsonObject, path: tuple[str, ...], *, forced: bool) -> tuple[Field, ...]:
        """The fields of an object's properties. It stops soon after there are too many."""
        needed = schema.get("required")
        required = {name for name in needed if isinstance(name, str)} if is_array(needed) else set[str]()
        made: list[Field] = []
        for name, inner in schema["properties"].items():
            if self.count > _MOST_FIELDS:
                break
            made.append(self._field((*path, name), inner, name in required, forced=forced))
        return tuple(made)

    def _field(self, path: tuple[str, ...], given: Any, required: bool, *, forced: bool) -> Field:
        self.count += 1
        told, nullable = self._without_null(self.resolved(given))
        # A title beside a reference speaks of this field, one behind it of the type.
        beside: JsonObject = given if is_object(given) else {}
        field = Field(
            path=path,
            kind="json",
            id=f"{self._prefix}-{self.count}",
            label=one_line(beside.get("title") or told.get("title") or path[-1] or "(no name)"),
            description=_words(beside.get("description") or told.get("description")),
            required=required,
            forced=forced and required,
            nullable=nullable,
            default=beside.get("default", told.get("default")),
            schema=told,
        )
        changes = self._control(told, path, forced=field.forced)
        return msgspec.structs.replace(field, **changes)

    def _control(self, schema: JsonObject, path: tuple[str, ...], *, forced: bool) -> JsonObject:
        """What differs from a field that is typed as JSON."""
        kind = schema.get("type")
        if choices := _choices(schema):
            return {"kind": "choice", "choices": choices}
        if kind == "array" and (choices := _choices(self.resolved(schema.get("items")))):
            return {"kind": "choices", "choices": choices}
        if kind == "boolean":
            return {"kind": "boolean", "choices": tuple(Choice(*pair) for pair in _YES_OR_NO)}
        if kind in ("integer", "number"):
            low, high = _bounds(schema, whole=kind == "integer")
            return {"kind": kind, "input": "number", "minimum": low, "maximum": high}
        if kind == "string":
            return _text(schema)
        if kind == "object" and len(path) < _DEEPEST and _is_record(schema):
            return {"kind": "group", "fields": self.of_object(schema, path, forced=forced)}
        return {}

    def resolved(self, schema: Any) -> JsonObject:
        """A schema with the references at its top followed; what leads nowhere allows anything."""
        for _ in range(_MOST_HOPS):
            if not is_object(schema):
                return {}
            reference = schema.get("$ref")
            inner: Any = schema.get("allOf")
            if isinstance(reference, str):
                schema = self._target(reference)
            elif is_array(inner) and len(inner) == 1 and "properties" not in schema:
                schema = inner[0]
            else:
                return schema
        return {}

    def _target(self, reference: str) -> Any:
        target: Any = self._root
        if reference != "#" and not reference.startswith("#/"):
            return None
        for part in reference[2:].split("/") if len(reference) > 1 else ():
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if is_object(target) else None
        return target

    def _without_null(self, schema: JsonObject) -> tuple[JsonObject, bool]:
        """A schema without the branch that allows null, and whether it had one."""
        kinds: Any = schema.get("type")
        if is_array(kinds) and "null" in kinds:
            others = [kind for kind in kinds if kind != "null"]
            enum = schema.get("enum")
            told = {**schema, "type": others[0] if len(others) == 1 else others}
            if is_array(enum):
                told["enum"] = [value for value in enum if value is not None]
            return told, True
        for word in ("anyOf", "oneOf"):
            branches: Any = schema.get(word)
            if not is_array(branches):
                continue
            others = [branch for branch in branches if not _is_null(branch)]
            if len(others) == len(branches):
                continue
            if len(others) == 1:
                around = {name: value for name, value in schema.items() if name != word}
                return {**self.resolved(others[0]), **around}, True
            return {**schema, word: others}, True
        return schema, False


def _is_record(schema: JsonObject) -> bool:
    """Whether an object is described by its properties alone."""
    properties: Any = schema.get("properties")
    is_open = schema.get("additionalProperties", False) not in (False, True)
    return is_object(properties) and bool(properties) and not is_open


def _is_null(schema: Any) -> bool:
    return is_object(schema) and (schema.get("type") == "null" or schema == {"const": None})


def _choices(schema: JsonObject) -> tuple[Choice, ...]:
    """The values of an `enum`, a `const`, or a list of titled constants; empty if it is something else."""
    titled: Any = schema.get("oneOf") or schema.get("anyOf")
    if is_array(titled):
        if len(titled) > _MOST_CHOICES or not all(
            is_object(option) and "const" in option for option in titled
        ):
            return ()
        return tuple(
            Choice(option["const"], _title(option.get("title"), option["const"])) for option in titled
        )
    if "const" in schema:
        return (Choice(schema["const"], _title(None, schema["const"])),)
    values, names = schema.get("enum"), schema.get("enumNames")
    if not is_array(values) or len(values) > _MOST_CHOICES:
        return ()
    titles: list[Any] = names if is_array(names) else []
    return tuple(
        Choice(value, _title(titles[at] if at < len(titles) else None, value))
        for at, value in enumerate(values)
    )


def _title(given: Any, value: Any) -> str:
    if isinstance(given, str) and given:
        return one_line(given)
    return one_line(value if isinstance(value, str) else token_of(value))


def _text(schema: JsonObject) -> JsonObject:
    longest = schema.get("maxLength")
    most = longest if isinstance(longest, int) and not isinstance(longest, bool) and longest > 0 else None
    default = schema.get("default")
    control = _INPUTS.get(str(schema.get("format")), "text")
    is_long = (most or 0) > _LONGEST_LINE or (isinstance(default, str) and "\n" in default)
    return {"kind": "long" if is_long and control == "text" else "text", "input": control, "max_length": most}


def _bounds(schema: Mapping[str, Any], *, whole: bool) -> tuple[float | int | None, float | int | None]:
    """The least and the greatest number, as far as a control can be told them."""
    low, high = _number(schema.get("minimum")), _number(schema.get("maximum"))
    above, below = _number(schema.get("exclusiveMinimum")), _number(schema.get("exclusiveMaximum"))
    if whole and isinstance(above, int):
        low = above + 1 if low is None else max(low, above + 1)
    if whole and isinstance(below, int):
        high = below - 1 if high is None else min(high, below - 1)
    return low, high


def _number(value: Any) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _words(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    shown = harmless(text[: 2 * _MOST_WORDS])
    return shown if len(shown) <= _MOST_WORDS else f"{shown[:_MOST_WORDS]}..."
