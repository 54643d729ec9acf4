"""JSON Schema: dialects, references, and the transport in memory."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ekiden import EkidenError, Server

from .marks import requirement
from .messages import SUBSCRIPTION, Message, call, listen, request
from .shapes import check, is_error

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
STRANGE = "https://example.com/no-such-dialect"


def handler(arguments: dict[str, Any]) -> str:
    return "reached"


def empty() -> dict[str, Any]:
    return {}


def server_with(schema: Message) -> Server:
    """A server with a tool that has such an input schema."""
    server = Server("schemas")
    server.add_tool(handler, name="checked", input_schema=schema)
    return server


async def exchange(server: Server, *messages: Message) -> list[Message]:
    """The responses to some requests, over the transport in memory."""
    async with server.connect() as channel:
        found = []
        for message in messages:
            await channel.send(message)
            found.append(check(await asyncio.wait_for(channel.receive(), 10)))
        return found


async def verdict(schema: Message, arguments: Message) -> str:
    """How it ends: "unregistered", "refused" or "reached"."""
    try:
        server = server_with(schema)
    except EkidenError:
        return "unregistered"
    (answer,) = await exchange(server, call("checked", **arguments))
    return "refused" if is_error(answer) else "reached"


def pair(**keywords: Any) -> Message:
    """A schema of an object with a list `p`."""
    return {"type": "object", "properties": {"p": {"type": "array", **keywords}}}


@requirement("SCHEMA-01")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (pair(prefixItems=[{"type": "string"}], items=False), {"p": ["a"]}, {"p": ["a", "b"]}),
        (pair(prefixItems=[{"type": "string"}]), {"p": ["a", 1]}, {"p": [1]}),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
        (
            {"type": "object", "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"a": 1},
            {"a": 1, "b": 2},
        ),
        (pair(contains={"const": 1}, minContains=2), {"p": [1, 1]}, {"p": [1, 2]}),
        (
            {
                "type": "object",
                "$defs": {"n": {"$anchor": "n", "type": "integer"}},
                "properties": {"p": {"$ref": "#n"}},
            },
            {"p": 1},
            {"p": "x"},
        ),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 2}),
    ],
)
async def test_a_schema_without_dialect_is_read_as_2020_12(
    schema: Message, good: Message, bad: Message
) -> None:
    assert await verdict(schema, good) == "reached"
    assert await verdict(schema, bad) == "refused"


@requirement("SCHEMA-02")
async def test_a_declared_dialect_is_applied_by_its_own_rules() -> None:
    old = {"$schema": DRAFT_7, **pair(items=[{"type": "string"}], additionalItems=False)}
    assert await verdict(old, {"p": ["a"]}) == "reached"
    assert await verdict(old, {"p": ["a", "b"]}) == "refused"
    ignored = {"$schema": DRAFT_7, **pair(prefixItems=[{"type": "string"}])}
    assert await verdict(ignored, {"p": [1]}) == "reached"
    named = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **pair(prefixItems=[{"type": "string"}]),
    }
    assert await verdict(named, {"p": [1]}) == "refused"


@requirement("SCHEMA-02", "TOOL-06")
async def test_an_output_schema_is_applied_by_its_own_dialect_too() -> None:
    server = Server("schemas")
    schema = {"$schema": DRAFT_7, "type": "array", "items": [{"type": "string"}], "additionalItems": False}
    server.add_tool(lambda: ["a"], name="good", output_schema=schema)
    server.add_tool(lambda: ["a", "b"], name="bad", output_schema=schema)
    good, bad = await exchange(server, call("good"), call("bad"))
    assert good["result"]["structuredContent"] == ["a"]
    assert is_error(bad)


@requirement("SCHEMA-03")
@pytest.mark.parametrize("kind", ["input_schema", "output_schema"])
async def test_an_unsupported_dialect_leads_to_an_error_that_names_it(kind: str) -> None:
    server = Server("schemas")
    schemas = {kind: {"$schema": STRANGE, "type": "object"}}
    said = ""
    try:
        server.add_tool(handler if kind == "input_schema" else empty, name="checked", **schemas)
    except EkidenError as error:
        said = str(error)
    if not said:
        (answer,) = await exchange(server, call("checked"))
        said = str(answer) if is_error(answer) else ""
    assert STRANGE in said


@requirement("SCHEMA-04", "TOOL-05")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": "object", "properties": []},
        {"type": "object", "required": "p"},
        {"type": "object", "properties": {"p": {"minimum": "low"}}},
        {"type": "object", "properties": {"p": {"pattern": "("}}},
        {"type": "object", "properties": {"p": 7}},
        {"$schema": DRAFT_7, "type": "object", "properties": {"p": {"exclusiveMinimum": True}}},
    ],
)
@pytest.mark.parametrize("kind", ["input_schema", "output_schema"])
def test_a_schema_that_is_not_valid_is_not_published(kind: str, schema: Message) -> None:
    with pytest.raises(EkidenError):
        Server("schemas").add_tool(handler if kind == "input_schema" else empty, name="bad", **{kind: schema})


@requirement("TOOL-05", "SCHEMA-04")
@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["object", "null"]}, {}, {"properties": {}}])
def test_an_input_schema_that_is_not_of_an_object_is_not_published(schema: Any) -> None:
    with pytest.raises(EkidenError):
        Server("schemas").add_tool(handler, name="bad", input_schema=schema)


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """A port where nobody should call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def nobody_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


