"""stdio: one message a line, nothing else, and an end when the client ends it."""

import json

import pytest

from .marks import requirement
from .messages import call, listen, request
from .over_stdio import Stdio
from .processes import PATIENCE
from .shapes import check

TRICKY = "one\ntwo\r\nthree\rfour\u2028five\u2029six\x85seven\x0b\x0c\x1c\x00\u0130 🏃"


@requirement("STDIO-01", "TRANS-01")
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_with_line_breaks_travels_in_one_line_of_utf_8(stdio: Stdio, ascii_only: bool) -> None:
    message = call("echo", id_="tricky", text=TRICKY)
    stdio.send(json.dumps(message, ensure_ascii=ascii_only).encode("utf-8") + b"\n")
    line = stdio.line()
    assert line is not None
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    answer = check(json.loads(line.decode("utf-8")))
    assert answer["result"]["content"][0]["text"] == TRICKY


@requirement("STDIO-01")
def test_line_breaks_in_an_id_or_an_error_do_not_break_the_line(stdio: Stdio) -> None:
    answer = stdio.exchange(call("no\nsuch\ntool", id_="a\nb"))[-1]
    assert (answer["id"], answer["error"]["code"]) == ("a\nb", -32602)


@requirement("TRANS-01")
def test_a_line_that_is_not_utf_8_is_refused(fresh: Stdio) -> None:
    fresh.send(json.dumps(call("echo", text="ä"), ensure_ascii=False).encode("latin-1") + b"\n")
    assert fresh.receive()["error"]["code"] == -32700
    assert "result" in fresh.ask("tools/list")


@requirement("STDIO-02")
@pytest.mark.parametrize("how", ["print", "child"])
def test_what_a_handler_prints_does_not_reach_stdout(fresh: Stdio, how: str) -> None:
    messages = fresh.exchange(call("noise", id_=1, how=how))
    assert [message["result"]["content"][0]["text"] for message in messages] == ["quiet"]
    fresh.hang_up()
    assert fresh.rest() == []


@requirement("STDIO-02")
def test_a_server_that_nobody_talks_to_writes_nothing(fresh: Stdio) -> None:
    fresh.hang_up()
    assert fresh.rest() == []


@requirement("STDIO-02")
def test_a_handler_that_breaks_leaves_nothing_on_stdout_but_its_response(fresh: Stdio) -> None:
    fresh.send(call("crash", id_=1))
    fresh.send(request("prompts/get", {"name": "broken"}, id_=2))
    fresh.hang_up()
    assert {message["id"] for message in fresh.rest()} == {1, 2}


@requirement("STDIO-03", "PAT-01", "CANCEL-02")
def test_the_server_writes_responses_and_known_notifications_only(fresh: Stdio) -> None:
    able = {"clientCapabilities": {"sampling": {}, "elicitation": {}, "roots": {}}, "logLevel": "debug"}
    fresh.send(listen("stream", toolsListChanged=True))
    for number, tool in enumerate(("steps", "talk", "sampler", "crash", "refuse")):
        fresh.send(call(tool, id_=number, _fields={**able, "progressToken": number}))
    fresh.send(call("grow", id_="grow", kind="tool", name="grown"))
    expected = {0, 1, 2, 3, 4, "grow"}
    while expected:
        message = fresh.receive()  # every message is checked: a request would fail here
        assert message.get("method") != "notifications/cancelled"
        expected.discard(message.get("id"))


@requirement("TRANS-02")
def test_requests_go_on_while_another_one_runs(fresh: Stdio) -> None:
    fresh.send(call("hang", id_="slow", key="slow"))
    assert fresh.exchange(call("echo", id_="quick", text="hi"))[-1]["id"] == "quick"


@requirement("TRANS-02", "MSG-03")
def test_several_requests_in_one_write_are_all_answered(fresh: Stdio) -> None:
    many = [call("echo", id_=number, text=str(number)) for number in range(50)]
    fresh.send(b"".join(json.dumps(message).encode() + b"\n" for message in many))
    answers = [fresh.receive() for _ in many]
    assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == {
        number: str(number) for number in range(50)
    }


@requirement("STDIO-05")
def test_the_server_ends_when_stdin_ends(fresh: Stdio) -> None:
    assert "result" in fresh.ask("tools/list")
    fresh.hang_up()
    assert fresh.process.wait(PATIENCE) == 0


@requirement("STDIO-05")
def test_the_server_ends_when_stdin_ends_though_a_call_hangs_and_a_stream_is_open(fresh: Stdio) -> None:
    fresh.send(listen("stream", toolsListChanged=True))
    fresh.send(call("hang", id_="slow", key="slow", _fields={"progressToken": 1}))
    fresh.receive()
    fresh.receive()
    fresh.hang_up()
    assert fresh.process.wait(PATIENCE) == 0


@requirement("STDIO-05", "STDIO-02")
def test_half_a_message_at_the_end_does_no_harm(fresh: Stdio) -> None:
    fresh.send(b'{"jsonrpc": "2.0", "id"')
    fresh.hang_up()
    assert all("error" in message for message in fresh.rest())
    assert fresh.process.wait(PATIENCE) == 0
