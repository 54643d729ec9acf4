"""Requests, responses, notifications: what the base protocol lays down for each."""

import asyncio
import json
from typing import Any

import pytest

from ekiden import ProtocolError, Server

from .marks import requirement
from .messages import Message, call, listen, mirrored, request
from .over_http import Http
from .over_stdio import Stdio
from .processes import slowed_down
from .shapes import CODES

ALL_METHODS = (
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/call", {"name": "echo", "arguments": {"text": "hi"}}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "memo://watched"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "p"}},
    ),
)

# Every way to go wrong that needs no help from a handler, and the code it leads to. First bytes that hold
# no id that could be read, then messages that do.
NO_MESSAGES: tuple[tuple[bytes, int], ...] = (
    (b"{\n", -32700),
    (b"\xff\xfe\n", -32700),
    (b'"tools/list"\n', -32600),
    (b"[]\n", -32600),
    (b"7\n", -32600),
    (b'{"jsonrpc": "2.0"}\n', -32600),
)
MISTAKES: tuple[tuple[Message, int], ...] = (
    ({"jsonrpc": "2.0"}, -32600),
    ({"method": "tools/list"}, -32600),
    ({"jsonrpc": "1.0", "method": "tools/list"}, -32600),
    ({"jsonrpc": "2.0", "method": 7}, -32600),
    ({"jsonrpc": "2.0", "method": "tools/list", "params": 7}, -32600),
    (request("no/such/method"), -32601),
    (request("ping"), -32601),
    (request("logging/setLevel", {"level": "info"}), -32601),
    (request("resources/subscribe", {"uri": "memo://watched"}), -32601),
    (call("no_such_tool"), -32602),
    (request("prompts/get", {"name": "no_such_prompt"}), -32602),
    (request("prompts/get", {"name": "broken"}), -32603),
    (request("resources/read", {"uri": "memo://no/such"}), -32602),
    (request("resources/read", {"uri": "memo://broken"}), -32603),
    (request("tools/list", {"cursor": "no such cursor"}), -32602),
    (request("subscriptions/listen", {}), -32602),
    (request("tools/list", protocolVersion="1900-01-01"), -32022),
    (call("sampler"), -32021),
)


@requirement("MSG-01", "MSG-04", "MSG-05")
@pytest.mark.parametrize(("method", "params"), ALL_METHODS)
def test_every_method_is_answered_with_a_typed_result(http: Http, method: str, params: Message) -> None:
    reply = http.send(request(method, params))
    assert reply.status == 200
    assert reply.last["result"]["resultType"] == "complete"


@requirement("MSG-14", "TRANS-02")
def test_stdio_serves_the_same_methods(stdio: Stdio) -> None:
    for number, (method, params) in enumerate(ALL_METHODS):
        answer = stdio.exchange(request(method, params, id_=number))[-1]
        assert answer["result"]["resultType"] == "complete", method


@requirement("MSG-14", "VER-02")
def test_a_server_with_one_tool_still_speaks_the_whole_base_protocol(bare: Stdio) -> None:
    assert "result" in bare.ask("server/discover")
    assert bare.ask("tools/list", protocolVersion="1900-01-01")["error"]["code"] == -32022
    bare.send(listen("stream", toolsListChanged=True))
    assert bare.receive()["method"] == "notifications/subscriptions/acknowledged"


@requirement("MSG-03")
@pytest.mark.parametrize("id_", [0, 1, -5, 2**53 - 1, "1", "", "ünïcode", "a" * 300])
def test_a_result_bears_the_id_of_its_request(http: Http, id_: Any) -> None:
    answer = http.send(request("tools/list", id_=id_)).last
    assert (answer["id"], type(answer["id"])) == (id_, type(id_))


@requirement("MSG-02", "MSG-03")
def test_an_id_can_be_used_again_as_soon_as_it_was_answered(fresh: Stdio) -> None:
    fresh.exchange(call("echo", text="up"))
    with slowed_down(fresh.process.pid):
        for number in range(500):
            answer = fresh.exchange(call("echo", id_="again", text="hi"))[-1]
            assert "result" in answer, (number, answer)


