"""Streamable HTTP: the endpoint, what comes back, and what is left of earlier versions."""

import json

import pytest

from .marks import requirement
from .messages import call, listen, request
from .over_http import Http, events, lines, raw
from .shapes import VERSION

CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}}


@requirement("HTTP-01")
def test_the_endpoint_takes_posts_and_other_paths_do_not(http: Http) -> None:
    assert http.send(request("tools/list")).status == 200
    elsewhere = Http(http.url.removesuffix("/mcp") + "/other", http.client)
    assert elsewhere.send(request("tools/list")).status == 404


@requirement("HTTP-02", "HTTP-03")
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "null",
        "",
        "x",
    ],
)
def test_a_foreign_origin_is_forbidden(http: Http, origin: str) -> None:
    reply = http.send(request("tools/list"), origin=origin)
    assert reply.status == 403
    assert all("id" not in message for message in reply.messages)


@requirement("HTTP-02", "HTTP-03")
@pytest.mark.parametrize("verb", ["GET", "DELETE", "POST"])
def test_a_foreign_origin_is_forbidden_before_anything_else_is_looked_at(http: Http, verb: str) -> None:
    status, _ = raw(http, verb.encode() + b" /mcp HTTP/1.1\r\nOrigin: https://evil.example")
    assert status == 403


@requirement("HTTP-02", "HTTP-03")
def test_a_foreign_origin_cannot_listen(http: Http) -> None:
    assert http.send(listen(toolsListChanged=True), origin="https://evil.example").status == 403


@requirement("HTTP-02")
def test_one_s_own_origin_and_none_are_allowed(http: Http) -> None:
    own = http.url.removesuffix("/mcp")
    assert http.send(request("tools/list"), origin=own).status == 200
    assert http.send(request("tools/list")).status == 200


@requirement("HTTP-04", "MSG-12")
def test_an_accepted_notification_gets_202_and_no_body(http: Http) -> None:
    reply = http.send(CANCELLED)
    assert reply.status == 202
    assert reply.body == b""


@requirement("HTTP-04", "HTTP-05", "MSG-12")
@pytest.mark.parametrize("method", ["notifications/no/such", "notifications/initialized", "tools/list"])
def test_an_unknown_notification_is_accepted_or_refused_but_not_answered(http: Http, method: str) -> None:
    reply = http.send({"jsonrpc": "2.0", "method": method, "params": {}})
    assert reply.status == 202 or 400 <= reply.status < 500
    assert reply.status != 202 or reply.body == b""
    assert all("id" not in message for message in reply.messages)


@requirement("HTTP-05")
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "1.0", "method": "notifications/cancelled"}',
        b'{"method": "notifications/cancelled"}',
        b'{"jsonrpc": "2.0", "method": 7}',
        b'{"jsonrpc": "2.0", "params": {}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 7}',
    ],
)
def test_a_notification_that_is_none_gets_an_error_status(http: Http, body: bytes) -> None:
    reply = http.send(body, without=("mcp-method",))
    assert 400 <= reply.status < 500
    assert all("id" not in message for message in reply.messages)


@requirement("HTTP-06")
def test_a_request_is_answered_with_one_json_object_or_with_events(http: Http) -> None:
    for message in (
        call("echo", text="hi"),
        call("no_such_tool"),
        call("steps", _fields={"progressToken": 1}),
    ):
        reply = http.send(message)
        assert reply.kind in {"application/json", "text/event-stream"}
        assert reply.kind == "text/event-stream" or len(reply.messages) == 1


@requirement("HTTP-07", "PROG-02", "LOG-04")
def test_each_stream_carries_the_notifications_of_its_own_request(http: Http) -> None:
    one = call("meet", id_=1, me="one", other="two", _fields={"progressToken": "p1", "logLevel": "debug"})
    two = call("meet", id_=2, me="two", other="one", _fields={"progressToken": "p2", "logLevel": "debug"})
    with http.stream(one) as (_, first), http.stream(two) as (_, second):
        for name, token, stream in (("one", "p1", first), ("two", "p2", second)):
            *notifications, response = stream
            assert {message["method"] for message in notifications} == {
                "notifications/progress",
                "notifications/message",
            }
            for message in notifications:
                params = message["params"]
                assert params.get("progressToken", token) == token
                assert params.get("message", name) == params.get("data", name) == name
            assert response["result"]["content"][0]["text"] == name


@requirement("HTTP-08", "HTTP-09", "HTTP-10", "HTTP-20")
def test_a_stream_ends_with_its_response_and_its_events_have_no_ids(http: Http) -> None:
    with http.stream(call("steps", id_=5, _fields={"progressToken": 1})) as (response, _):
        assert response.headers["x-accel-buffering"] == "no"
        read = list(lines(response.iter_raw()))  # ends when the server ends the stream
    messages = list(events(iter([b"\n".join(read) + b"\n\n"])))
    assert [message.get("id") for message in messages] == [None] * (len(messages) - 1) + [5]
    assert not [line for line in read if line.startswith(b"id:")]


