"""What `ctx.elicit` can ask for: the schema on the wire, and the value in the handler."""

import logging
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    SecretBytes,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import core_schema

from ekiden import Context, RegistrationError, Server
from ekiden.testing import CANCEL, DECLINE
from tests.acceptance.driving import Client, accept, error_text, messages, new_server, only, text


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Size(Enum):
    """Shown with the names."""

    SMALL = "s"
    LARGE = "l"


def _asking(schema: Any) -> tuple[Server, list[Any]]:
    """A server that asks for `schema` twice over, and what its handler saw."""
    server = new_server()
    seen: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("Please", schema)
        seen.append(answer.data)
        await ctx.elicit("Once more", bool)
        return answer.action

    return server, seen


async def _asked(schema: Any) -> dict[str, Any]:
    server, _ = _asking(schema)
    asked = await Client(server).ask("tool")
    request = asked.requests[only(asked)]
    assert request["method"] == "elicitation/create"
    assert request["params"].keys() == {"mode", "message", "requestedSchema"}
    assert request["params"]["mode"] == "form"
    wire: dict[str, Any] = request["params"]["requestedSchema"]
    assert wire["type"] == "object"
    return wire


async def _answered(schema: Any, content: dict[str, Any]) -> Any:
    """What the handler gets for `content`: the same in the round it came, and in the next."""
    server, seen = _asking(schema)
    client = Client(server)
    first = await client.ask("tool")
    second = await client.retry(first, {only(first): {"action": "accept", "content": content}})
    assert messages(second) == ["Once more"], second.requests
    assert text(await client.retry(second, {only(second): accept(True)})) == "accept"
    assert seen[0] == seen[1]
    assert type(seen[0]) is type(seen[1])
    return seen[0]


async def _asked_again(schema: Any, content: Any) -> bool:
    server, seen = _asking(schema)
    client = Client(server)
    first = await client.ask("tool")
    second = await client.retry(first, {only(first): {"action": "accept", "content": content}})
    return messages(second) == ["Please"] and not seen


# Single values


@pytest.mark.parametrize(
    ("schema", "wire", "content", "value"),
    [
        (bool, {"type": "boolean"}, True, True),
        (str, {"type": "string"}, "words", "words"),
        (int, {"type": "integer"}, 7, 7),
        (float, {"type": "number"}, 7.5, 7.5),
        (float, {"type": "number"}, 7, 7.0),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 3, 3),
        (
            Annotated[str, Field(min_length=1, max_length=3)],
            {"type": "string", "minLength": 1, "maxLength": 3},
            "abc",
            "abc",
        ),
        (
            list[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["b"],
            ["b"],
        ),
    ],
)
async def test_a_single_value_is_a_form_of_one_field(
    schema: Any, wire: dict[str, Any], content: Any, value: Any
) -> None:
    asked = await _asked(schema)
    (name,) = asked["properties"]
    assert asked["required"] == [name]
    shown = {k: v for k, v in asked["properties"][name].items() if k != "title"}
    assert shown == wire
    answered = await _answered(schema, {name: content})
    assert answered == value
    assert type(answered) is type(value)


@pytest.mark.parametrize("schema", [Colour, list[Colour]])
async def test_an_enum_comes_back_as_its_members(schema: Any) -> None:
    asked = await _asked(schema)
    (name,) = asked["properties"]
    field = asked["properties"][name]
    choices = field if schema is Colour else field["items"]
    values = choices.get("enum") or [choice["const"] for choice in choices.get("oneOf") or choices["anyOf"]]
    assert values == ["red", "green"]
    if schema is Colour:
        assert await _answered(schema, {name: "green"}) is Colour.GREEN
    else:
        assert await _answered(schema, {name: ["green", "red"]}) == [Colour.GREEN, Colour.RED]


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        (bool, "yes"),
        (bool, 1),
        (bool, None),
        (str, 7),
        (int, "7"),
        (int, 7.5),
        (int, True),
        (float, "7.5"),
        (float, True),
        (Literal["a", "b"], "c"),
        (Colour, "blue"),
        (Colour, "RED"),
        (list[Literal["a", "b"]], "a"),
        (list[Literal["a", "b"]], ["c"]),
        (Annotated[int, Field(ge=1, le=9)], 10),
        (Annotated[str, Field(max_length=3)], "abcd"),
    ],
)
async def test_a_value_that_does_not_fit_is_asked_for_again(schema: Any, wrong: Any) -> None:
    name = next(iter((await _asked(schema))["properties"]))
    assert await _asked_again(schema, {name: wrong})
    assert await _asked_again(schema, {})
    assert await _asked_again(schema, {"other": wrong})


