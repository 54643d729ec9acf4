"""Headers that mirror arguments of tools: how `x-mcp-header` may be used, and what follows from it."""

import json
from typing import Any

import pytest

from ekiden import RegistrationError, Server

from .marks import requirement
from .messages import Message, call, encoded
from .over_http import Http, head, http_server, raw
from .shapes import check, is_error

STRING = {"type": "string"}


def register(schema: Message) -> None:
    """Register a tool with such an input schema."""

    def handler(arguments: dict[str, Any]) -> str:
        return ""

    Server("mirrors").add_tool(handler, name="mirror", input_schema=schema)


def one(name: Any, **schema: Any) -> Message:
    """An input schema with one parameter that is mirrored."""
    return {"type": "object", "properties": {"p": {**(schema or STRING), "x-mcp-header": name}}}


def with_param(http: Http, arguments: Message, *more: bytes) -> tuple[int, Message]:
    """Call the tool that mirrors, with such headers."""
    message = call("mirror", **arguments)
    status, body = raw(http, head(message, *more), message)
    return status, check(json.loads(body))


def reached(http: Http, arguments: Message, *more: bytes) -> None:
    """Assert that the call passes the headers and reaches the tool."""
    status, answer = with_param(http, arguments, *more)
    assert status == 200, answer
    assert answer["result"]["content"][0]["text"] == "reached"


def refused(http: Http, arguments: Message, *more: bytes) -> None:
    """Assert that the call fails at the headers."""
    status, answer = with_param(http, arguments, *more)
    assert (status, answer.get("error", {}).get("code")) == (400, -32020), answer


@requirement("PARAM-01", "PARAM-02", "PARAM-03")
@pytest.mark.parametrize(
    "name", ["", " ", "two words", "a:b", "a/b", "naïve", "a\r\nb", "a\nb", "a\tb", "\x00", "a\x7f", None, 5]
)
def test_a_name_that_cannot_be_part_of_a_header_s_name_is_not_registered(name: Any) -> None:
    with pytest.raises(RegistrationError):
        register(one(name))


@requirement("PARAM-02")
@pytest.mark.parametrize("name", ["Region", "region", "X-1", "!#$%&'*+-.^_`|~", "9"])
def test_any_token_can_be_part_of_a_header_s_name(name: str) -> None:
    register(one(name))


@requirement("PARAM-04")
@pytest.mark.parametrize("twin", ["Region", "REGION", "region"])
def test_two_parameters_with_the_same_header_are_not_registered(twin: str) -> None:
    first, second = {**STRING, "x-mcp-header": "Region"}, {**STRING, "x-mcp-header": twin}
    nested = {"type": "object", "properties": {"b": second}}
    for properties in ({"a": first, "b": second}, {"a": first, "c": nested}):
        with pytest.raises(RegistrationError):
            register({"type": "object", "properties": properties})


@requirement("PARAM-05")
@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_primitive_parameters_can_be_mirrored(kind: str) -> None:
    register(one("P", type=kind))


@requirement("PARAM-05")
@pytest.mark.parametrize(
    "kind", ["number", "array", "object", "null", ["string", "number"], ["integer", "array"]]
)
def test_other_parameters_cannot_be_mirrored(kind: Any) -> None:
    with pytest.raises(RegistrationError):
        register(one("P", type=kind))


@requirement("PARAM-06")
@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1, 0])
def test_integers_that_a_double_holds_exactly_are_accepted(http: Http, value: int) -> None:
    reached(http, {"shard": value}, f"Mcp-Param-Shard: {value}".encode())


@requirement("PARAM-06")
@pytest.mark.parametrize("value", [2**53, -(2**53), 2**64, 10**40])
def test_integers_that_a_double_may_round_are_refused(http: Http, value: int) -> None:
    _, answer = with_param(http, {"shard": value}, f"Mcp-Param-Shard: {value}".encode())
    assert is_error(answer)


@requirement("PARAM-07")
def test_a_nested_parameter_can_be_mirrored(http: Http) -> None:
    reached(http, {"where": {"zone": "b"}}, b"Mcp-Param-Zone: b")
    refused(http, {"where": {"zone": "b"}}, b"Mcp-Param-Zone: c")
    refused(http, {"where": {"zone": "b"}})
    reached(http, {"where": {}})


@requirement("PARAM-07")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"p": {"type": "array", "items": {**STRING, "x-mcp-header": "P"}}}},
        {"properties": {"p": {"type": "array", "prefixItems": [{**STRING, "x-mcp-header": "P"}]}}},
        {"properties": {"p": {"type": "array", "contains": {**STRING, "x-mcp-header": "P"}}}},
        {"properties": {"p": {"anyOf": [{**STRING, "x-mcp-header": "P"}]}}},
        {"oneOf": [one("P")]},
        {"anyOf": [one("P")]},
        {"allOf": [one("P")]},
        {"not": one("P")},
        {"if": one("P")},
        {"if": {}, "then": one("P")},
        {"if": {}, "else": one("P")},
        {"properties": {"p": {"$ref": "#/$defs/p"}}, "$defs": {"p": {**STRING, "x-mcp-header": "P"}}},
        {"additionalProperties": {**STRING, "x-mcp-header": "P"}},
        {"patternProperties": {"^p": {**STRING, "x-mcp-header": "P"}}},
        {"x-mcp-header": "P"},
    ],
)
def test_a_parameter_that_is_not_reached_by_properties_alone_cannot_be_mirrored(schema: Message) -> None:
    with pytest.raises(RegistrationError):
        register({"type": "object", **schema})


