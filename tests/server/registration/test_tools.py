import base64
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ekiden import RegistrationError, Server, UsageError
from tests.serving import ask, call_tool, error_of, listed_tool, result_of


class Day(BaseModel):
    celsius: int = Field(serialization_alias="degreesCelsius")
    note: str | None = None


class Place(TypedDict):
    name: str


@dataclass
class Pair:
    left: int
    right: date


class Grade(Enum):
    GOOD = "good"


async def outcome(
    value: Any, hint: Any = None, **options: Any
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a tool that returns `value` gives, and its output schema."""

    async def tool():  # type: ignore[no-untyped-def]
        return value

    if hint is not None:
        tool.__annotations__["return"] = hint
    server = Server("s")
    server.add_tool(tool, **options)
    return await call_tool(server, "tool"), (await listed_tool(server, "tool")).get("outputSchema")


def text(content: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}]}


# Returned values


@pytest.mark.parametrize("hint", [None, str, str | None, Any])
async def test_text_is_one_block_and_has_no_schema(hint: Any) -> None:
    assert await outcome("hello", hint) == (text("hello"), None)


@pytest.mark.parametrize("hint", [None, type(None), str | None])
async def test_nothing_is_no_content(hint: Any) -> None:
    assert await outcome(None, hint) == ({"content": []}, None)


@pytest.mark.parametrize(
    ("value", "block"),
    [
        (TextContent(text="t"), {"type": "text", "text": "t"}),
        (
            ImageContent(data="aQ==", mime_type="image/png"),
            {"type": "image", "data": "aQ==", "mimeType": "image/png"},
        ),
        (
            AudioContent(data="aQ==", mime_type="audio/wav"),
            {"type": "audio", "data": "aQ==", "mimeType": "audio/wav"},
        ),
        (ResourceLink(name="n", uri="a:b"), {"type": "resource_link", "name": "n", "uri": "a:b"}),
        (
            EmbeddedResource(resource=TextResourceContents(uri="a:b", text="x")),
            {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
        ),
    ],
)
@pytest.mark.parametrize("hinted", [True, False])
async def test_a_content_block_is_content_and_has_no_schema(
    value: Any, block: dict[str, Any], hinted: bool
) -> None:
    assert await outcome(value, type(value) if hinted else None) == ({"content": [block]}, None)


@pytest.mark.parametrize(
    "hint",
    [
        None,
        list[TextContent | ImageContent],
        list[TextContent | str],
        tuple[TextContent, ...],
        list,
    ],
)
async def test_a_list_with_blocks_is_content_and_other_items_become_text(hint: Any) -> None:
    value: Any = [TextContent(text="a"), "b"]
    result, schema = await outcome(value, hint if hint is not list else None)
    assert result["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "structuredContent" not in result
    assert schema is None


async def test_data_beside_blocks_becomes_text() -> None:
    result, _ = await outcome([TextContent(text="a"), {"b": 1}, None, [TextContent(text="c")]])
    assert [block["text"] for block in result["content"]] == ["a", '{"b":1}', "c"]


@pytest.mark.parametrize(
    ("value", "hint", "data"),
    [
        ({"a": 1}, dict[str, int], {"a": 1}),
        ([1, 2], list[int], [1, 2]),
        (3, int, 3),
        (2.5, float, 2.5),
        (True, bool, True),
        ({"name": "Hakone"}, Place, {"name": "Hakone"}),
        (Pair(1, date(2026, 7, 28)), Pair, {"left": 1, "right": "2026-07-28"}),
        (Grade.GOOD, Grade, "good"),
        (date(2026, 7, 28), date, "2026-07-28"),
        (Day(celsius=9), Day, {"degreesCelsius": 9, "note": None}),
        ([Day(celsius=9, note="cold")], list[Day], [{"degreesCelsius": 9, "note": "cold"}]),
        (None, int | None, None),
        ("x", int | str, "x"),
    ],
)
async def test_data_is_structured_and_repeated_as_text_and_described_by_the_hint(
    value: Any, hint: Any, data: Any
) -> None:
    result, schema = await outcome(value, hint)
    assert result["structuredContent"] == data
    assert len(result["content"]) == 1
    assert schema is not None
    without_hint, no_schema = await outcome(value)
    if not isinstance(value, str | None):
        assert without_hint["structuredContent"] == data
        assert without_hint["content"] == result["content"]
    assert no_schema is None


async def test_the_text_of_data_is_its_json() -> None:
    result, _ = await outcome({"name": "Ōdawara", "n": [1, None]}, dict[str, Any])
    assert result["content"] == [{"type": "text", "text": '{"name":"Ōdawara","n":[1,null]}'}]


async def test_the_output_schema_has_the_names_that_are_sent() -> None:
    _, schema = await outcome(Day(celsius=1), Day)
    assert schema is not None
    assert set(schema["properties"]) == {"degreesCelsius", "note"}


async def test_an_object_whose_attributes_fit_the_hint_is_taken_for_it() -> None:
    class Row:
        celsius = 4
        note = "from a database"
        secret = "not in the schema"

    result, _ = await outcome(Row(), Day)
    assert result["structuredContent"] == {"degreesCelsius": 4, "note": "from a database"}


async def test_a_whole_result_is_sent_as_it_is() -> None:
    value = CallToolResult(
        content=[TextContent(text="t")], structured_content={"a": None}, meta={"k": 1}, is_error=True
    )
    server = Server("s")

    @server.tool
    async def tool() -> CallToolResult:
        return value

    result = await call_tool(server, "tool")
    assert result["content"] == [{"type": "text", "text": "t"}]
    assert result["structuredContent"] == {"a": None}
    assert result["isError"] is True
    assert "outputSchema" not in await listed_tool(server, "tool")


async def test_the_meta_of_a_whole_result_is_kept_beside_the_servers_signature() -> None:
    server = Server("s")

    @server.tool
    async def tool() -> CallToolResult:
        return CallToolResult(content=[], meta={"k": 1})

    meta = (await ask(server, "tools/call", {"name": "tool"}))["result"]["_meta"]
    assert meta["k"] == 1
    assert meta["io.modelcontextprotocol/serverInfo"]["name"] == "s"


# structured=


@pytest.mark.parametrize("hint", [None, dict[str, int]])
async def test_data_of_an_unstructured_tool_is_text_only(hint: Any) -> None:
    assert await outcome({"a": 1}, hint, structured=False) == (text('{"a":1}'), None)


async def test_a_structured_tool_needs_a_hint_that_says_the_type() -> None:
    with pytest.raises(RegistrationError, match="structured=True needs a return annotation"):
        await outcome({"a": 1}, None, structured=True)


async def test_a_structured_tool_with_a_hint_has_a_schema() -> None:
    _, schema = await outcome({"a": 1}, dict[str, int], structured=True)
    assert schema == {"type": "object", "additionalProperties": {"type": "integer"}}


# Results that break their own schema


@pytest.mark.parametrize(
    ("value", "hint", "options"),
    [
        ({"a": "secret-value"}, dict[str, int], {}),
        ("secret-value", list[int], {}),
        (
            {"a": "secret-value"},
            None,
            {"output_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        ),
        (CallToolResult(content=[], structured_content={"a": "secret-value"}), dict[str, int], {}),
        (
            CallToolResult(content=[], structured_content={"a": "secret-value"}),
            None,
            {"output_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        ),
    ],
)
async def test_a_result_that_breaks_the_output_schema_is_a_tool_error_and_logged(
    value: Any, hint: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    result, schema = await outcome(value, hint, **options)
    assert schema is not None
    assert result["isError"] is True
    assert "does not fit its output schema" in result["content"][0]["text"]
    assert "structuredContent" not in result
    assert "secret-value" not in str(result)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "'tool'" in record.getMessage()


async def test_an_error_result_of_the_author_need_not_fit_the_output_schema() -> None:
    value = CallToolResult(content=[TextContent(text="sorry")], is_error=True)
    result, _ = await outcome(value, None, output_schema={"type": "object", "required": ["a"]})
    assert result["content"][0]["text"] == "sorry"


async def test_a_value_that_json_cannot_spell_is_a_tool_error(caplog: pytest.LogCaptureFixture) -> None:
    result, _ = await outcome({"a": object()})
    assert result["isError"] is True
    assert "Tool 'tool' raised" in caplog.text


# Explicit schemas


async def test_an_explicit_input_schema_is_passed_through_verbatim() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Kept",
        "properties": {"a": {"$ref": "#/$defs/even"}},
        "$defs": {"even": {"type": "integer", "multipleOf": 2}},
        "x-mine": [1],
    }
    server = Server("s")

    @server.tool(input_schema=schema)
    async def tool(arguments: dict[str, Any]) -> str:
        return str(arguments)

    assert (await listed_tool(server, "tool"))["inputSchema"] == schema
    assert (await call_tool(server, "tool", a=4))["content"][0]["text"] == "{'a': 4}"
    result = await call_tool(server, "tool", a=3)
    assert result["isError"] is True
    assert "a: 3 is not a multiple of 2" in result["content"][0]["text"]


async def test_with_an_explicit_schema_properties_arrive_as_parameters() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]})
    async def tool(a: Any, b: Any = "absent") -> str:
        return f"{a} {b}"

    assert (await call_tool(server, "tool", a=1))["content"][0]["text"] == "1 absent"
    assert (await call_tool(server, "tool", a=1, b=2))["content"][0]["text"] == "1 2"


async def test_with_an_explicit_schema_a_handler_may_take_nothing() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object", "properties": {"a": {}}})
    async def tool() -> str:
        return "fine"

    assert (await call_tool(server, "tool", a=1))["content"][0]["text"] == "fine"


async def test_arguments_that_an_open_schema_allows_never_break_the_call() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object", "properties": {"a": {}, "b": {}}})
    async def spread(a: Any = 0, b: Any = 0) -> str:
        return f"{a} {b}"

    @server.tool(input_schema={"type": "object"})
    async def nothing() -> str:
        return "fine"

    assert (await call_tool(server, "spread", a=1, b=2, c=3)).get("isError") is None
    assert (await call_tool(server, "nothing", c=3)).get("isError") is None


async def test_an_explicit_schema_converts_nothing() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}})
    async def tool(a: float = 0, b: Any = None) -> str:
        return repr(a)

    assert (await call_tool(server, "tool", a=1))["content"][0]["text"] == "1"
    assert (await call_tool(server, "tool", a="1"))["isError"] is True


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema"]
)
async def test_a_schema_of_draft_7_is_read_as_draft_7(draft: str) -> None:
    server = Server("s")
    items = {"type": "array", "items": [{"type": "integer"}], "additionalItems": False}

    @server.tool(input_schema={"$schema": draft, "type": "object", "properties": {"a": items}})
    async def tool(arguments: dict[str, Any]) -> str:
        return "fine"

    assert "isError" not in await call_tool(server, "tool", a=[1])
    assert (await call_tool(server, "tool", a=[1, 2]))["isError"] is True


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.com/my-dialect", "type": "object"},
        {"$schema": "nonsense", "type": "object"},
        {"type": "object", "properties": {"a": {"type": "no-such-type"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"$ref": "other.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": 5},
        {"type": "object", "required": "a"},
        {"type": "array"},
        {"type": ["object", "null"]},
        {},
    ],
)
async def test_an_input_schema_that_cannot_be_honoured_is_refused_at_registration(
    schema: dict[str, Any],
) -> None:
    async def tool(arguments: dict[str, Any]) -> str:
        return ""

    with pytest.raises(RegistrationError, match="tool 'tool'"):
        Server("s").add_tool(tool, input_schema=schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.com/my-dialect"},
        {"type": "no-such-type"},
        {"$ref": "https://example.com/a.json"},
        {"$dynamicRef": "https://example.com/a.json#x"},
    ],
)
async def test_an_output_schema_that_cannot_be_honoured_is_refused_at_registration(
    schema: dict[str, Any],
) -> None:
    async def tool() -> dict[str, Any]:
        return {}

    with pytest.raises(RegistrationError, match="tool 'tool'"):
        Server("s").add_tool(tool, output_schema=schema)


async def test_an_explicit_output_schema_wins_over_the_hint() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    result, listed = await outcome({"a": 1, "b": 2}, dict[str, str], output_schema=schema)
    assert listed == schema
    assert result["structuredContent"] == {"a": 1, "b": 2}


async def test_a_misplaced_header_annotation_is_refused_at_registration() -> None:
    async def tool(arguments: dict[str, Any]) -> str:
        return ""

    schema = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    with pytest.raises(RegistrationError, match=r"tool 'tool': x-mcp-header of 'a' needs type"):
        Server("s").add_tool(tool, input_schema=schema)


# Definitions


async def test_all_that_is_said_about_a_tool_is_listed() -> None:
    server = Server("s")

    @server.tool(
        name="named",
        title="A title",
        description="A description",
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        icons=[Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"])],
        meta={"example.com/k": [1]},
    )
    async def tool() -> str:
        """Not this."""
        return ""

    definition = await listed_tool(server, "named")
    assert definition.pop("inputSchema")["type"] == "object"
    assert definition == {
        "name": "named",
        "title": "A title",
        "description": "A description",
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        "_meta": {"example.com/k": [1]},
    }


async def test_the_decorator_gives_the_function_back() -> None:
    server = Server("s")

    async def tool(a: int) -> str:
        return str(a)

    assert server.tool(tool) is tool
    assert server.tool(name="other")(tool) is tool
    assert await tool(1) == "1"


@pytest.mark.parametrize("name", ["", "two words", "a/b", "ü", "a" * 129, "<lambda>", "a\n"])
async def test_a_name_that_clients_would_not_take_is_refused(name: str) -> None:
    async def tool() -> str:
        return ""

    tool.__name__ = name
    with pytest.raises(RegistrationError, match="is not a tool name"):
        Server("s").add_tool(tool)


@pytest.mark.parametrize("name", ["a", "a" * 128, "get.weather-now_2", "A1"])
async def test_a_name_of_allowed_characters_is_taken(name: str) -> None:
    async def tool() -> str:
        return "here"

    server = Server("s")
    server.add_tool(tool, name=name)
    assert (await call_tool(server, name))["content"][0]["text"] == "here"


async def test_a_second_tool_of_the_same_name_is_refused_and_the_first_stays() -> None:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return "first"

    with pytest.raises(RegistrationError, match="Tool 'tool' is registered already"):
        server.add_tool(tool)
    assert (await call_tool(server, "tool"))["content"][0]["text"] == "first"


async def test_a_tool_can_be_taken_back_and_an_unknown_one_cannot() -> None:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return ""

    server.remove_tool("tool")
    assert (await result_of(server, "tools/list"))["tools"] == []
    assert (await error_of(server, "tools/call", {"name": "tool"}))["code"] == -32602
    with pytest.raises(UsageError, match="no tool 'tool' to remove"):
        server.remove_tool("tool")


async def test_an_unknown_tool_is_invalid_params_and_named() -> None:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return ""

    error = await error_of(server, "tools/call", {"name": "nobody"})
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: nobody")
    error = await error_of(server, "tools/call", {"name": "n" * 100_000})
    assert error["message"] == "Unknown tool: " + "n" * 200


@pytest.mark.parametrize("arguments", [None, [], "x", 1])
async def test_arguments_that_are_no_object_are_invalid_params(arguments: Any) -> None:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return ""

    error = await error_of(server, "tools/call", {"name": "tool", "arguments": arguments})
    assert error["code"] == -32602


async def test_absent_arguments_are_no_arguments() -> None:
    server = Server("s")

    @server.tool
    async def tool(a: int = 1) -> str:
        return str(a)

    assert (await result_of(server, "tools/call", {"name": "tool"}))["content"][0]["text"] == "1"


async def test_bytes_that_are_no_text_are_a_tool_error_and_not_a_crash() -> None:
    result, _ = await outcome(b"\xff", bytes)
    assert result["isError"] is True


async def test_an_iterator_of_data_is_listed_out() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    result, _ = await outcome(list(numbers()), list[int])
    assert result["structuredContent"] == [1, 2]


async def test_an_image_can_be_made_of_bytes() -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    result, _ = await outcome(ImageContent(data=data, mime_type="image/png"))
    assert base64.b64decode(result["content"][0]["data"]) == b"\x89PNG"