# Models


class Person(BaseModel):
    """A person."""

    name: str = Field(title="Full name", description="As in the passport", min_length=2, max_length=50)
    age: int = Field(ge=18, le=120)
    height: float | None = Field(default=None, ge=0)
    member: bool = False
    nick: str = "none"
    colour: Literal["red", "green"] = "red"
    sizes: list[Literal["s", "m", "l"]] = Field(default=["m"], min_length=1, max_length=2)


async def test_a_model_is_a_flat_form_with_constraints_and_defaults() -> None:
    asked = await _asked(Person)
    assert asked["required"] == ["name", "age"]
    fields = asked["properties"]
    assert fields["name"] == {
        "type": "string",
        "title": "Full name",
        "description": "As in the passport",
        "minLength": 2,
        "maxLength": 50,
    }
    strip = {k: {f: v for f, v in field.items() if f != "title"} for k, field in fields.items()}
    assert strip["age"] == {"type": "integer", "minimum": 18, "maximum": 120}
    assert strip["height"].items() >= {"type": "number", "minimum": 0}.items()
    assert strip["height"].get("default", 0) is not None, "a default of null is not in the restricted schema"
    assert strip["member"] == {"type": "boolean", "default": False}
    assert strip["nick"] == {"type": "string", "default": "none"}
    assert strip["colour"] == {"type": "string", "enum": ["red", "green"], "default": "red"}
    assert strip["sizes"] == {
        "type": "array",
        "items": {"type": "string", "enum": ["s", "m", "l"]},
        "minItems": 1,
        "maxItems": 2,
        "default": ["m"],
    }


async def test_a_model_comes_back_as_that_model_with_its_defaults() -> None:
    person = await _answered(Person, {"name": "Ada", "age": 36, "colour": "green"})
    assert person == Person(name="Ada", age=36, colour="green")


@pytest.mark.parametrize(
    "content",
    [
        {"name": "Ada"},
        {"name": "A", "age": 36},
        {"name": "Ada", "age": 17},
        {"name": "Ada", "age": "36"},
        {"name": "Ada", "age": 36, "sizes": []},
        {"name": "Ada", "age": 36, "sizes": ["s", "m", "l"]},
        {"name": "Ada", "age": 36, "colour": "blue"},
        {"name": "Ada", "age": 36, "member": "yes"},
        {"name": ["Ada"], "age": 36},
        {"name": {"first": "Ada"}, "age": 36},
    ],
)
async def test_a_form_that_was_filled_in_wrongly_is_asked_again(content: dict[str, Any]) -> None:
    assert await _asked_again(Person, content)


async def test_a_form_may_be_filled_in_with_more_than_was_asked() -> None:
    person = await _answered(Person, {"name": "Ada", "age": 36, "unasked": "x"})
    assert person == Person(name="Ada", age=36)


class Dated(BaseModel):
    day: date
    moment: datetime
    page: AnyUrl
    mail: Annotated[str, Field(json_schema_extra={"format": "email"})]