@requirement("MSG-02")
@pytest.mark.parametrize("id_", [None, 1.5, True, [1], {"n": 1}])
def test_an_id_that_is_neither_string_nor_integer_is_refused(http: Http, id_: Any) -> None:
    reply = http.send(request("tools/list", id_=id_))
    assert reply.status == 400
    assert reply.code == -32600


@requirement("MSG-06", "MSG-07", "MSG-08", "MSG-11")
@pytest.mark.parametrize(("message", "code"), MISTAKES)
def test_every_mistake_over_stdio_gets_its_code_and_its_id(stdio: Stdio, message: Message, code: int) -> None:
    own = f"mistake {MISTAKES.index((message, code))}"
    stdio.send({**message, "id": own})
    answer = stdio.receive()
    assert answer["error"]["code"] == code
    assert answer.get("id") == own


@requirement("MSG-06", "MSG-08")
@pytest.mark.parametrize(("message", "code"), MISTAKES)
def test_every_mistake_over_http_gets_its_code_and_its_id(http: Http, message: Message, code: int) -> None:
    method = message.get("method")
    headers = mirrored(message) if isinstance(method, str) else mirrored(request("tools/list"))
    response = http.client.post(http.url, headers=headers, json={**message, "id": 7})
    assert response.json()["error"]["code"] == code
    assert response.json().get("id") == 7


@requirement("MSG-06", "MSG-08")
@pytest.mark.parametrize(("line", "code"), NO_MESSAGES)
def test_a_line_that_is_no_message_gets_an_error_without_id(stdio: Stdio, line: bytes, code: int) -> None:
    stdio.send(line)
    answer = stdio.receive()
    assert answer["error"]["code"] == code
    assert "id" not in answer


@requirement("MSG-06", "MSG-08")
@pytest.mark.parametrize(("body", "code"), [*NO_MESSAGES, (b"", -32700)])
def test_a_body_that_is_no_message_gets_an_error_without_id(http: Http, body: bytes, code: int) -> None:
    reply = http.send(body)
    assert reply.status == 400
    assert reply.code == code
    assert "id" not in reply.last


@requirement("MSG-08")
def test_a_batch_is_refused(http: Http) -> None:
    reply = http.send(json.dumps([request("tools/list")]).encode())
    assert reply.status == 400
    assert reply.code == -32600


@requirement("MSG-09", "MSG-10", "MSG-11")
def test_no_mistake_leads_to_a_code_that_nobody_defined(fresh: Stdio) -> None:
    for mistake, _ in (*MISTAKES, *NO_MESSAGES):
        fresh.send(mistake if isinstance(mistake, bytes) else {"id": "x", **mistake})
        assert fresh.receive()["error"]["code"] in CODES, mistake


@requirement("MSG-09", "MSG-10")
@pytest.mark.parametrize("code", [-32023, -32050, -32099, -32002, -32042])
async def test_a_handler_cannot_send_a_code_that_the_specification_keeps(code: int) -> None:
    server = Server("codes")

    @server.tool
    def misuse() -> str:
        raise ProtocolError("mine", code=code)

    async with server.connect() as channel:
        await channel.send(call("misuse"))
        answer = await asyncio.wait_for(channel.receive(), 5)
    assert answer.get("error", {}).get("code") != code


@requirement("MSG-12", "MSG-13")
def test_notifications_are_not_answered(fresh: Stdio) -> None:
    fresh.notify("notifications/cancelled", {"requestId": "nobody"})
    fresh.notify("notifications/initialized")
    fresh.notify("notifications/no/such")
    fresh.notify("tools/list", {})
    fresh.notify("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
    assert [message["id"] for message in fresh.exchange(request("tools/list", id_="fence"))] == ["fence"]


@requirement("MSG-13", "PAT-01", "HTTP-08")
def test_what_precedes_a_response_are_notifications_without_id(http: Http) -> None:
    messages = http.send(call("steps", id_=3, _fields={"progressToken": "t", "logLevel": "debug"})).messages
    assert len(messages) > 1
    assert all("id" not in message and "method" in message for message in messages[:-1])
    assert messages[-1]["id"] == 3
