import json
from typing import Any

import pytest

from ekiden.errors import (
    HeaderMismatch,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    ParseError,
    ProtocolError,
    UnsupportedVersion,
)
from ekiden.wire.jsonrpc import Message, parse
from ekiden.wire.modern import Modern, accept, http_status
from tests.serving import call, headers_for, meta, request

METHODS = {"tools/call", "tools/list", "prompts/get", "resources/read"}


def message(spelled: dict[str, Any]) -> Message:
    return parse(json.dumps(spelled).encode())


def mirrored(spelled: dict[str, Any], **changes: str | None) -> dict[bytes, bytes]:
    headers: dict[str, str | None] = {**headers_for(spelled)}
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return {name.encode(): value.encode() for name, value in headers.items() if value is not None}


def test_a_request_in_order_is_accepted_with_what_it_addresses() -> None:
    spelled = call("add", {"a": 1}, request_id="x")
    headers = mirrored(spelled)
    accepted = accept(message(spelled), headers, METHODS)
    assert (accepted.id, accepted.method, accepted.name) == ("x", "tools/call", "add")
    assert accepted.params["arguments"] == {"a": 1}
    assert accepted.meta.protocol_version == "2026-07-28"
    assert accepted.headers is headers


def test_without_a_header_layer_only_the_body_counts() -> None:
    accepted = accept(message(call("add")), None, METHODS)
    assert accepted.name == "add"
    assert accepted.headers is None


def test_a_method_that_addresses_nothing_needs_no_name() -> None:
    spelled = request("tools/list")
    assert accept(message(spelled), mirrored(spelled), METHODS).name is None


@pytest.mark.parametrize(
    ("method", "key"), [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
)
@pytest.mark.parametrize("value", [None, 1, ["x"], {}])
def test_a_method_that_addresses_something_must_name_it(method: str, key: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=f"`{key}` is required"):
        accept(message(request(method, {key: value})), None, METHODS)


# The order of checks: each request breaks one rule and all later ones.


def broken(**changes: Any) -> dict[str, Any]:
    """A call with a malformed name and an unknown method, and whatever else is to be wrong."""
    spelled = request("no/such", {"name": 1})
    spelled["params"]["_meta"].update(changes)
    return spelled


VERSION = "io.modelcontextprotocol/protocolVersion"


def refusal(spelled: dict[str, Any], headers: dict[bytes, bytes] | None) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        accept(message(spelled), headers, METHODS)
    return caught.value


def test_first_the_version_header_must_be_there() -> None:
    spelled = request("no/such")
    spelled["params"] = {"_meta": 1}
    error = refusal(spelled, {})
    assert isinstance(error, HeaderMismatch)
    assert "MCP-Protocol-Version" in error.message


def test_then_the_meta_must_be_in_order() -> None:
    error = refusal(broken(**{VERSION: 1}), {b"mcp-protocol-version": b"other"})
    assert isinstance(error, InvalidParams)


def test_then_the_version_header_must_equal_the_body() -> None:
    error = refusal(broken(**{VERSION: "1900-01-01"}), {b"mcp-protocol-version": b"2026-07-28"})
    assert isinstance(error, HeaderMismatch)


def test_then_the_version_must_be_spoken_here() -> None:
    error = refusal(broken(**{VERSION: "1900-01-01"}), {b"mcp-protocol-version": b"1900-01-01"})
    assert isinstance(error, UnsupportedVersion)
    assert error.data == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


def test_then_the_method_header_must_equal_the_body() -> None:
    error = refusal(broken(), {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call"})
    assert isinstance(error, HeaderMismatch)
    assert "Mcp-Method" in error.message


def test_then_the_method_must_be_known() -> None:
    error = refusal(broken(), {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"no/such"})
    assert isinstance(error, MethodNotFound)


def test_then_the_name_must_be_there() -> None:
    spelled = request("tools/call", {"name": 1})
    error = refusal(spelled, {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call"})
    assert isinstance(error, InvalidParams)


@pytest.mark.parametrize("header", [None, "other"])
def test_last_the_name_header_must_equal_the_body(header: str | None) -> None:
    spelled = call("add")
    error = refusal(spelled, mirrored(spelled, mcp_name=header))
    assert isinstance(error, HeaderMismatch)
    assert "Mcp-Name" in error.message


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_only_the_methods_of_tasks_may_leave_the_name_header_out(method: str) -> None:
    spelled = request(method, {"taskId": "t-1"})
    headers = mirrored(spelled)
    headers.pop(b"mcp-name", None)
    assert accept(message(spelled), headers, {method}).name == "t-1"
    with pytest.raises(HeaderMismatch, match="Mcp-Name header value 'other'"):
        accept(message(spelled), {**headers, b"mcp-name": b"other"}, {method})


def test_an_old_client_is_told_which_version_is_spoken_here() -> None:
    error = refusal(request("initialize"), None)
    assert isinstance(error, MethodNotFound)
    assert "2026-07-28" in error.message


def test_a_very_long_method_is_cut_in_the_message() -> None:
    assert len(refusal(request("x" * 100_000), None).message) < 1000


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ParseError("x"), 400),
        (ProtocolError("x", code=-32600), 400),
        (MethodNotFound("x"), 404),
        (InvalidParams("x"), 400),
        (HeaderMismatch("x"), 400),
        (MissingCapability({"sampling": {}}), 400),
        (UnsupportedVersion("x", ["y"]), 400),
        (InternalError("x"), 200),
        (ProtocolError("x", code=42), 200),
    ],
)
def test_every_error_has_its_http_status(error: ProtocolError, status: int) -> None:
    assert http_status(error) == status


def test_a_result_is_tagged_and_signed() -> None:
    dialect = Modern({"name": "s", "version": "1"})
    response = json.loads(dialect.complete(1, {"content": []}))
    assert response["result"] == {
        "resultType": "complete",
        "content": [],
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
    }


def test_the_meta_of_a_result_is_kept_beside_the_signature() -> None:
    dialect = Modern({"name": "s", "version": "1"})
    result = json.loads(dialect.result({"_meta": {"a": 1}}))
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}, "a": 1}


@pytest.mark.parametrize("others", [{}, {"content": []}, {"_meta": {"a": 1}}])
def test_a_result_that_names_its_own_type_keeps_it_and_says_it_once(others: Any) -> None:
    named = {**others, "resultType": "special"}
    for spelled in (Modern({}).result(named), Modern({}).complete(1, named)):
        message = json.loads(spelled)
        assert message.get("result", message)["resultType"] == "special"
        assert spelled.count(b"resultType") == 1


def test_a_result_spelled_ahead_is_the_same_as_one_spelled_now() -> None:
    dialect = Modern({"name": "s", "version": "1"})
    assert dialect.complete(1, dialect.result({"tools": []})) == dialect.complete(1, {"tools": []})


def test_a_missing_capability_names_what_is_required() -> None:
    response = json.loads(Modern({}).error(1, MissingCapability({"sampling": {"tools": {}}})))
    assert response["error"]["code"] == -32021
    assert response["error"]["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}


def test_the_meta_of_the_request_is_the_one_that_middleware_sees() -> None:
    spelled = call("add", traceparent="00-1")
    assert accept(message(spelled), None, METHODS).meta.fields == meta(traceparent="00-1")