@requirement("PARAM-07")
def test_a_parameter_or_default_that_is_merely_called_so_is_no_annotation() -> None:
    register({"type": "object", "properties": {"x-mcp-header": STRING}})
    register({"type": "object", "properties": {"p": {"type": "object", "default": {"x-mcp-header": ""}}}})


@requirement("PARAM-08")
@pytest.mark.parametrize("value", ["zażółć".encode(), b"us\xff", b"\xa0"])
def test_a_parameter_header_beyond_ascii_is_refused(http: Http, value: bytes) -> None:
    refused(http, {"region": value.decode("latin-1")}, b"Mcp-Param-Region: " + value)
    refused(http, {"region": "zażółć"}, b"Mcp-Param-Region: " + value)


@requirement("PARAM-08")
def test_a_header_of_no_parameter_is_not_minded(http: Http) -> None:
    reached(http, {"region": "us"}, b"Mcp-Param-Region: us", b"Mcp-Param-Other: \xff")


@requirement("PARAM-09")
@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"region": "us"}, b"Region: us"),
        ({"region": "us"}, b"REGION: us"),
        ({"region": "a b, c"}, b"Region: a b, c"),
        ({"shard": -7}, b"Shard: -7"),
        ({"dry": True}, b"Dry: true"),
        ({"dry": False}, b"Dry: false"),
    ],
)
def test_a_mirrored_argument_that_agrees_is_accepted(http: Http, arguments: Message, header: bytes) -> None:
    reached(http, arguments, b"Mcp-Param-" + header)


@requirement("PARAM-09")
@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"region": "us"}, b"Region: eu"),
        ({"region": "us"}, b"Region: US"),
        ({"region": "us"}, b"Region:"),
        ({"shard": 7}, b"Shard: 8"),
        ({"shard": 7}, b"Shard: seven"),
        ({"shard": 7}, b"Shard: 7.5"),
        ({"dry": True}, b"Dry: false"),
        ({"dry": True}, b"Dry: True"),
        ({"dry": True}, b"Dry: 1"),
        ({}, b"Region: us"),
        ({"region": "us"}, b"Region: us\r\nMcp-Param-Region: eu"),
        ({"region": "us"}, b"Region: eu\r\nMcp-Param-Region: us"),
    ],
)
def test_a_mirrored_argument_that_differs_is_refused(http: Http, arguments: Message, header: bytes) -> None:
    refused(http, arguments, b"Mcp-Param-" + header)


@requirement("PARAM-10")
@pytest.mark.parametrize("value", ["us", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", ""])
def test_an_encoded_argument_is_decoded_before_it_is_compared(http: Http, value: str) -> None:
    reached(http, {"region": value}, b"Mcp-Param-Region: " + encoded(value).encode())
    refused(http, {"region": value}, b"Mcp-Param-Region: " + encoded(value + "!").encode())


@requirement("PARAM-10")
@pytest.mark.parametrize(
    "header", [b"=?base64?***?=", b"=?base64?dXM?=", b"=?base64?/w==?=", b"=?BASE64?dXM=?="]
)
def test_an_argument_that_is_badly_encoded_is_refused(http: Http, header: bytes) -> None:
    refused(http, {"region": "us"}, b"Mcp-Param-Region: " + header)


@requirement("PARAM-10")
def test_a_value_that_looks_encoded_is_taken_for_encoded(http: Http) -> None:
    refused(http, {"region": "=?base64?dXM=?="}, b"Mcp-Param-Region: =?base64?dXM=?=")


@requirement("PARAM-11")
def test_no_header_is_expected_for_null() -> None:
    with http_server("nullable") as (client, _):
        reached(client, {"region": None})
        refused(client, {"region": None}, b"Mcp-Param-Region: us")
        reached(client, {"region": "us"}, b"Mcp-Param-Region: us")
        refused(client, {"region": "us"})


@requirement("PARAM-11")
def test_null_for_a_parameter_that_cannot_be_null_does_not_fail_at_the_headers(http: Http) -> None:
    _, answer = with_param(http, {"region": None})
    assert answer.get("error", {}).get("code") != -32020
    assert is_error(answer)


@requirement("PARAM-12")
def test_no_header_is_expected_for_an_argument_that_is_not_given(http: Http) -> None:
    reached(http, {})
    reached(http, {"region": "us"}, b"Mcp-Param-Region: us")


@requirement("PARAM-13")
@pytest.mark.parametrize("arguments", [{"region": "us"}, {"region": ""}, {"shard": 0}, {"dry": False}])
def test_a_given_argument_without_its_header_is_refused(http: Http, arguments: Message) -> None:
    refused(http, arguments)


@requirement("PARAM-14")
@pytest.mark.parametrize(("value", "header"), [(42, b"42.0"), (42.0, b"42"), (0, b"-0")])
def test_integers_are_compared_as_numbers(http: Http, value: float, header: bytes) -> None:
    reached(http, {"shard": value}, b"Mcp-Param-Shard: " + header)
