"""What a handler's signature becomes on the wire, and how it binds what callers send."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ekiden import Context, RegistrationError, Server
from tests.serving import call_tool, listed_tool


async def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    server = Server("s")
    server.add_tool(function, name="tool")
    schema: dict[str, Any] = (await listed_tool(server, "tool"))["inputSchema"]
    return schema


async def outcome_of(function: Callable[..., Any], /, **arguments: Any) -> str:
    """The text that a call gives: the value, or what was wrong with the arguments."""
    server = Server("s")
    server.add_tool(function, name="tool")
    result = await call_tool(server, "tool", **arguments)
    text: str = result["content"][0]["text"]
    return ("error: " if result.get("isError") else "") + text


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    width: int = Field(description="In metres.")
    height: float = 1.5


class Box(BaseModel):
    """A box."""

    size: Size
    colour: Colour = Colour.RED
    inner: "Box | None" = None


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass
class Point:
    x: int
    y: int = 0


# The shape


async def test_parameters_become_a_closed_object() -> None:
    async def tool(a: int, b: str) -> str:
        return ""

    assert await schema_of(tool) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


async def test_no_parameters_become_an_empty_closed_object() -> None:
    async def tool() -> str:
        return ""

    assert await schema_of(tool) == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_a_parameter_without_a_hint_takes_anything() -> None:
    async def tool(a) -> str:  # type: ignore[no-untyped-def]
        return repr(a)

    assert (await schema_of(tool))["properties"] == {"a": {}}
    assert await outcome_of(tool, a=[1, {"b": None}]) == "[1, {'b': None}]"


async def test_no_title_is_derived_from_a_name() -> None:
    async def tool(box: Box, movie: Movie, point: Point, colour: Colour) -> str:
        return ""

    assert "title" not in str(await schema_of(tool)).replace("'title': {'type'", "").replace("['title']", "")


async def test_titles_that_the_author_gave_are_kept() -> None:
    class Named(BaseModel):
        model_config = ConfigDict(title="Address")
        street: str = Field(title="Street")

    async def tool(
        a: Annotated[str, Field(title="City")], b: Annotated[Named, Field(title="Home address")]
    ) -> str:
        return ""

    schema = await schema_of(tool)
    assert schema["properties"]["a"]["title"] == "City"
    assert schema["properties"]["b"]["title"] == "Home address"
    assert schema["$defs"]["Named"]["properties"]["street"]["title"] == "Street"
    assert schema["$defs"]["Named"]["title"] == "Address"


async def test_the_context_is_no_parameter() -> None:
    async def plain(a: int, ctx: Context) -> str:
        return ""

    async def with_state(context: Context[dict[str, int]], a: int) -> str:
        return ""

    for tool in (plain, with_state):
        assert list((await schema_of(tool))["properties"]) == ["a"]


# Hints


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (str, {"type": "string"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Annotated[int, Field(ge=1, le=7)], {"type": "integer", "minimum": 1, "maximum": 7}),
        (Annotated[str, Field(pattern="^a+$")], {"type": "string", "pattern": "^a+$"}),
        (Annotated[str, Field(json_schema_extra={"x-a": 1})], {"type": "string", "x-a": 1}),
        (Any, {}),
    ],
)
async def test_a_hint_becomes_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    async def tool(a: hint) -> str:  # type: ignore[valid-type]
        return ""

    assert (await schema_of(tool))["properties"]["a"] == schema


async def test_models_enums_typed_dicts_and_dataclasses_stand_under_defs() -> None:
    async def tool(box: Box, movie: Movie, point: Point) -> str:
        return ""

    schema = await schema_of(tool)
    assert schema["properties"]["box"] == {"$ref": "#/$defs/Box"}
    definitions = schema["$defs"]
    assert definitions["Colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert definitions["Size"]["properties"]["width"] == {"type": "integer", "description": "In metres."}
    assert definitions["Box"]["description"] == "A box."
    assert definitions["Box"]["properties"]["inner"]["anyOf"] == [{"$ref": "#/$defs/Box"}, {"type": "null"}]
    assert definitions["Movie"]["required"] == ["title"]
    assert definitions["Point"]["required"] == ["x"]


async def test_values_arrive_as_what_the_hints_say() -> None:
    async def tool(box: Box, movie: Movie, point: Point, day: date, colour: Colour, price: Decimal) -> str:
        return " ".join(type(value).__name__ for value in (box, movie, point, day, colour, price, box.inner))

    arguments = {
        "box": {"size": {"width": 1}, "inner": {"size": {"width": 2}}},
        "movie": {"title": "Ran"},
        "point": {"x": 1},
        "day": "2026-07-28",
        "colour": "blue",
        "price": "1.50",
    }
    assert await outcome_of(tool, **arguments) == "Box dict Point date Colour Decimal Box"


async def test_hints_may_be_written_as_strings() -> None:
    async def tool(box: "Box", ctx: "Context") -> "str":
        return str(box.size.width)

    assert await outcome_of(tool, box={"size": {"width": 3}}) == "3"


async def test_a_validator_of_the_author_is_applied_and_its_words_reach_the_caller() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    async def tool(a: Annotated[int, AfterValidator(even)]) -> str:
        return str(a)

    assert await outcome_of(tool, a=2) == "2"
    assert "a: Value error, must be even" in await outcome_of(tool, a=3)


# Descriptions


async def google(a: int, b: str = "x") -> str:
    """Do it.

    In more words.

    Args:
        a: The first.
        b: The second,
            on two lines.

    Returns:
        Something.
    """
    return ""


async def numpy(a: int, b: str = "x") -> str:
    """Do it.

    In more words.

    Parameters
    ----------
    a : int
        The first.
    b : str
        The second,
        on two lines.

    Returns
    -------
    str
        Something.
    """
    return ""


async def sphinx(a: int, b: str = "x") -> str:
    """Do it.

    In more words.

    :param a: The first.
    :param b: The second,
        on two lines.
    :returns: Something.
    """
    return ""


@pytest.mark.parametrize("tool", [google, numpy, sphinx])
async def test_descriptions_come_from_the_docstring(tool: Callable[..., Any]) -> None:
    server = Server("s")
    server.add_tool(tool)
    definition = await listed_tool(server, tool.__name__)
    assert definition["description"] == "Do it.\n\nIn more words."
    properties = definition["inputSchema"]["properties"]
    assert properties["a"] == {"type": "integer", "description": "The first."}
    assert properties["b"]["description"].split() == ["The", "second,", "on", "two", "lines."]
    assert properties["b"]["default"] == "x"


async def test_a_field_description_wins_over_the_docstring() -> None:
    async def tool(
        a: Annotated[int, Field(description="From the field.")], b: int = Field(1, description="Too.")
    ) -> str:
        """Do it.

        Args:
            a: From the docstring.
            b: From the docstring.
        """
        return ""

    properties = (await schema_of(tool))["properties"]
    assert properties["a"]["description"] == "From the field."
    assert properties["b"]["description"] == "Too."


async def test_a_docstring_without_a_parameter_section_is_the_description() -> None:
    async def tool() -> str:
        """One line: with a colon.

        - a list
        - of things
        """
        return ""

    server = Server("s")
    server.add_tool(tool)
    assert (await listed_tool(server, "tool"))[
        "description"
    ] == "One line: with a colon.\n\n- a list\n- of things"


async def test_a_tool_without_a_docstring_is_described_by_its_name() -> None:
    async def tool() -> str:
        return ""

    server = Server("s")
    server.add_tool(tool)
    assert (await listed_tool(server, "tool"))["description"] == "tool"


async def test_a_docstring_that_documents_no_such_parameter_does_no_harm() -> None:
    async def tool(a: int) -> str:
        """Do it.

        Args:
            b: Nobody.
        """
        return ""

    assert (await schema_of(tool))["properties"] == {"a": {"type": "integer"}}


# Defaults


async def test_a_default_makes_a_parameter_optional_and_is_shown() -> None:
    async def tool(
        a: int = 3,
        b: str | None = None,
        c: Colour = Colour.BLUE,
        d: date = date(2026, 7, 28),
        e: Size = Size(width=1),  # noqa: B008
    ) -> str:
        return f"{a} {b} {c} {d} {e.width}"

    schema = await schema_of(tool)
    assert "required" not in schema
    properties = schema["properties"]
    assert properties["a"] == {"type": "integer", "default": 3}
    assert properties["b"]["default"] is None
    assert properties["c"]["default"] == "blue"
    assert properties["d"]["default"] == "2026-07-28"
    assert properties["e"]["default"] == {"width": 1, "height": 1.5}
    assert await outcome_of(tool) == "3 None Colour.BLUE 2026-07-28 1"


async def test_a_default_that_json_cannot_show_is_not_shown() -> None:
    marker = object()

    async def tool(a: Any = marker) -> str:
        return str(a is marker)

    assert (await schema_of(tool))["properties"]["a"] == {}
    assert await outcome_of(tool) == "True"


async def test_a_default_in_a_field_is_a_default() -> None:
    async def tool(a: int = Field(3, ge=1), b: Annotated[str, Field(max_length=2)] = "x") -> str:
        return f"{a} {b}"

    schema = await schema_of(tool)
    assert "required" not in schema
    assert schema["properties"]["a"] == {"type": "integer", "minimum": 1, "default": 3}
    assert schema["properties"]["b"] == {"type": "string", "maxLength": 2, "default": "x"}
    assert await outcome_of(tool) == "3 x"
    assert await outcome_of(tool, a=5) == "5 x"


async def test_a_field_without_a_default_is_required() -> None:
    async def tool(a: int = Field(description="The first.")) -> str:
        return str(a)

    assert (await schema_of(tool))["required"] == ["a"]
    assert (await outcome_of(tool)).startswith("error: ")
    assert await outcome_of(tool, a=1) == "1"


async def test_a_default_factory_in_a_field_makes_a_new_default_for_every_call() -> None:
    async def tool(a: list[int] = Field(default_factory=list)) -> str:  # noqa: B008
        a.append(1)
        return str(a)

    server = Server("s")
    server.add_tool(tool)
    assert "required" not in (await listed_tool(server, "tool"))["inputSchema"]
    for _ in range(2):
        assert (await call_tool(server, "tool"))["content"][0]["text"] == "[1]"


async def test_a_keyword_only_parameter_is_a_parameter() -> None:
    async def tool(a: int, *, b: int = 2) -> str:
        return f"{a} {b}"

    assert await outcome_of(tool, a=1) == "1 2"


# Names


NAMES = [
    "schema",
    "json",
    "self_",
    "model_config",
    "copy",
    "validate",
    "fields",
    "items",
    "keys",
    "type",
    "id",
    "_private",
    "arguments",
    "request",
    "stream",
    "handler",
    "call",
    "function",
    "context",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_parameter_may_have_any_name(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"async def tool({name}: int, other: int = 0) -> str:\n    return str({name})", namespace)
    exec(f"def plain({name}: int, other: int = 0) -> str:\n    return str({name})", namespace)
    assert list((await schema_of(namespace["tool"]))["properties"]) == [name, "other"]
    assert await outcome_of(namespace["tool"], **{name: 7}) == "7"
    assert await outcome_of(namespace["plain"], **{name: 7}) == "7"


async def test_an_alias_is_the_name_on_the_wire() -> None:
    async def tool(
        from_: Annotated[str, Field(alias="from")], to: Annotated[int, Field(alias="TO")] = 2
    ) -> str:
        return f"{from_} {to}"

    assert list((await schema_of(tool))["properties"]) == ["from", "TO"]
    assert await outcome_of(tool, **{"from": "a"}) == "a 2"


# Refusals at registration


async def test_star_arguments_are_refused() -> None:
    async def positional(*args: int) -> str:
        return ""

    async def keywords(**kwargs: int) -> str:
        return ""

    async def unnamed(a: int, /) -> str:
        return ""

    for tool, name in ((positional, "args"), (keywords, "kwargs"), (unnamed, "a")):
        with pytest.raises(RegistrationError, match=f"'{name}' must be callable by keyword"):
            Server("s").add_tool(tool)


async def test_a_hint_that_cannot_be_resolved_is_refused_by_name() -> None:
    async def tool(a: "NoSuchThing") -> str:  # type: ignore[name-defined]  # noqa: F821
        return ""

    with pytest.raises(RegistrationError, match=r"tool 'tool': a type hint cannot be resolved.*NoSuchThing"):
        Server("s").add_tool(tool)


async def test_a_hint_that_has_no_schema_is_refused() -> None:
    class Opaque:
        pass

    async def opaque(a: Opaque) -> str:
        return ""

    async def function(a: Callable[[], int]) -> str:
        return ""

    for tool in (opaque, function):
        with pytest.raises(RegistrationError, match="tool '"):
            Server("s").add_tool(tool)


async def test_a_return_hint_that_has_no_schema_is_refused() -> None:
    class Opaque:
        pass

    class Holder(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        value: Opaque

    async def opaque() -> Opaque:
        return Opaque()

    async def holder() -> Holder:
        return Holder(value=Opaque())

    async def function() -> Callable[[], int]:
        return int

    for tool in (opaque, holder, function):
        with pytest.raises(RegistrationError, match="tool '"):
            Server("s").add_tool(tool)


async def test_a_partial_and_an_object_with_call_can_be_tools() -> None:
    async def multiply(a: int, b: int) -> str:
        return str(a * b)

    class Adder:
        async def __call__(self, a: int) -> str:
            return str(a + 1)

    server = Server("s")
    server.add_tool(functools.partial(multiply, b=3), name="triple")
    server.add_tool(Adder(), name="add")
    assert (await call_tool(server, "triple", a=2))["content"][0]["text"] == "6"
    assert (await call_tool(server, "add", a=2))["content"][0]["text"] == "3"


async def test_a_method_of_an_object_can_be_a_tool() -> None:
    class Shop:
        def __init__(self) -> None:
            self.price = 5

        async def total(self, count: int) -> str:
            return str(self.price * count)

    server = Server("s")
    server.tool(Shop().total)
    assert list((await listed_tool(server, "total"))["inputSchema"]["properties"]) == ["count"]
    assert (await call_tool(server, "total", count=2))["content"][0]["text"] == "10"


# Callers' mistakes


async def test_every_wrong_argument_is_named_with_the_reason() -> None:
    async def tool(a: int, box: Box, c: str) -> str:
        return ""

    text = await outcome_of(tool, a="x", box={"size": {"width": "y"}}, d=1)
    assert text.startswith("error: Invalid arguments for tool 'tool': ")
    for problem in ("a: ", "box.size.width: ", "c: Field required", "d: Extra inputs are not permitted"):
        assert problem in text


async def test_the_value_of_a_wrong_argument_is_not_repeated() -> None:
    async def tool(password: int) -> str:
        return ""

    assert "hunter2" not in await outcome_of(tool, password="hunter2")


async def test_a_long_list_of_mistakes_is_cut() -> None:
    async def tool(numbers: list[int]) -> str:
        return ""

    text = await outcome_of(tool, numbers=["x"] * 1000)
    assert "and 990 more" in text
    assert len(text) < 2000


async def test_a_null_for_an_optional_parameter_is_none_and_not_the_default() -> None:
    async def tool(a: int | None = 3) -> str:
        return str(a)

    assert await outcome_of(tool, a=None) == "None"
    assert await outcome_of(tool) == "3"


# What authors write by mistake


def mistake_in(function: Callable[..., Any]) -> str:
    with pytest.raises(RegistrationError) as refused:
        Server("s").add_tool(function, name="tool")
    return str(refused.value)


def test_a_context_without_its_annotation_says_what_to_write() -> None:
    async def tool(query: str, ctx) -> str:  # type: ignore[no-untyped-def]
        return query

    assert mistake_in(tool) == (
        "tool 'tool': parameter 'ctx' has no type: write `ctx: Context` (`from ekiden import Context`), "
        "or give it another name if it is an argument"
    )


def test_a_method_without_its_object_says_what_to_write() -> None:
    class Shop:
        async def search(self, query: str) -> str:
            return query

        @classmethod
        async def sell(cls) -> str:
            return "sold"

    assert mistake_in(Shop.search) == (
        "tool 'tool' is a method, and nothing fills in its 'self': make the object first, and register its "
        "method with `server.add_...(thing.method)`, or write a function"
    )
    Server("s").add_tool(Shop().search)
    Server("s").add_tool(Shop.sell)


def test_the_context_of_another_library_says_what_to_import() -> None:
    other = type("Context", (), {"__module__": "othermcp"})

    async def tool(ctx) -> str:  # type: ignore[no-untyped-def]
        return ""

    tool.__annotations__["ctx"] = other
    assert mistake_in(tool) == (
        "tool 'tool': parameter 'ctx' wants the Context of othermcp: write `from ekiden import Context`"
    )


async def test_a_context_that_may_be_none_is_a_context() -> None:
    async def tool(query: str, ctx: Context | None = None) -> str:
        return f"{query} {ctx is not None}"

    assert list((await schema_of(tool))["properties"]) == ["query"]
    assert await outcome_of(tool, query="q") == "q True"
