"""The matrix: every client answers, with its own loop, what our handlers ask, over HTTP and over stdio.

One run of a client gives one observation; each test looks at one fact of it, for all cases at once. The same
handlers serve the clients of 2026-07-28, who are answered with interim results, and those of 2025, who are
asked by requests.
"""

import json
from collections.abc import Callable
from typing import Any

import httptools
import pytest

from tests.peers import matrix

from . import cases, fields
from .cases import Case, Json
from .clients import CLIENTS, TRANSPORTS, PeerClient
from .driving import Observation, observe
from .recording import messages_in

RUNS = [(client, transport) for client in CLIENTS for transport in TRANSPORTS]


def runs(*, modern: bool | None = None) -> list[Any]:
    """The runs of clients. All that looks at one of them is done in one process of xdist."""
    chosen = []
    for client, transport in RUNS:
        if modern in (None, client.is_modern):
            title = f"{client.name}-{transport}"
            marks = [pytest.mark.xdist_group(f"rounds-{title}"), *([pytest.mark.slow] if client.slow else [])]
            chosen.append(pytest.param((client, transport), id=title, marks=marks))
    return chosen


_kept: dict[tuple[PeerClient, str], Observation | BaseException] = {}


@pytest.fixture
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observation:
    """What came of a run, which takes place once; if it fails, all that look at it do."""
    client, transport = run = request.param
    if run not in _kept:
        try:
            _kept[run] = observe(client, transport, tmp_path_factory.mktemp(f"{client.name}-{transport}"))
        except BaseException as error:
            _kept[run] = error
    if isinstance(kept := _kept[run], BaseException):
        raise kept
    return kept


EVERY_RUN = pytest.mark.parametrize("observed", runs(), indirect=True)
EVERY_MODERN_RUN = pytest.mark.parametrize("observed", runs(modern=True), indirect=True)
EVERY_OLDER_RUN = pytest.mark.parametrize("observed", runs(modern=False), indirect=True)


def outcome(reported: Json) -> Json:
    """How a case ended, in the words of `cases`."""
    if "error" in reported:
        error = reported["error"]
        return {"code": error["code"], **error["data"]} if error.get("data") else cases.FAILED
    if "gaveUpAfter" in reported:
        return {"gaveUpAfter": reported["gaveUpAfter"]}
    result = reported["result"]
    if result.get("isError"):
        return cases.FAILED
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


# What the client sees


@EVERY_RUN
def test_a_handler_that_asks_ends_as_if_it_had_never_stopped(
    observed: Observation, record_property: Callable[[str, object], None]
) -> None:
    seen = {name: outcome(reported) for name, reported in observed.seen["able"].items()}
    wanted = {name: case.outcome for name, case in observed.cases.items()}
    works = [name for name in wanted if seen.get(name) == wanted[name]]
    cells = [matrix.cell_of_client(observed.client, observed.transport, name) for name in works]
    record_property(matrix.PROPERTY, matrix.plain(cells))

    assert seen == wanted
    for name in wanted:
        if wanted[name] == cases.FAILED:  # The version has no such question.
            assert "elicit" in str(observed.seen["able"][name])


@EVERY_RUN
def test_every_callback_is_called_once_for_every_question(observed: Observation) -> None:
    able = observed.seen["able"]
    asked = {name: asked_by_round(able[name], case) for name, case in observed.cases.items()}

    assert asked == {
        name: [sorted(questions) for questions in case.rounds] for name, case in observed.cases.items()
    }
    assert {name: able[name]["left"] for name in able if able[name]["left"] != {}} == {}


@EVERY_RUN
def test_a_client_that_declares_nothing_is_told_what_is_missing(observed: Observation) -> None:
    reported = observed.seen["unable"]

    assert {name: outcome(reported[name]) for name in reported} == {
        name: case.outcome for name, case in observed.unable.items()
    }
    assert {name: reported[name]["asked"] for name in reported if reported[name]["asked"] != []} == {}
    for name, case in observed.unable.items():
        if case.outcome == cases.FAILED:
            assert "elicitation" in str(reported[name]["result"]["content"])


@EVERY_RUN
def test_the_client_sees_the_form_and_the_address(observed: Observation) -> None:
    details = {
        "one ask": cases.ORDER_SCHEMA,
        "a page to open": "https://login.example/start",
        "the model": 40,
    }
    for name, detail in details.items():
        if observed.cases[name].rounds:  # Else the version has no such question.
            (asked,) = observed.seen["able"][name]["asked"]
            assert asked["detail"] == detail
    assert observed.cases["the model"].rounds


@EVERY_RUN
def test_every_step_ran_once(observed: Observation) -> None:
    assert observed.steps == cases.steps(observed.client.version)


@EVERY_RUN
def test_nothing_surprises_either_side(observed: Observation) -> None:
    servers = 1 if observed.transport == "http" else 2  # Over stdio each connection has its own.

    assert observed.seen["version"] == observed.client.version
    assert observed.seen["stray"] == []
    assert observed.log.count("The server ended.") == servers
    complaints = [line for line in observed.log.splitlines() if line != "The server ended."]
    assert [line for line in complaints if "clients give up after 10 by default" not in line] == []


