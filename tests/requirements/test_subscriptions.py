"""Listening: what is delivered, to whom, in which order."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from .marks import requirement
from .messages import SUBSCRIPTION, Message, call, listen, request
from .over_http import Http
from .over_stdio import Stdio

ALL = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["memo://watched"],
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = {
    "tool": "notifications/tools/list_changed",
    "prompt": "notifications/prompts/list_changed",
    "resource": "notifications/resources/list_changed",
}
WANTED = {"tool": "toolsListChanged", "prompt": "promptsListChanged", "resource": "resourcesListChanged"}
_numbers = count()


def change(http: Http, kind: str) -> None:
    """Add something that was not there."""
    assert "result" in http.send(call("grow", kind=kind, name=f"grown{next(_numbers)}")).last


def touch(http: Http, uri: str) -> None:
    """Say that a resource changed."""
    assert "result" in http.send(call("touch", uri=uri)).last


def subscription(message: Message) -> Any:
    """The subscription that a message says it belongs to."""
    holder = message.get("result") or message["params"]
    return holder["_meta"][SUBSCRIPTION]


@requirement("SUB-02", "META-08")
@pytest.mark.parametrize("id_", [1, 0, "one", "1"])
def test_the_acknowledgement_comes_first_and_bears_the_id(http: Http, id_: Any) -> None:
    with http.stream(listen(id_, **ALL)) as (response, stream):
        first = next(stream)
        assert response.status_code == 200
    assert first["method"] == ACKNOWLEDGED
    assert (subscription(first), type(subscription(first))) == (id_, type(id_))
    assert first["params"]["notifications"] == ALL


@requirement("SUB-02", "SUB-03")
def test_nothing_precedes_the_acknowledgement_though_much_changes(fresh: Stdio) -> None:
    for number in range(10):
        fresh.send(call("grow", id_=f"before {number}", kind="tool", name=f"before{number}"))
        fresh.send(listen(number, toolsListChanged=True))
        fresh.send(call("grow", id_=f"after {number}", kind="tool", name=f"after{number}"))
    seen = fresh.exchange(request("tools/list", id_="fence"))
    while len([message for message in seen if message.get("method") == ACKNOWLEDGED]) < 10:
        seen.append(fresh.receive())
    for number in range(10):
        own = [m["method"] for m in seen if "method" in m and subscription(m) == number]
        assert own[0] == ACKNOWLEDGED
        assert ACKNOWLEDGED not in own[1:]


@requirement("SUB-04")
def test_what_the_server_does_not_support_is_not_acknowledged(bare: Stdio) -> None:
    bare.send(listen(1, **ALL))
    acknowledged = bare.receive()["params"]["notifications"]
    assert acknowledged == {"toolsListChanged": True}


@requirement("SUB-04")
@pytest.mark.parametrize(
    "wanted", [{}, {"toolsListChanged": True}, {"resourceSubscriptions": ["memo://watched", "memo://bytes"]}]
)
def test_the_acknowledgement_lists_what_was_asked_for_and_no_more(http: Http, wanted: Message) -> None:
    with http.stream(listen(1, **wanted)) as (_, stream):
        assert next(stream)["params"]["notifications"] == wanted


@requirement("SUB-04", "SUB-01")
def test_a_kind_that_is_declined_is_as_good_as_left_out(http: Http) -> None:
    with http.stream(listen(1, toolsListChanged=False, promptsListChanged=True)) as (_, stream):
        assert next(stream)["params"]["notifications"].get("toolsListChanged", False) is False
        change(http, "tool")
        change(http, "prompt")
        assert next(stream)["method"] == CHANGED["prompt"]


@requirement("SUB-04")
def test_what_is_acknowledged_is_what_discovery_declares(http: Http) -> None:
    capabilities = http.ask("server/discover")["result"]["capabilities"]
    for kind in ("tools", "prompts", "resources"):
        assert capabilities[kind]["listChanged"] is True
    assert capabilities["resources"]["subscribe"] is True


@requirement("SUB-01", "META-08", "TOOL-04", "PROMPT-04", "RES-04")
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_only_the_changes_asked_for_are_delivered(http: Http, kind: str) -> None:
    with http.stream(listen("only", **{WANTED[kind]: True})) as (_, stream):
        next(stream)
        for other in sorted(set(CHANGED) - {kind}):
            change(http, other)
        touch(http, "memo://watched")
        change(http, kind)
        delivered = next(stream)
    assert delivered["method"] == CHANGED[kind]
    assert subscription(delivered) == "only"


@requirement("SUB-01", "RES-05", "META-08")
def test_only_the_resources_asked_for_are_watched(http: Http) -> None:
    with http.stream(listen(5, resourceSubscriptions=["memo://watched"])) as (_, stream):
        next(stream)
        for uri in ("memo://bytes", "memo://watched/below", "memo://WATCHED", "memo://watched"):
            touch(http, uri)
        delivered = next(stream)
    assert delivered["method"] == "notifications/resources/updated"
    assert delivered["params"]["uri"] == "memo://watched"
    assert subscription(delivered) == 5


@requirement("SUB-01")
def test_who_asks_for_nothing_is_sent_nothing(fresh: Stdio) -> None:
    fresh.send(listen("nothing"))
    fresh.send(listen("tools", toolsListChanged=True))
    assert {subscription(fresh.receive()), subscription(fresh.receive())} == {"nothing", "tools"}
    fresh.send(call("grow", id_="grow", kind="tool", name="grown"))
    fresh.send(call("touch", id_="touch", uri="memo://watched"))
    seen = [fresh.receive() for _ in range(3)] + fresh.exchange(request("tools/list", id_="fence"))
    assert [subscription(message) for message in seen if "method" in message] == ["tools"]


@requirement("TOOL-04", "PROMPT-04", "RES-04")
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_a_removal_is_a_change_too(http: Http, kind: str) -> None:
    name = f"short_lived_{kind}"
    http.send(call("grow", kind=kind, name=name))
    with http.stream(listen(1, **{WANTED[kind]: True})) as (_, stream):
        next(stream)
        http.send(call("shrink", kind=kind, name=name))
        assert next(stream)["method"] == CHANGED[kind]


@requirement("SUB-05", "META-08")
def test_several_subscriptions_over_http_are_kept_apart(http: Http) -> None:
    with (
        http.stream(listen(1, toolsListChanged=True)) as (_, first),
        http.stream(listen("1", toolsListChanged=True)) as (_, second),
        http.stream(listen(1, promptsListChanged=True)) as (_, third),
    ):
        streams: tuple[tuple[Any, Iterator[Message]], ...] = ((1, first), ("1", second), (1, third))
        for id_, stream in streams:
            assert subscription(next(stream)) == id_
        change(http, "tool")
        change(http, "prompt")
        for kind, (id_, stream) in zip(("tool", "tool", "prompt"), streams, strict=True):
            delivered = next(stream)
            assert (delivered["method"], subscription(delivered)) == (CHANGED[kind], id_)


@requirement("SUB-05", "META-08")
def test_several_subscriptions_over_stdio_are_kept_apart(fresh: Stdio) -> None:
    fresh.send(listen("t", toolsListChanged=True))
    fresh.send(listen("p", promptsListChanged=True))
    fresh.send(listen(7, toolsListChanged=True, promptsListChanged=True))
    assert {subscription(fresh.receive()) for _ in range(3)} == {"t", "p", 7}
    fresh.send(call("grow", id_="grow", kind="tool", name="grown"))
    seen = [fresh.receive() for _ in range(3)] + fresh.exchange(request("tools/list", id_="fence"))
    delivered = [(m["method"], subscription(m)) for m in seen if "method" in m]
    assert sorted(delivered, key=str) == sorted([(CHANGED["tool"], "t"), (CHANGED["tool"], 7)], key=str)


@requirement("SUB-08", "CANCEL-04")
def test_a_cancelled_subscription_delivers_nothing_more_and_the_others_go_on(fresh: Stdio) -> None:
    fresh.send(listen("goes", toolsListChanged=True))
    fresh.send(listen("stays", toolsListChanged=True))
    fresh.receive()
    fresh.receive()
    fresh.notify("notifications/cancelled", {"requestId": "goes"})
    fresh.send(call("grow", id_="grow", kind="tool", name="grown"))
    seen = [fresh.receive(), fresh.receive(), *fresh.exchange(request("tools/list", id_="fence"))]
    assert [subscription(message) for message in seen if "method" in message] == ["stays"]
    assert not any(message.get("id") == "goes" for message in seen)


@requirement("SUB-08")
def test_a_stream_that_the_client_closed_does_not_disturb_the_others(http: Http) -> None:
    with http.stream(listen("stays", toolsListChanged=True)) as (_, stays):
        next(stays)
        with http.stream(listen("goes", toolsListChanged=True)) as (_, goes):
            next(goes)
        change(http, "tool")
        delivered = next(stays)
    assert (delivered["method"], subscription(delivered)) == (CHANGED["tool"], "stays")


@requirement("MSG-08", "SUB-04")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": ["toolsListChanged"]},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "memo://watched"}},
        {"notifications": {"resourceSubscriptions": [7]}},
    ],
)
def test_a_filter_that_is_none_is_refused(http: Http, params: Message) -> None:
    reply = http.send(request("subscriptions/listen", params, id_=8))
    assert reply.code == -32602
    assert reply.last["id"] == 8