async def test_formats_of_the_restricted_schema_are_told_and_parsed() -> None:
    asked = await _asked(Dated)
    formats = {name: field["format"] for name, field in asked["properties"].items()}
    assert formats == {"day": "date", "moment": "date-time", "page": "uri", "mail": "email"}
    assert {field["type"] for field in asked["properties"].values()} == {"string"}
    content = {
        "day": "2026-07-28",
        "moment": "2026-07-28T01:02:03Z",
        "page": "https://example.com/",
        "mail": "ada@example.com",
    }
    answered = await _answered(Dated, content)
    assert answered.day == date(2026, 7, 28)
    assert answered.moment.hour == 1
    assert await _asked_again(Dated, {**content, "day": "tomorrow"})
    assert await _asked_again(Dated, {**content, "page": "no page"})


class Titled(BaseModel):
    one: Annotated[
        str,
        Field(
            json_schema_extra={
                "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
            }
        ),
    ] = "#f00"
    many: Annotated[
        list[str],
        Field(
            json_schema_extra={
                "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]}
            }
        ),
    ]


async def test_titled_choices_go_out_as_the_spec_spells_them() -> None:
    asked = await _asked(Titled)
    one, many = asked["properties"]["one"], asked["properties"]["many"]
    choices = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
    assert one["type"] == "string"
    assert one["oneOf"] == choices
    assert one["default"] == "#f00"
    assert many["type"] == "array"
    assert many["items"] == {"anyOf": choices}
    answered = await _answered(Titled, {"one": "#0f0", "many": ["#f00"]})
    assert (answered.one, answered.many) == ("#0f0", ["#f00"])
    assert await _asked_again(Titled, {"one": "#00f", "many": []})
    assert await _asked_again(Titled, {"one": "#f00", "many": ["#00f"]})


async def test_a_json_schema_of_the_restricted_kind_is_sent_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "colour": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}]},
        },
        "required": ["name"],
    }
    assert await _asked(schema) == schema
    assert await _answered(schema, {"name": "Ada"}) == {"name": "Ada"}
    assert await _asked_again(schema, {"name": ""})
    assert await _asked_again(schema, {"name": "Ada", "colour": "red"})


class Checked(BaseModel):
    even: int

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


async def test_a_validator_of_the_author_counts_too() -> None:
    assert (await _answered(Checked, {"even": 2})).even == 2
    assert await _asked_again(Checked, {"even": 3})


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    full_name: str = Field(alias="fullName")


async def test_aliases_are_the_names_on_the_wire() -> None:
    asked = await _asked(Aliased)
    assert asked["required"] == ["fullName"]
    assert (await _answered(Aliased, {"fullName": "Ada"})).full_name == "Ada"


async def test_a_form_without_fields_asks_for_consent() -> None:
    class Nothing(BaseModel):
        pass

    asked = await _asked(Nothing)
    assert asked == {"type": "object", "properties": {}}
    assert await _answered(Nothing, {}) == Nothing()


@pytest.mark.parametrize(("reply", "action"), [(DECLINE, "decline"), (CANCEL, "cancel")])
@pytest.mark.parametrize("schema", [bool, Person, Colour])
async def test_saying_no_reaches_the_handler_as_such(reply: Any, action: str, schema: Any) -> None:
    server, seen = _asking(schema)
    assert text(await Client(server, {"Please": reply, "Once more": True}).call_tool("tool")) == action
    assert seen == [None, None]


# Refusals


class Inner(BaseModel):
    x: int


class NestedForm(BaseModel):
    fine: int
    troublesome: Inner


class MapForm(BaseModel):
    troublesome: dict[str, int]


class WordsForm(BaseModel):
    troublesome: list[str]


class NumbersForm(BaseModel):
    troublesome: list[int]


class UnionForm(BaseModel):
    troublesome: int | str


class AnyForm(BaseModel):
    troublesome: Any


class SecretForm(BaseModel):
    fine: int
    troublesome: SecretStr


class OptionalSecretForm(BaseModel):
    troublesome: SecretStr | None = None


class SecretBytesForm(BaseModel):
    troublesome: SecretBytes


