import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.errors import EnvelopeError, InvalidParams, InvalidRequest, ParseError, ProtocolError
from ekiden.wire.jsonrpc import error_response, notification, parse, result_response


def spelled(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "m", **fields}).encode()


@pytest.mark.parametrize("request_id", [0, 7, -1, 2**53, "7", "", "ü" * 300])
def test_a_request_keeps_its_id_as_it_was_sent(request_id: int | str) -> None:
    message = parse(spelled(id=request_id, params={"a": 1}))
    assert (message.id, message.method, message.params) == (request_id, "m", {"a": 1})
    assert type(message.id) is type(request_id)


def test_a_message_without_id_is_a_notification() -> None:
    message = parse(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    assert message.id is None


def test_params_may_be_absent() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params == {}


def test_unknown_members_of_the_envelope_are_ignored() -> None:
    assert parse(spelled(extra=1)).method == "m"


@pytest.mark.parametrize("request_id", [None, 1.5, 1.0, True, [], {}])
def test_an_id_that_is_no_string_or_integer_is_an_invalid_request_without_id(request_id: Any) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(spelled(id=request_id))
    assert caught.value.code == -32600
    assert caught.value.request_id is None


def test_an_id_has_at_most_a_thousand_characters() -> None:
    assert parse(spelled(id="x" * 1000)).id == "x" * 1000
    with pytest.raises(EnvelopeError, match="at most 1,000 characters") as caught:
        parse(spelled(id="x" * 1001))
    assert (caught.value.code, caught.value.request_id) == (-32600, None)


@pytest.mark.parametrize("version", ["1.0", 2.0, 2, None, "2.00", True, ["2.0"]])
def test_another_json_rpc_version_is_an_invalid_request_that_names_the_id(version: Any) -> None:
    with pytest.raises(EnvelopeError, match="jsonrpc") as caught:
        parse(spelled(jsonrpc=version))
    assert (caught.value.code, caught.value.request_id) == (-32600, 7)


def test_a_missing_json_rpc_version_is_an_invalid_request_that_names_the_id() -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(b'{"id":"x","method":"m"}')
    assert (caught.value.code, caught.value.request_id) == (-32600, "x")


@pytest.mark.parametrize("method", [None, 1, True, ["m"], {}])
def test_a_method_that_is_no_string_is_an_invalid_request_that_names_the_id(method: Any) -> None:
    with pytest.raises(EnvelopeError, match="`method` must be a string") as caught:
        parse(spelled(method=method))
    assert (caught.value.code, caught.value.request_id) == (-32600, 7)


@pytest.mark.parametrize("outcome", [{"result": {}}, {"error": {"code": 1, "message": ""}}])
def test_a_response_is_refused_because_clients_do_not_send_them(outcome: dict[str, Any]) -> None:
    with pytest.raises(EnvelopeError, match="not responses") as caught:
        parse(json.dumps({"jsonrpc": "2.0", "id": 7, **outcome}).encode())
    assert (caught.value.code, caught.value.request_id) == (-32600, 7)


@pytest.mark.parametrize("params", [None, [], ["a"], "a", 1, False])
def test_params_that_are_no_object_are_an_invalid_request_that_names_the_id(params: Any) -> None:
    with pytest.raises(EnvelopeError, match="`params` must be an object") as caught:
        parse(spelled(params=params))
    assert (caught.value.code, caught.value.request_id) == (-32600, 7)


@pytest.mark.parametrize("body", [b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"m"}]'])
def test_a_batch_is_an_invalid_request_that_says_so(body: bytes) -> None:
    with pytest.raises(EnvelopeError, match="a batch") as caught:
        parse(body)
    assert (caught.value.code, caught.value.request_id) == (-32600, None)


@pytest.mark.parametrize("body", [b"null", b"1", b'"a"', b"true"])
def test_a_value_that_is_no_object_is_an_invalid_request(body: bytes) -> None:
    with pytest.raises(EnvelopeError, match="not a JSON object") as caught:
        parse(body)
    assert (caught.value.code, caught.value.request_id) == (-32600, None)


def test_bytes_that_are_no_json_are_a_parse_error() -> None:
    with pytest.raises(ParseError) as caught:
        parse(b'{"jsonrpc":"2.0",')
    assert caught.value.code == -32700


def test_a_broken_notification_has_no_id_to_name() -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse(b'{"jsonrpc":"2.0","method":1}')
    assert caught.value.request_id is None


members = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
    st.sampled_from([None, "2.0", "m", 1, 1.5, True, [], {}, {"_meta": {}}]),
)


@given(members)
def test_any_envelope_is_a_message_or_an_envelope_error(envelope: dict[str, Any]) -> None:
    data = json.dumps(envelope).encode()
    try:
        message = parse(data)
    except EnvelopeError as error:
        readable = type(envelope.get("id")) in (int, str)
        refused = (error.code, error.request_id)
        expected = (-32600, envelope["id"] if readable else None)
    else:
        refused = expected = None
        assert (envelope["jsonrpc"], message.id) == ("2.0", envelope.get("id"))
    assert refused == expected


def test_a_result_response_carries_the_bytes_of_the_result() -> None:
    assert result_response('a"b', b'{"x":1}') == b'{"jsonrpc":"2.0","id":"a\\"b","result":{"x":1}}'


def test_an_error_response_carries_code_message_and_data() -> None:
    response = json.loads(error_response(3, InvalidParams("no such", data={"uri": "a:b"})))
    expected = {"code": -32602, "message": "no such", "data": {"uri": "a:b"}}
    assert response == {"jsonrpc": "2.0", "id": 3, "error": expected}


def test_an_error_response_leaves_out_what_it_does_not_have() -> None:
    response = json.loads(error_response(None, InvalidRequest("bad")))
    assert response == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "bad"}}


def test_the_id_zero_is_an_id() -> None:
    assert json.loads(error_response(0, InvalidRequest("bad")))["id"] == 0


def test_an_author_may_choose_the_code_of_an_error() -> None:
    assert json.loads(error_response(1, ProtocolError("odd", code=42)))["error"]["code"] == 42


def test_a_notification_has_no_id() -> None:
    assert json.loads(notification("n", {"a": 1})) == {"jsonrpc": "2.0", "method": "n", "params": {"a": 1}}
