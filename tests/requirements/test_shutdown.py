"""The server goes: what those are told who still listen or wait."""

import signal
from contextlib import ExitStack

import pytest

from .marks import requirement
from .messages import SUBSCRIPTION, Message, call, listen
from .over_http import http_server
from .over_stdio import Stdio
from .processes import PATIENCE


def results(messages: list[Message], id_: object) -> list[Message]:
    """The responses to a request."""
    return [message for message in messages if "method" not in message and message.get("id") == id_]


def cancellations(messages: list[Message]) -> list[object]:
    """The ids of the requests that the server says it cancelled."""
    found = [message for message in messages if message.get("method") == "notifications/cancelled"]
    return [message["params"]["requestId"] for message in found]


@pytest.fixture(scope="module")
def http_farewell() -> list[Message]:
    """All that a listening stream carries from the moment the server is told to end."""
    with (
        http_server() as (client, process),
        client.stream(listen("stream", toolsListChanged=True)) as (_, stream),
    ):
        next(stream)
        process.terminate()
        try:
            return list(stream)
        finally:
            process.wait(PATIENCE)


def stdio_farewell(client: Stdio, id_: object, how: str) -> list[Message]:
    """All that a server writes that is told to end while somebody listens."""
    client.send(listen(id_, toolsListChanged=True))
    client.receive()
    if how == "interrupted":
        client.process.send_signal(signal.SIGINT)
    else:
        client.hang_up()
    return client.rest()


@requirement("SUB-06")
def test_a_listening_http_client_gets_a_result_before_the_stream_closes(http_farewell: list[Message]) -> None:
    last = http_farewell[-1]
    assert last["id"] == "stream"
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][SUBSCRIPTION] == "stream"


def test_over_http_the_result_is_the_only_farewell(http_farewell: list[Message]) -> None:
    assert cancellations(http_farewell) == []


@requirement("SUB-06")
@pytest.mark.parametrize(("id_", "how"), [(3, "interrupted"), ("three", "hung up")])
def test_a_listening_stdio_client_gets_a_result_before_the_server_ends(
    fresh: Stdio, id_: object, how: str
) -> None:
    (response,) = results(stdio_farewell(fresh, id_, how), id_)
    assert response["result"]["resultType"] == "complete"
    assert response["result"]["_meta"][SUBSCRIPTION] == id_


@requirement("CANCEL-01", "META-08")
@pytest.mark.parametrize(("id_", "how"), [(3, "interrupted"), ("three", "hung up")])
def test_a_listening_stdio_client_is_told_that_its_subscription_was_cancelled(
    fresh: Stdio, id_: object, how: str
) -> None:
    messages = stdio_farewell(fresh, id_, how)
    assert cancellations(messages) == [id_]
    assert all(m["params"]["_meta"][SUBSCRIPTION] == id_ for m in messages if "method" in m)


@requirement("CANCEL-02")
def test_a_call_that_a_going_server_gives_up_is_not_announced_as_cancelled(fresh: Stdio) -> None:
    fresh.send(call("hang", id_="slow", key="k", _fields={"progressToken": 1}))
    fresh.receive()
    fresh.process.send_signal(signal.SIGINT)
    assert cancellations(fresh.rest()) == []


@requirement("SUB-06")
def test_several_listeners_are_all_told() -> None:
    with http_server() as (client, process), ExitStack() as streams:
        wanted = [listen(number, promptsListChanged=True) for number in range(5)]
        opened = [streams.enter_context(client.stream(message))[1] for message in wanted]
        for stream in opened:
            next(stream)
        process.terminate()
        for number, stream in enumerate(opened):
            assert list(stream)[-1]["result"]["_meta"][SUBSCRIPTION] == number