@requirement("SCHEMA-05", "SCHEMA-06")
@pytest.mark.parametrize("at", ["property", "root", "definition"])
async def test_a_foreign_reference_is_neither_fetched_nor_passed_over(trap: socket.socket, at: str) -> None:
    far = {"$ref": f"http://127.0.0.1:{trap.getsockname()[1]}/schema.json"}
    schemas: dict[str, Message] = {
        "property": {"type": "object", "properties": {"p": far}},
        "root": {"type": "object", **far},
        "definition": {"type": "object", "$defs": {"q": far}, "properties": {"p": {"$ref": "#/$defs/q"}}},
    }
    assert await verdict(schemas[at], {"p": 1}) in {"unregistered", "refused"}
    assert nobody_called(trap)


@requirement("SCHEMA-05", "SCHEMA-06")
async def test_a_foreign_reference_in_an_output_schema_is_neither_fetched_nor_passed_over(
    trap: socket.socket,
) -> None:
    server = Server("schemas")
    far = {
        "type": "object",
        "properties": {"p": {"$ref": f"http://127.0.0.1:{trap.getsockname()[1]}/x.json"}},
    }
    try:
        server.add_tool(lambda: {"p": 1}, name="far", output_schema=far)
    except EkidenError:
        assert nobody_called(trap)
        return
    _, answer = await exchange(server, request("tools/list"), call("far"))
    assert is_error(answer)
    assert nobody_called(trap)


@requirement("TRANS-03")
async def test_the_transport_in_memory_keeps_format_patterns_and_metadata() -> None:
    server = server_with({"type": "object"})
    ok, unversioned, unknown, broken = await exchange(
        server,
        request("tools/list", id_="a"),
        request("tools/list", id_="b", protocolVersion="1900-01-01"),
        request("no/such", id_="c"),
        {"jsonrpc": "2.0", "id": "d", "method": "tools/list", "params": {}},
    )
    assert ok["result"]["resultType"] == "complete"
    codes = [answer["error"]["code"] for answer in (unversioned, unknown, broken)]
    assert codes == [-32022, -32601, -32602]
    async with server.connect() as channel:
        await channel.send(listen("s", toolsListChanged=True))
        first = check(await asyncio.wait_for(channel.receive(), 10))
        server.add_tool(handler, name="more", input_schema={"type": "object"})
        second = check(await asyncio.wait_for(channel.receive(), 10))
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert second["method"] == "notifications/tools/list_changed"
    assert {message["params"]["_meta"][SUBSCRIPTION] for message in (first, second)} == {"s"}
