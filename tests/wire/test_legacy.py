"""The dialects of 2025: what each version can say, in what words."""

import json
from typing import Any

import pytest

from ekiden.errors import EnvelopeError, InvalidParams, MissingCapability, ParseError, ProtocolError
from ekiden.signals import Unsayable
from ekiden.wire.draft import Draft, is_incomplete
from ekiden.wire.handshake import (
    Response,
    is_modern,
    negotiate,
    read_hello,
    read_incoming,
    request_meta,
    usable_capabilities,
)
from ekiden.wire.jsonrpc import Message
from ekiden.wire.legacy import Legacy
from ekiden.wire.modern import Modern
from ekiden.wire.schemas.validator import json_validator
from ekiden.wire.versions import DRAFT, LEGACY

NOVEMBER, JUNE, MARCH, FIRST = LEGACY
INFO = {"name": "s", "version": "1"}


def result_of(response: bytes) -> Any:
    return json.loads(response)["result"]


def test_a_sound_is_attached_as_a_resource_where_there_is_no_other_place_for_it() -> None:
    sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav", "annotations": {"priority": 1}}
    resource = {"uri": "attachment:audio", "mimeType": "audio/wav", "blob": "AAAA"}
    attached = {"type": "resource", "resource": resource, "annotations": {"priority": 1}}
    for field, of_march, of_the_first in (
        ("content", [sound], [attached]),
        ("messages", [{"role": "user", "content": sound}], [{"role": "user", "content": attached}]),
    ):
        assert Legacy(MARCH).result({field: of_march}) == {field: of_march}
        assert Legacy(FIRST).result({field: of_march}) == {field: of_the_first}


@pytest.mark.parametrize("version", LEGACY)
def test_the_tags_and_hints_of_2026_are_left_out(version: str) -> None:
    modern = Modern(INFO).result({"tools": [], "ttlMs": 5, "cacheScope": "public", "nextCursor": "c"})
    assert result_of(Legacy(version).complete(1, modern)) == {"tools": [], "nextCursor": "c"}


@pytest.mark.parametrize("version", LEGACY)
def test_the_author_keeps_his_meta(version: str) -> None:
    modern = Modern(INFO).result({"content": [], "_meta": {"com.example/x": 1}})
    assert result_of(Legacy(version).complete("a", modern))["_meta"] == {"com.example/x": 1}


