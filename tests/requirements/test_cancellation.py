"""Cancellation over stdio: what was cancelled falls silent, and nothing else is disturbed."""

from typing import Any

import pytest

from .marks import requirement
from .messages import call, request
from .over_http import Http
from .over_stdio import Stdio


def start(client: Stdio, id_: Any, key: str, then: str = "stop") -> None:
    """Start a call that hangs, and wait until it runs."""
    fields = {"progressToken": f"token {id_}", "logLevel": "debug"}
    client.send(call("hang", id_=id_, key=key, then=then, _fields=fields))
    assert client.receive()["method"] == "notifications/progress"


def after_cancelling(client: Stdio, id_: Any, then: str) -> list[Any]:
    """Cancel a call that hangs; the ids of all that is written from then on."""
    start(client, id_, "k", then)
    client.notify("notifications/cancelled", {"requestId": id_, "reason": "enough"})
    seen = client.exchange(call("cancelled", id_="seen", key="k"))
    seen += client.exchange(request("tools/list", id_="fence"))
    client.hang_up()
    return [message.get("id", message.get("method")) for message in seen + client.rest()]


@requirement("STDIO-04", "CANCEL-04", "CANCEL-02")
@pytest.mark.parametrize("id_", [1, "one"])
def test_a_cancelled_call_stops_and_is_not_answered(fresh: Stdio, id_: Any) -> None:
    assert after_cancelling(fresh, id_, "stop") == ["seen", "fence"]


@requirement("STDIO-04")
def test_a_cancelled_call_that_goes_on_talking_is_not_heard(fresh: Stdio) -> None:
    assert after_cancelling(fresh, 1, "talk") == ["seen", "fence"]


@requirement("STDIO-04", "CANCEL-04")
@pytest.mark.parametrize("then", ["return", "talk and return"])
def test_a_cancelled_call_that_returns_all_the_same_is_not_answered(fresh: Stdio, then: str) -> None:
    assert 1 not in after_cancelling(fresh, 1, then)


@requirement("CANCEL-04")
def test_only_the_named_call_is_cancelled(fresh: Stdio) -> None:
    start(fresh, 1, "stays")
    start(fresh, 2, "goes")
    start(fresh, "2", "stays too")
    fresh.notify("notifications/cancelled", {"requestId": 2})
    fresh.exchange(call("cancelled", id_="seen", key="goes"))
    for key, id_ in (("stays", 1), ("stays too", "2")):
        fresh.send(call("free", id_=f"free {id_}", key=key))
        assert fresh.until(id_)[-1]["result"]["content"][0]["text"] == "went"


@requirement("CANCEL-05", "CANCEL-06")
def test_a_cancellation_that_comes_too_late_does_no_harm(fresh: Stdio) -> None:
    fresh.exchange(call("echo", id_=1, text="done"))
    fresh.notify("notifications/cancelled", {"requestId": 1})
    assert [message["id"] for message in fresh.exchange(call("echo", id_=2, text="next"))] == [2]
    assert fresh.exchange(call("echo", id_=1, text="the id again"))[-1]["id"] == 1


@requirement("CANCEL-05")
def test_cancellations_that_race_with_responses_do_no_harm(fresh: Stdio) -> None:
    for number in range(30):
        fresh.send(call("echo", id_=number, text="race"))
        fresh.notify("notifications/cancelled", {"requestId": number})
    seen = fresh.exchange(request("tools/list", id_="fence"))
    answered = [message["id"] for message in seen]
    assert len(answered) == len(set(answered))
    assert set(answered) <= {*range(30), "fence"}


@requirement("CANCEL-05")
def test_a_call_can_be_cancelled_twice(fresh: Stdio) -> None:
    start(fresh, 1, "k")
    fresh.notify("notifications/cancelled", {"requestId": 1})
    fresh.notify("notifications/cancelled", {"requestId": 1})
    assert fresh.exchange(call("cancelled", id_=2, key="k"))[-1]["result"]["structuredContent"] is True


@requirement("CANCEL-06", "MSG-12")
@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": [1]}, {"requestId": 99}, {"requestId": 1.5}, []]
)
def test_a_cancellation_that_makes_no_sense_is_ignored(stdio: Stdio, params: Any) -> None:
    stdio.notify("notifications/cancelled", params)
    assert [message["id"] for message in stdio.exchange(request("tools/list", id_="fence"))] == ["fence"]


@requirement("CANCEL-06")
def test_over_http_a_cancellation_by_notification_reaches_nobody_else_s_request(http: Http) -> None:
    with http.stream(call("hang", id_=1, key="mine", _fields={"progressToken": 1})) as (_, stream):
        next(stream)
        stranger = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        http.send(stranger)
        http.send(call("free", key="mine"))
        assert next(stream)["result"]["content"][0]["text"] == "went"