@requirement("HTTP-10", "HTTP-11")
def test_a_silent_listening_stream_is_kept_alive_and_not_buffered(http: Http) -> None:
    with http.stream(listen(toolsListChanged=True)) as (response, _):
        assert response.headers["x-accel-buffering"] == "no"
        assert any(line.startswith(b":") for line in lines(response.iter_raw()))


@requirement("HTTP-12", "HTTP-13", "CANCEL-03")
def test_closing_the_stream_cancels_the_request(http: Http) -> None:
    with http.stream(call("hang", key="closed", _fields={"progressToken": 1})) as (_, messages):
        assert next(messages)["method"] == "notifications/progress"
    assert http.send(call("cancelled", key="closed")).last["result"]["structuredContent"] is True
    assert http.send(call("echo", text="alive")).status == 200


@requirement("HTTP-13")
def test_a_cancelled_request_speaks_on_no_other_stream(http: Http) -> None:
    watching = call("meet", me="watch", other="relieve", _fields={"progressToken": 7, "logLevel": "debug"})
    with http.stream(watching) as (_, watched):
        hanging = call(
            "hang", key="elsewhere", then="talk", _fields={"progressToken": 8, "logLevel": "debug"}
        )
        with http.stream(hanging) as (_, messages):
            next(messages)
        http.send(call("cancelled", key="elsewhere"))
        http.send(call("meet", me="relieve", other="watch"))
        *notifications, _ = watched
    assert {message["params"].get("progressToken", 7) for message in notifications} == {7}
    assert {message["params"].get("data", "watch") for message in notifications} == {"watch"}


@requirement("HTTP-14")
def test_a_version_header_that_differs_from_the_body_is_refused(http: Http) -> None:
    reply = http.send(request("tools/list"), mcp_protocol_version="1900-01-01")
    assert (reply.status, reply.code) == (400, -32020)
    reply = http.send(request("tools/list", protocolVersion="1900-01-01"), mcp_protocol_version=VERSION)
    assert (reply.status, reply.code) == (400, -32020)


@requirement("HTTP-15", "VER-01")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "subscriptions/listen", "no/such"])
def test_an_unsupported_version_gets_400_and_the_supported_ones(http: Http, method: str) -> None:
    reply = http.send(request(method, {"notifications": {}}, protocolVersion="1900-01-01"))
    assert (reply.status, reply.code) == (400, -32022)
    assert reply.last["error"]["data"]["requested"] == "1900-01-01"
    assert VERSION in reply.last["error"]["data"]["supported"]


@requirement("HTTP-16")
@pytest.mark.parametrize("method", ["no/such/method", "ping", "logging/setLevel", "resources/subscribe"])
def test_an_unknown_method_gets_404(http: Http, method: str) -> None:
    reply = http.send(request(method, id_=4))
    assert (reply.status, reply.code) == (404, -32601)
    assert reply.last["id"] == 4


@requirement("HTTP-17")
def test_without_a_version_header_a_request_is_refused(http: Http) -> None:
    reply = http.send(request("tools/list"), without=("mcp-protocol-version",))
    assert (reply.status, reply.code) == (400, -32020)


@requirement("HTTP-18")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_get_and_delete_are_not_allowed(http: Http, verb: str) -> None:
    response = http.client.request(verb, http.url, headers={"accept": "text/event-stream"})
    assert response.status_code == 405


@requirement("HTTP-19")
def test_sessions_are_neither_minded_nor_made(http: Http) -> None:
    reply = http.send(call("echo", text="hi"), mcp_session_id="0123")
    assert reply.status == 200
    assert "mcp-session-id" not in reply.headers
    assert "mcp-session-id" not in http.send(request("server/discover")).headers


@requirement("HTTP-20")
def test_a_wish_to_resume_is_not_minded(http: Http) -> None:
    reply = http.send(call("steps", id_=6, _fields={"progressToken": 1}), last_event_id="17")
    assert reply.status == 200
    assert [message["params"]["progress"] for message in reply.messages[:-1]] == [1, 2, 3]


@requirement("TRANS-01")
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_travels_as_utf_8_over_http(http: Http, ascii_only: bool) -> None:
    text = "zażółć 工具 🏃\u2028\x7f"
    body = json.dumps(call("echo", text=text), ensure_ascii=ascii_only).encode("utf-8")
    reply = http.send(body, mcp_method="tools/call", mcp_name="echo")
    assert json.loads(reply.body.decode("utf-8"))["result"]["content"][0]["text"] == text


@requirement("TRANS-01")
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-32"])
def test_a_body_that_is_not_utf_8_is_refused(http: Http, encoding: str) -> None:
    body = json.dumps(call("echo", text="ä"), ensure_ascii=False).encode(encoding)
    reply = http.send(body, mcp_method="tools/call", mcp_name="echo")
    assert (reply.status, reply.code) == (400, -32700)
