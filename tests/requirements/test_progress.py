"""Progress and log messages: whose they are, and when they end."""

from typing import Any

import pytest

from .marks import requirement
from .messages import Message, call, listen, request
from .over_http import Http
from .over_stdio import Stdio

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def of(messages: list[Message], method: str) -> list[Message]:
    """The params of the notifications with a method."""
    return [message["params"] for message in messages if message.get("method") == method]


@requirement("PROG-01")
def test_progress_grows_whatever_the_handler_reports(http: Http) -> None:
    messages = http.send(call("steps", _fields={"progressToken": "t"})).messages
    values = [params["progress"] for params in of(messages, "notifications/progress")]
    assert values == sorted(set(values))
    assert values[0] == 1
    assert values[-1] == 3


@requirement("PROG-02")
@pytest.mark.parametrize("token", ["text", "", 7, 0, -1, "7"])
def test_progress_bears_the_token_of_its_request(http: Http, token: Any) -> None:
    reports = of(
        http.send(call("steps", _fields={"progressToken": token})).messages, "notifications/progress"
    )
    assert reports
    assert {(report["progressToken"], type(report["progressToken"])) for report in reports} == {
        (token, type(token))
    }


@requirement("PROG-02")
def test_without_a_token_there_is_no_progress(http: Http, stdio: Stdio) -> None:
    assert len(http.send(call("steps")).messages) == 1
    assert len(stdio.exchange(call("steps", id_="none"))) == 1


@requirement("PROG-02")
def test_two_requests_that_run_together_keep_their_tokens_apart(fresh: Stdio) -> None:
    fresh.send(call("meet", id_=1, me="one", other="two", _fields={"progressToken": "p1"}))
    fresh.send(call("meet", id_=2, me="two", other="one", _fields={"progressToken": 2}))
    seen = fresh.until(1)
    if not any(message.get("id") == 2 for message in seen):
        seen += fresh.until(2)
    reports = of(seen, "notifications/progress")
    assert {(report["progressToken"], report["message"]) for report in reports} == {("p1", "one"), (2, "two")}


@requirement("PROG-03")
def test_progress_stops_with_the_response_over_stdio(fresh: Stdio) -> None:
    fields = {"progressToken": "t", "logLevel": "debug"}
    first = fresh.exchange(call("leave_behind", id_=1, key="k", _fields=fields))
    assert len(of(first, "notifications/progress")) == 1
    later = fresh.exchange(call("release", id_=2, key="k"))
    later += fresh.exchange(request("tools/list", id_=3))
    assert [message.get("method") for message in later] == [None, None]


@requirement("PROG-03")
def test_progress_after_the_response_reaches_no_stream_over_http(http: Http) -> None:
    fields = {"progressToken": "t", "logLevel": "debug"}
    http.send(call("leave_behind", key="k", _fields=fields))
    reply = http.send(call("release", key="k", _fields={"progressToken": "u", "logLevel": "debug"}))
    assert reply.messages == [reply.last]
    assert reply.last["result"]["content"][0]["text"] == "released"


@requirement("LOG-01")
def test_a_server_that_logs_declares_it(http: Http) -> None:
    assert isinstance(http.ask("server/discover")["result"]["capabilities"]["logging"], dict)


@requirement("LOG-02")
def test_a_request_without_a_level_gets_no_log_messages(http: Http, stdio: Stdio) -> None:
    assert http.send(call("talk")).messages[0].get("method") is None
    assert len(stdio.exchange(call("talk", id_="quiet", _fields={"progressToken": 1}))) == 1


@requirement("LOG-02", "STATE-01")
def test_the_level_of_an_earlier_request_is_forgotten(stdio: Stdio) -> None:
    assert len(stdio.exchange(call("talk", id_="loud", _fields={"logLevel": "debug"}))) == 9
    assert len(stdio.exchange(call("talk", id_="quiet"))) == 1


@requirement("LOG-03")
@pytest.mark.parametrize("level", LEVELS)
def test_log_messages_are_at_or_above_the_level_and_precede_the_response(http: Http, level: str) -> None:
    messages = http.send(call("talk", id_=9, _fields={"logLevel": level})).messages
    said = [params["level"] for params in of(messages, "notifications/message")]
    assert said == list(LEVELS[LEVELS.index(level) :])
    assert messages[-1]["id"] == 9


@requirement("LOG-04", "SUB-07")
def test_log_messages_and_progress_do_not_reach_a_listening_stream(http: Http) -> None:
    everything = listen(
        "all",
        toolsListChanged=True,
        promptsListChanged=True,
        resourcesListChanged=True,
        resourceSubscriptions=[],
    )
    with http.stream(everything) as (_, stream):
        next(stream)
        assert len(http.send(call("talk", _fields={"logLevel": "debug"})).messages) == 9
        assert len(http.send(call("steps", _fields={"progressToken": 1})).messages) > 1
        http.send(call("grow", kind="tool", name="after_talk"))
        assert next(stream)["method"] == "notifications/tools/list_changed"


@requirement("LOG-04")
def test_log_messages_of_one_request_do_not_reach_another_that_runs(http: Http) -> None:
    watching = call("meet", me="hears", other="relieves", _fields={"logLevel": "debug"})
    with http.stream(watching) as (_, stream):
        http.send(call("talk", _fields={"logLevel": "debug"}))
        http.send(call("meet", me="relieves", other="hears", _fields={"logLevel": "debug"}))
        *notifications, _ = stream
    assert [params["data"] for params in of(notifications, "notifications/message")] == ["hears"]


@requirement("LOG-05")
@pytest.mark.parametrize("level", ["loud", "", "DEBUG", 3, None, ["debug"]])
def test_an_unknown_level_is_refused(http: Http, level: Any) -> None:
    assert http.send(call("talk", _fields={"logLevel": level})).code == -32602
    assert http.send(request("tools/list", logLevel=level)).code == -32602