# What goes over the wire to a client of 2026-07-28


@EVERY_MODERN_RUN
def test_a_call_takes_one_request_more_than_it_has_rounds(observed: Observation) -> None:
    for is_able, of_client in ((True, observed.cases), (False, observed.unable)):
        taken = {
            name: len(observed.wire.requests_for(case.step, able=is_able)) for name, case in of_client.items()
        }
        assert taken == {name: len(case.rounds) + 1 for name, case in of_client.items()}


@EVERY_MODERN_RUN
def test_a_state_travels_only_where_there_is_something_to_carry(observed: Observation) -> None:
    stateless = observed.wire.requests_for(observed.cases["manual without a state"].step)
    resting = observed.wire.requests_for(observed.cases["checkpoints"].step)

    assert ["requestState" in params for params in stateless] == [False, False]
    assert ["inputResponses" in params for params in stateless] == [False, True]
    assert ["requestState" in params for params in resting] == [False, True, True]
    assert ["inputResponses" in params for params in resting] == [False, False, False]


@EVERY_MODERN_RUN
def test_a_modern_client_gets_no_request(observed: Observation) -> None:
    responses = [message for message in observed.wire.from_server if "method" not in message]
    awaited = [message for message in observed.wire.from_client if "id" in message]

    assert observed.wire.asked_by_server == []
    assert observed.wire.told_by_server == []
    assert len(responses) == len(awaited) > sum(len(case.rounds) + 1 for case in observed.cases.values())
    assert all("method" in message for message in observed.wire.from_client), "and sends no response"


# What goes over the wire to a client of 2025


@EVERY_OLDER_RUN
def test_an_older_client_calls_once_however_often_it_is_asked(observed: Observation) -> None:
    unable = [case.step for case in observed.unable.values()]
    called = {
        name: len(observed.wire.requests_for(case.step, able=None)) for name, case in observed.cases.items()
    }

    assert called == {name: 1 + unable.count(case.step) for name, case in observed.cases.items()}


@EVERY_OLDER_RUN
def test_an_older_client_is_asked_by_requests(observed: Observation) -> None:
    questions = [asked for case in observed.cases.values() for asked in case.rounds for _ in asked]
    answers = [message for message in observed.wire.from_client if "method" not in message]

    assert len(observed.wire.asked_by_server) == len(questions) == len(answers)


@EVERY_OLDER_RUN
def test_an_older_client_is_told_that_a_page_was_visited_and_nothing_else(observed: Observation) -> None:
    asked = [message.get("params", {}) for message in observed.wire.asked_by_server]
    pages = [params["elicitationId"] for params in asked if params.get("mode") == "url"]

    assert len(pages) == (observed.client.version == "2025-11-25")
    assert [(told["method"], told["params"]) for told in observed.wire.told_by_server] == [
        ("notifications/elicitation/complete", {"elicitationId": page}) for page in pages
    ]


@EVERY_OLDER_RUN
def test_an_older_client_gets_no_interim_result(observed: Observation) -> None:
    interim = {"resultType", "inputRequests", "requestState"}

    assert [result for _, result in observed.wire.results if interim & set(result)] == []


@EVERY_OLDER_RUN
def test_an_older_client_gets_no_field_of_a_later_version(observed: Observation) -> None:
    results = [fields.unknown_in_result(method, result) for method, result in observed.wire.results]
    requests = [fields.unknown_in_request(request) for request in observed.wire.asked_by_server]

    assert len(results) > len([case for case in observed.cases.values() if case.rounds])
    assert [paths for paths in [*results, *requests] if paths] == []
    assert (
        fields.later_names(observed.client.version, [result for _, result in observed.wire.results]) == set()
    )
    assert fields.later_names(observed.client.version, observed.wire.asked_by_server) == set()


# Whether all of this would be noticed


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
    seen = [json.loads(reply), json.loads(request)]

    assert messages_in(httptools.HttpResponseParser, connection) == seen
    assert messages_in(httptools.HttpResponseParser, connection.removesuffix(b"0\r\n\r\n")) == seen


def test_a_field_of_a_later_version_would_have_been_seen() -> None:
    tool = {"name": "a", "inputSchema": {"type": "object", "anything": {}}, "execution": {}, "later": 1}
    meta = {"io.modelcontextprotocol/serverInfo": {}, "example.org/mine": {}}
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}, "later": 1}

    assert fields.unknown_in_result("tools/list", {"tools": [tool], "ttlMs": 0, "_meta": meta}) == [
        "result.tools[0].later",
        "result.ttlMs",
        "result._meta.io.modelcontextprotocol/serverInfo",
    ]
    request = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": form}
    assert fields.unknown_in_request(request) == ["elicitation/create.params.later"]
    tools = {"tools": [{"name": "a", "title": "A", "icons": [], "inputSchema": {"title": "free"}}]}
    assert fields.later_names("2025-03-26", tools) == {"title", "icons"}
    assert fields.later_names("2025-06-18", tools) == {"icons"}
    assert fields.later_names("2025-11-25", tools) == set()