def test_a_page_is_respelled_once() -> None:
    respelled: list[str] = []

    def task_support(name: str) -> str | None:
        respelled.append(name)
        return "optional"

    dialect = Legacy(NOVEMBER)
    dialect.task_support = task_support
    page = Modern(INFO).result({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    first = dialect.complete(1, page)
    assert b'"taskSupport":"optional"' in first
    assert dialect.complete(2, page) == first.replace(b'"id":1', b'"id":2')
    assert respelled == ["t"]
    others = [Modern(INFO).result({"tools": [{"name": str(number)}]}) for number in range(200)]
    for other in others:
        assert json.loads(dialect.complete(1, other)) != json.loads(first), "each page is its own"
    assert dialect.complete(1, page) == first
    assert respelled == ["t", "t"], "only so many pages lie ready"


def test_equal_pages_of_other_tools_are_respelled_apart() -> None:
    support: dict[str, str] = {"t": "optional"}
    dialect = Legacy(NOVEMBER)
    dialect.task_support = support.get
    page = Modern(INFO).result({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    assert b'"taskSupport":"optional"' in dialect.complete(1, page)
    support["t"] = "required"  # The tool was taken away, and another one of its name came.
    assert b'"taskSupport":"required"' in dialect.complete(1, bytes(bytearray(page)))


def test_blocks_inside_prompts_and_resources_are_respelled_too() -> None:
    embedded = {
        "type": "resource",
        "resource": {"uri": "x://y", "text": "", "_meta": {"a": 1}},
        "_meta": {"b": 1},
    }
    annotated = {"type": "text", "text": "", "annotations": {"priority": 1, "lastModified": "2025-01-01"}}
    result = {"messages": [{"role": "user", "content": embedded}, {"role": "user", "content": annotated}]}
    march = Legacy(MARCH).result(result)["messages"]
    assert march[0]["content"] == {"type": "resource", "resource": {"uri": "x://y", "text": ""}}
    assert march[1]["content"]["annotations"] == {"priority": 1}
    assert Legacy(JUNE).result(result) == result
    contents = {"contents": [{"uri": "x://y", "text": "", "_meta": {"a": 1}}]}
    assert Legacy(MARCH).result(contents) == {"contents": [{"uri": "x://y", "text": ""}]}


@pytest.mark.parametrize("value", [[1], 3, "x", None, True])
def test_a_structured_result_that_is_not_an_object_is_wrapped_in_one(value: Any) -> None:
    result = {"content": [{"type": "text", "text": "3"}], "structuredContent": value}
    for version in (NOVEMBER, JUNE, DRAFT):
        assert Legacy(version).result(result) == {**result, "structuredContent": {"result": value}}
    assert Legacy(MARCH).result(result) == {"content": [{"type": "text", "text": "3"}]}


def output_schema(schema: Any) -> Any:
    """How an output schema is listed for clients of November 2025."""
    (tool,) = Legacy(NOVEMBER).result({"tools": [{"name": "t", "outputSchema": schema}]})["tools"]
    return tool.get("outputSchema")


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}


@pytest.mark.parametrize(
    ("schema", "inner", "more"),
    [
        ({"type": "array", "items": {"type": "string"}}, None, {}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, {}),
        ({"type": ["integer", "null"]}, None, {}),
        ({"enum": ["a", 1]}, None, {}),
        ({"const": "a"}, None, {}),
        (
            {"type": "array", "items": {"$ref": "#/$defs/Node"}, "$defs": {"Node": NODE}},
            {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            {"$defs": {"Node": NODE}},
        ),
        (
            {"$ref": "#/$defs/Size", "$defs": {"Size": {"enum": ["s", "m"]}}},
            {"$ref": "#/$defs/Size"},
            {"$defs": {"Size": {"enum": ["s", "m"]}}},
        ),
        (
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}},
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/properties/result"}]}},
            {},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"$ref": "#/prefixItems/0"}]},
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"$ref": "#/properties/result/prefixItems/0"}],
            },
            {},
        ),
    ],
)
def test_an_output_schema_that_no_object_fits_is_wrapped_as_its_results_are(
    schema: Any, inner: Any, more: Any
) -> None:
    wrapped = {"type": "object", "properties": {"result": inner or schema}, "required": ["result"], **more}
    assert output_schema(schema) == wrapped
    assert json_validator(wrapped)({"other": 1}) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
        {"type": ["object", "null"]},
        {"enum": [{}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "#/$defs/Missing"},
    ],
)
def test_an_output_schema_that_an_object_may_fit_is_not_listed_before_2026(schema: Any) -> None:
    assert output_schema(schema) is None


def test_codes_of_2026_do_not_reach_clients_of_2025() -> None:
    dialect = Legacy(NOVEMBER)
    for error in (
        MissingCapability({"roots": {}}),
        ProtocolError("x", code=-32020),
        ProtocolError("x", code=-32022),
    ):
        assert json.loads(dialect.error(1, error))["error"]["code"] == -32600
    missing = InvalidParams("Resource not found: x://y", data={"uri": "x://y"})
    assert json.loads(dialect.error(1, missing))["error"]["code"] == -32002
    assert (
        json.loads(dialect.error(1, InvalidParams("other", data={"uri": 1, "more": 2})))["error"]["code"]
        == -32602
    )
    assert json.loads(dialect.error(1, ProtocolError("page", code=-32042)))["error"]["code"] == -32042


def test_an_interim_result_is_an_error_where_there_are_none() -> None:
    assert "error" in json.loads(Legacy(NOVEMBER).input_required(1, {}, "state"))
    spelled = result_of(Draft().input_required(1, {"k": {"method": "roots/list"}}, "state"))
    assert is_incomplete(spelled)
    assert spelled["inputRequests"] == {"k": {"method": "roots/list"}}


