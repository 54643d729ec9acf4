"""The official clients answer, each with its own loop, what handlers ask: over HTTP and over stdio.

One run of a client gives one observation; each test looks at one part of it.
"""

import json
from itertools import product

import httptools
import pytest

from . import cases
from .cases import CASES, UNABLE, Case, Json
from .driving import Observation, observe
from .recording import messages_in


@pytest.fixture(
    scope="module",
    params=product(("python", "typescript"), ("http", "stdio")),
    ids=lambda pair: "-".join(pair),
)
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observation:
    client, transport = request.param
    return observe(client, transport, tmp_path_factory.mktemp(f"{client}-{transport}"))


def outcome(reported: Json) -> Json:
    """How a case ended, in the words of `cases`."""
    if "error" in reported:
        error = reported["error"]
        return {"code": error["code"], **error["data"]}
    if "gaveUpAfter" in reported:
        return {"gaveUpAfter": reported["gaveUpAfter"]}
    result = reported["result"]
    assert not result.get("isError"), result
    if "contents" in result:
        (contents,) = result["contents"]
        return {"text": contents["text"]}
    (block,) = result["content"] if "content" in result else [result["messages"][0]["content"]]
    return {"text": block["text"]}


def asked_by_round(reported: Json, case: Case) -> list[list[tuple[str, str]]]:
    """What the callbacks were called with, cut into rounds as long as they should be."""
    asked = [(question["method"], question["text"]) for question in reported["asked"]]
    rounds = []
    for expected in case.rounds:
        rounds.append(sorted(asked[: len(expected)]))  # Those of one round come in any order.
        asked = asked[len(expected) :]
    return [*rounds, asked] if asked else rounds


@pytest.mark.parametrize("name", CASES)
def test_a_handler_that_asks_ends_as_if_it_had_never_stopped(observed: Observation, name: str) -> None:
    assert outcome(observed.seen["able"][name]) == CASES[name].outcome


@pytest.mark.parametrize("name", CASES)
def test_every_callback_is_called_once_for_every_question(observed: Observation, name: str) -> None:
    reported, case = observed.seen["able"][name], CASES[name]

    assert asked_by_round(reported, case) == [sorted(questions) for questions in case.rounds]
    assert reported["left"] == {}


@pytest.mark.parametrize("name", CASES)
def test_a_call_takes_one_request_more_than_it_has_rounds(observed: Observation, name: str) -> None:
    case = CASES[name]

    assert len(observed.wire.requests_for(case.step)) == len(case.rounds) + 1


@pytest.mark.parametrize("name", UNABLE)
def test_a_client_that_declares_nothing_is_told_what_is_missing(observed: Observation, name: str) -> None:
    reported, case = observed.seen["unable"][name], UNABLE[name]

    assert outcome(reported) == case.outcome
    assert reported["asked"] == []
    assert len(observed.wire.requests_for(case.step, able=False)) == len(case.rounds) + 1


def test_the_client_sees_the_form_and_the_address(observed: Observation) -> None:
    (form,) = observed.seen["able"]["one ask"]["asked"]
    (page,) = observed.seen["able"]["a page to open"]["asked"]
    haiku = next(
        asked for asked in observed.seen["able"]["three kinds at once"]["asked"] if asked["text"] == "A haiku"
    )

    assert form["detail"] == cases.ORDER_SCHEMA
    assert page["detail"] == "https://login.example/start"
    assert haiku["detail"] == 40


def test_every_step_ran_once(observed: Observation) -> None:
    assert observed.steps == cases.STEPS


def test_a_state_travels_only_where_there_is_something_to_carry(observed: Observation) -> None:
    stateless = observed.wire.requests_for(CASES["manual without a state"].step)
    resting = observed.wire.requests_for(CASES["checkpoints"].step)

    assert ["requestState" in params for params in stateless] == [False, False]
    assert ["inputResponses" in params for params in stateless] == [False, True]
    assert ["requestState" in params for params in resting] == [False, True, True]
    assert ["inputResponses" in params for params in resting] == [False, False, False]


def test_the_server_sends_no_request_of_its_own(observed: Observation) -> None:
    sent = observed.wire.from_server
    responses = [message for message in sent if "method" not in message]
    requests = [message for message in sent if "method" in message and "id" in message]
    awaited = [message for message in observed.wire.from_client if "id" in message]

    assert observed.seen["version"] == "2026-07-28"
    assert requests == []
    assert len(responses) == len(awaited) > sum(len(case.rounds) + 1 for case in CASES.values())
    assert all("method" in message for message in observed.wire.from_client), "and gets no response"


def test_nothing_surprises_either_side(observed: Observation) -> None:
    servers = 1 if observed.transport == "http" else 2  # Over stdio each connection has its own.

    assert observed.seen["stray"] == []
    assert observed.log.count("The server ended.") == servers
    complaints = [line for line in observed.log.splitlines() if line != "The server ended."]
    assert [line for line in complaints if "clients give up after 10 by default" not in line] == []


def test_a_request_of_the_server_would_have_been_seen() -> None:
    reply = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    request = b'{"jsonrpc":"2.0","id":7,"method":"roots/list"}'
    event = b"event: message\ndata: " + request + b"\n\n"
    stream = b"%x\r\n%s\r\n0\r\n\r\n" % (len(event), event)
    connection = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%s"
    ) % (len(reply), reply, stream)

    assert messages_in(httptools.HttpResponseParser, connection) == [json.loads(reply), json.loads(request)]
