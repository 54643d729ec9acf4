"""Headers that mirror the body: `Mcp-Method` and `Mcp-Name`."""

import json

import pytest

from .marks import requirement
from .messages import Message, call, encoded, listen, request
from .over_http import Http, head, raw
from .shapes import check

READ = request("resources/read", {"uri": "memo://watched"})
GET = request("prompts/get", {"name": "review", "arguments": {"code": "x"}})
CALL = call("echo", text="hi")
ODD = request("prompts/get", {"name": "naïve 工具"})


def refused(http: Http, message: Message, *more: bytes, without: tuple[str, ...] = ()) -> None:
    """Assert that a message with such headers fails at its headers."""
    status, body = raw(http, head(message, *more, without=without), message)
    answer = check(json.loads(body))
    assert (status, answer["error"]["code"]) == (400, -32020), answer
    assert answer["id"] == message["id"]


def accepted(http: Http, message: Message, *more: bytes, without: tuple[str, ...] = ()) -> None:
    """Assert that a message with such headers is served."""
    status, body = raw(http, head(message, *more, without=without), message)
    assert (status, "result" in json.loads(body)) == (200, True), body


@requirement("HEAD-01", "HEAD-07")
@pytest.mark.parametrize(
    "message", [CALL, READ, GET, request("server/discover"), listen(), request("no/such")]
)
def test_a_missing_method_header_is_refused(http: Http, message: Message) -> None:
    refused(http, message, without=("mcp-method",))


@requirement("HEAD-02", "HEAD-07")
@pytest.mark.parametrize("message", [CALL, READ, GET])
def test_a_missing_name_header_is_refused(http: Http, message: Message) -> None:
    refused(http, message, without=("mcp-name",))


@requirement("HEAD-02")
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "server/discover"])
def test_other_methods_need_no_name_header(http: Http, method: str) -> None:
    accepted(http, request(method))


@requirement("HEAD-03", "HEAD-07")
@pytest.mark.parametrize(
    "method", [b"tools/list", b"prompts/get", b"", b"tools/call x", b"tools/call,tools/call"]
)
def test_a_mirrored_method_that_differs_is_refused(http: Http, method: bytes) -> None:
    refused(http, CALL, b"Mcp-Method: " + method, without=("mcp-method",))


@requirement("HEAD-03", "HEAD-07")
@pytest.mark.parametrize("message", [CALL, READ, GET])
@pytest.mark.parametrize("name", [b"other", b"", b"echo x", b"*"])
def test_a_mirrored_name_that_differs_is_refused(http: Http, message: Message, name: bytes) -> None:
    refused(http, message, b"Mcp-Name: " + name, without=("mcp-name",))


TWICE = (
    (b"Mcp-Name: other", b"Mcp-Name: echo"),
    (b"Mcp-Name: echo", b"Mcp-Name: other"),
    (b"Mcp-Method: tools/list", b"Mcp-Method: tools/call"),
    (b"Mcp-Method: tools/call", b"Mcp-Method: tools/list"),
    (b"Mcp-Protocol-Version: 1900-01-01", b"Mcp-Protocol-Version: 2026-07-28"),
)


def sent_twice(http: Http, *pair: bytes) -> tuple[int, Message]:
    """Send one of the headers twice, with values that differ."""
    name = pair[0].partition(b":")[0].decode().lower()
    status, body = raw(http, head(CALL, *pair, without=(name,)), CALL)
    return status, check(json.loads(body))


@requirement("HEAD-03", "HEAD-07")
@pytest.mark.parametrize("pair", TWICE)
def test_a_header_that_is_sent_twice_and_differs_once_is_refused(
    http: Http, pair: tuple[bytes, bytes]
) -> None:
    status, answer = sent_twice(http, *pair)
    assert (status, answer["error"]["code"]) == (400, -32020)


@requirement("MSG-06")
@pytest.mark.parametrize("pair", TWICE)
def test_the_error_for_a_header_sent_twice_bears_the_id(http: Http, pair: tuple[bytes, bytes]) -> None:
    assert sent_twice(http, *pair)[1].get("id") == CALL["id"]


@requirement("HEAD-04")
@pytest.mark.parametrize("message", [CALL, READ, GET, ODD])
def test_an_encoded_name_is_decoded_before_it_is_compared(http: Http, message: Message) -> None:
    name = message["params"].get("name") or message["params"]["uri"]
    accepted(http, message, b"Mcp-Name: " + encoded(name).encode(), without=("mcp-name",))


@requirement("HEAD-04")
@pytest.mark.parametrize("message", [CALL, READ, GET, ODD])
def test_an_encoded_name_that_differs_is_refused(http: Http, message: Message) -> None:
    refused(http, message, b"Mcp-Name: " + encoded("other").encode(), without=("mcp-name",))


@requirement("HEAD-04", "HEAD-07")
@pytest.mark.parametrize(
    "value", [b"=?base64?***?=", b"=?base64?ZWNobw?=", b"=?base64?/w==?=", b"=?base64??="]
)
def test_a_name_that_is_badly_encoded_is_refused(http: Http, value: bytes) -> None:
    refused(http, CALL, b"Mcp-Name: " + value, without=("mcp-name",))


@requirement("HEAD-05")
@pytest.mark.parametrize(
    "value", [b"=?BASE64?ZWNobw==?=", b"=?Base64?ZWNobw==?=", b"=?base64?ZWNobw==", b"ZWNobw=="]
)
def test_markers_that_are_not_exactly_the_markers_do_not_count(http: Http, value: bytes) -> None:
    refused(http, CALL, b"Mcp-Name: " + value, without=("mcp-name",))


@requirement("HEAD-06")
@pytest.mark.parametrize("shape", [bytes.upper, bytes.lower, bytes.title])
def test_the_case_of_header_names_does_not_matter(http: Http, shape: object) -> None:
    assert callable(shape)
    pairs = (b"mcp-protocol-version: 2026-07-28", b"mcp-method: tools/call", b"mcp-name: echo")
    more = [shape(name) + b":" + value for name, _, value in (pair.partition(b":") for pair in pairs)]
    accepted(http, CALL, *more, without=("mcp-protocol-version", "mcp-method", "mcp-name"))


@requirement("HEAD-06")
def test_the_case_of_header_values_does_matter(http: Http) -> None:
    refused(http, CALL, b"Mcp-Method: Tools/Call", without=("mcp-method",))
    refused(http, CALL, b"Mcp-Name: Echo", without=("mcp-name",))


@requirement("HEAD-08", "HEAD-07")
@pytest.mark.parametrize("value", ["naïve 工具".encode(), b"na\xefve", b"\x80"])
def test_a_name_header_beyond_ascii_is_refused(http: Http, value: bytes) -> None:
    refused(http, ODD, b"Mcp-Name: " + value, without=("mcp-name",))


@requirement("HEAD-08")
@pytest.mark.parametrize("value", [b"ec\x01ho", b"ec\x00ho", b"echo\x7f"])
def test_a_name_header_with_control_characters_is_refused(http: Http, value: bytes) -> None:
    status, _ = raw(http, head(CALL, b"Mcp-Name: " + value, without=("mcp-name",)), CALL)
    assert status == 400