def test_messages_with_several_blocks_are_several_messages_before_november() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    params = {"messages": [{"role": "user", "content": blocks}], "maxTokens": 5}
    spelled = Legacy(JUNE).question("sampling/createMessage", params, "")
    assert [message["content"]["text"] for message in spelled["messages"]] == ["a", "b"]
    assert Legacy(NOVEMBER).question("sampling/createMessage", params, "") == params


def test_a_list_of_choices_cannot_be_said_in_june() -> None:
    schema = {"type": "object", "properties": {"many": {"type": "array", "items": {"enum": ["a"]}}}}
    params = {"mode": "form", "message": "m", "requestedSchema": schema}
    with pytest.raises(Unsayable, match="many"):
        Legacy(JUNE).question("elicitation/create", params, "")
    assert Legacy(NOVEMBER).question("elicitation/create", params, "") == params


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_question_without_parameters_has_none(method: str) -> None:
    assert Legacy(NOVEMBER).question(method, None, "id") == {}


# The handshake


def test_what_is_agreed_on_is_what_was_asked_for_or_the_newest() -> None:
    assert [negotiate(version, LEGACY) for version in LEGACY] == list(LEGACY)
    assert negotiate("2026-07-28", LEGACY) == NOVEMBER
    assert negotiate(DRAFT, (*LEGACY, DRAFT)) == DRAFT


def test_capabilities_are_read_in_the_words_of_their_time() -> None:
    declared = {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
    assert usable_capabilities(NOVEMBER, declared) == declared
    june = usable_capabilities(JUNE, declared)
    assert june == {"elicitation": {"form": {}}, "sampling": {"context": {}}, "roots": {"listChanged": True}}
    for version in (MARCH, FIRST):
        assert "elicitation" not in usable_capabilities(version, declared)


def test_what_a_request_says_of_itself_comes_on_top() -> None:
    fields = {
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "io.modelcontextprotocol/logLevel": "error",
        "progressToken": "t",
        "com.example/x": 1,
    }
    meta = request_meta({"_meta": fields}, NOVEMBER, {"roots": {}}, {"name": "c"}, "info")
    assert meta.capabilities == {"roots": {}, "sampling": {}}
    assert (meta.log_level, meta.progress_token, meta.fields["com.example/x"]) == ("error", "t", 1)
    plain = request_meta({"_meta": None}, NOVEMBER, {"roots": {}}, {}, "info")
    assert (plain.capabilities, plain.log_level, plain.progress_token) == ({"roots": {}}, "info", None)
    for broken in ([1], {"progressToken": 1.5}, {"progressToken": True}, {"progressToken": "x" * 1001}):
        with pytest.raises(InvalidParams):
            request_meta({"_meta": broken}, NOVEMBER, {}, {}, None)


def test_only_the_version_in_meta_makes_a_request_modern() -> None:
    assert is_modern({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
    assert not is_modern({"_meta": {"progressToken": 1}})
    assert not is_modern({"_meta": None})
    assert not is_modern({})


def test_three_kinds_of_messages_come_in() -> None:
    assert read_incoming(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', NOVEMBER) == (
        [Message(1, "ping", {})],
        False,
    )
    assert read_incoming(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', NOVEMBER) == (
        [Message(1, "ping", {})],
        False,
    )
    ((answer,), _) = read_incoming(b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}', NOVEMBER)
    assert answer == Response(1, {"a": 1}, None)
    ((failed,), _) = read_incoming(b'{"jsonrpc":"2.0","id":"x","error":{"code":1}}', NOVEMBER)
    assert failed == Response("x", None, {"code": 1})
    ((broken,), _) = read_incoming(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', NOVEMBER)
    assert isinstance(broken, EnvelopeError)
    messages, batch = read_incoming(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},7]', MARCH)
    assert (batch, [type(message) for message in messages]) == (True, [Message, EnvelopeError])
    with pytest.raises(ParseError):
        read_incoming(b"[", MARCH)


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
def test_a_handshake_is_whole(missing: str) -> None:
    params: dict[str, Any] = {"protocolVersion": NOVEMBER, "capabilities": {}, "clientInfo": {}}
    assert read_hello(params).version == NOVEMBER
    del params[missing]
    with pytest.raises(InvalidParams):
        read_hello(params)