class ManySecretsForm(BaseModel):
    troublesome: list[SecretStr]


class BytesForm(BaseModel):
    troublesome: bytes


class TupleForm(BaseModel):
    troublesome: tuple[int, str]


class Level(IntEnum):
    LOW = 1


class NumericChoiceForm(BaseModel):
    troublesome: Literal[1, 2]


class PatternForm(BaseModel):
    troublesome: Annotated[str, Field(json_schema_extra={"format": "password"})]


_REFUSED = [
    NestedForm,
    MapForm,
    WordsForm,
    NumbersForm,
    UnionForm,
    AnyForm,
    SecretForm,
    OptionalSecretForm,
    SecretBytesForm,
    ManySecretsForm,
    BytesForm,
    TupleForm,
    NumericChoiceForm,
    PatternForm,
]


@pytest.mark.parametrize("form", _REFUSED)
def test_a_form_that_clients_cannot_show_is_refused_at_registration_with_the_field_named(form: Any) -> None:
    server = new_server()

    async def tool(ctx: Context) -> str:
        return "never"

    with pytest.raises(RegistrationError, match="troublesome"):
        server.add_tool(tool, asks=[form])


@pytest.mark.parametrize("form", _REFUSED)
async def test_a_form_that_clients_cannot_show_is_refused_at_the_call_with_the_field_named(
    form: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = _asking(form)
    with caplog.at_level(logging.WARNING):
        result = await Client(server).call_tool("tool")
    assert "troublesome" in error_text(result) + caplog.text


@pytest.mark.parametrize(
    "schema", [SecretStr, dict, list[str], list[int], bytes, object, Any, None, Inner | None, set[int], Level]
)
async def test_a_type_that_clients_cannot_show_is_refused_at_the_call(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, seen = _asking(schema)
    with caplog.at_level(logging.WARNING):
        result = await Client(server).call_tool("tool")
    assert error_text(result)
    assert seen == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"troublesome": {"type": "object"}}},
        {"type": "object", "properties": {"troublesome": {"$ref": "#/$defs/x"}}},
        {"type": "object", "properties": {"troublesome": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"troublesome": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"troublesome": {"type": "string", "format": "password"}}},
    ],
)
async def test_a_json_schema_beyond_the_restricted_kind_is_refused(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = _asking(schema)
    with caplog.at_level(logging.WARNING):
        result = await Client(server).call_tool("tool")
    assert error_text(result)


# What pydantic makes of JSON may differ from what it makes of the same in Python: an answer came as JSON


class Moded(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def tell(cls, value: str, info: ValidationInfo) -> str:
        return f"{value} by {info.mode}"


_number = core_schema.chain_schema(
    [core_schema.str_schema(), core_schema.no_info_plain_validator_function(int)]
)
Identity = Annotated[
    Any,
    GetPydanticSchema(
        lambda source, handler: core_schema.json_or_python_schema(core_schema.str_schema(), _number)
    ),
    WithJsonSchema({"type": "string"}),
]


class Either(BaseModel):
    when: Annotated[
        date | str, Field(union_mode="left_to_right"), WithJsonSchema({"type": "string", "title": "When"})
    ]


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


@pytest.mark.parametrize(
    ("schema", "content", "expected"),
    [
        (Moded, {"name": "x"}, Moded.model_construct(name="x by json")),
        (Identity, {"value": "5"}, "5"),
        (Annotated[Decimal, WithJsonSchema({"type": "number"})], {"value": "5"}, Decimal(5)),
        (Either, {"when": "2026-01-02"}, Either(when=date(2026, 1, 2))),
        (Loose, {"name": "x", "age": 3}, Loose(name="x", age=3)),  # type: ignore[call-arg]
    ],
)
async def test_an_answer_is_read_as_json(schema: Any, content: dict[str, Any], expected: Any) -> None:
    assert await _answered(schema, content) == expected
