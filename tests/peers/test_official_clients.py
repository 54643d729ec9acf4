"""The official clients list and call everything of a server, over HTTP and over stdio.

One run of a client gives one observation; each test looks at one fact of it, for all steps at once.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from . import expected, running
from .expected import Json, content, text


class Observation(NamedTuple):
    client: str
    transport: str
    seen: Json
    log: str
    """What the server wrote to stderr; over stdio also what the client did."""

    def outcome(self, reported: Json) -> Json:
        """An outcome without what every result bears, which is checked here."""
        if "result" not in reported:
            return reported
        return {**reported, "result": self.unwrapped(reported["result"])}

    def unwrapped(self, result: Json) -> Json:
        rest = dict(result)
        assert rest.pop("_meta") == {"io.modelcontextprotocol/serverInfo": expected.SERVER_INFO}
        # The TypeScript client takes the tag off once it has read it.
        assert rest.pop("resultType", None) == ("complete" if self.client == "python" else None)
        return rest

    def step(self, name: str) -> Json:
        return self.outcome(self.seen["steps"][name])

    def steps(self, group: str) -> Json:
        """The outcomes of all steps of a group of `expected`."""
        return {name: self.step(f"{group}: {name}") for name in expected.GROUPS[group]}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pair, id="-".join(pair), marks=pytest.mark.xdist_group(f"official-{'-'.join(pair)}"))
        for pair in product(("python", "typescript"), ("http", "stdio"))
    ],
)
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observation:
    client, transport = request.param
    log = tmp_path_factory.mktemp(f"{client}-{transport}") / "log"
    printed = observe(client, transport, log)
    return Observation(client, transport, json.loads(printed), log.read_text("utf-8"))


def observe(client: str, transport: str, log: Path) -> str:
    plan = json.dumps(expected.PLAN)
    if transport == "stdio":
        return running.run_client(client, ["stdio", *running.stdio_server()], plan, log)
    with running.http_server(log) as url:
        return running.run_client(client, ["http", url], plan, log.with_name("client-log"))


def wanted(group: str) -> Json:
    """What the steps of a group should come to."""
    return {name: outcome for name, (_, outcome) in expected.GROUPS[group].items()}


def test_the_modern_version_is_negotiated_by_discovery(observed: Observation) -> None:
    discovered = dict(observed.seen["discovered"])

    assert observed.seen["protocolVersion"] == "2026-07-28"
    assert discovered.pop("_meta") == {"io.modelcontextprotocol/serverInfo": expected.SERVER_INFO}
    assert discovered == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": expected.CAPABILITIES,
        "instructions": "Ask for anything.",
        **expected.UNCACHED,
    }


def test_the_client_knows_the_server_after_connecting(observed: Observation) -> None:
    assert observed.seen["serverInfo"] == expected.SERVER_INFO
    assert observed.seen["capabilities"] == expected.CAPABILITIES
    assert observed.seen["instructions"] == "Ask for anything."


def test_a_client_pinned_to_the_version_calls_at_once(observed: Observation) -> None:
    assert observed.outcome(observed.seen["pinned"]) == content(text("Grüße, Aki!"))


def test_every_definition_is_listed_in_full_and_in_order(observed: Observation) -> None:
    assert {kind: joined(observed.seen["lists"], kind) for kind in expected.LISTS} == expected.LISTS


def test_a_list_comes_in_full_pages_with_its_caching_hint(observed: Observation) -> None:
    for kind, listed in expected.LISTS.items():
        pages = [observed.unwrapped(page) for page in observed.seen["lists"][kind]]
        hint = expected.PUBLIC_MINUTE if kind == "tools" else expected.UNCACHED

        sizes = [len(page.pop(kind)) for page in pages]
        cursors = [page.pop("nextCursor", None) for page in pages]

        assert sizes == [2] * (len(listed) // 2) + [1] * (len(listed) % 2), kind
        assert len(sizes) > 1, kind
        assert None not in cursors[:-1], kind
        assert cursors[-1] is None, kind
        assert pages == [hint] * len(pages), kind


def joined(lists: Json, kind: str) -> list[Any]:
    return [item for page in lists[kind] for item in page[kind]]


def test_what_a_tool_returns_arrives_unchanged(observed: Observation) -> None:
    assert observed.steps("calls") == wanted("calls")


def test_a_failure_tells_the_caller_what_he_may_know(observed: Observation) -> None:
    assert observed.steps("failures") == wanted("failures")


def test_a_resource_is_read(observed: Observation) -> None:
    assert observed.steps("reads") == wanted("reads")


def test_a_prompt_is_got(observed: Observation) -> None:
    assert observed.steps("prompts") == wanted("prompts")


def test_an_argument_is_completed(observed: Observation) -> None:
    assert observed.steps("completions") == wanted("completions")


def test_parameters_are_mirrored_into_headers_over_http_alone(observed: Observation) -> None:
    seen = {name: step["result"]["structuredContent"] for name, step in observed.steps("headers").items()}
    assert seen == {name: mirrored(observed, headers) for name, headers in wanted("headers").items()}


def test_a_call_without_its_headers_is_repeated_with_them_once_the_tool_was_listed(
    observed: Observation,
) -> None:
    headers = {"mcp-name": "routed", "mcp-param-region": "eu", "mcp-param-track": None}

    outcome = observed.outcome(observed.seen["unlisted"]["routed"])

    assert outcome["result"]["structuredContent"] == mirrored(observed, headers)


def mirrored(observed: Observation, headers: Json) -> Json:
    return headers if observed.transport == "http" else dict.fromkeys(headers)


def test_progress_arrives_in_order_while_the_call_runs(observed: Observation) -> None:
    assert observed.step("progress") == {**content(text("arrived")), "progress": expected.PROGRESS_SEEN}


def test_log_messages_arrive_from_the_level_that_the_request_asked_for(observed: Observation) -> None:
    assert observed.seen["logs"] == expected.LOGS
    for topic in expected.TALKS:
        assert observed.step(topic) == content(text(topic))


def test_calls_run_at_the_same_time(observed: Observation) -> None:
    met = [observed.outcome(outcome) for outcome in observed.seen["together"]]

    assert met == [content(text("met"))] * 2


def test_a_cancelled_call_is_cancelled_in_the_server(observed: Observation) -> None:
    abandoned = observed.seen["abandoned"]

    assert abandoned["cancelled"] is True
    assert observed.outcome(abandoned["then"]) == content(text("abandoned"))


def test_a_subscription_delivers_only_what_it_asked_for(observed: Observation) -> None:
    narrow = observed.seen["narrow"]

    assert narrow["honoured"] == expected.COUNTER_ONLY
    assert changed(observed, narrow) == ["resources", "counter"]
    assert narrow["events"] == [{"kind": "ResourceUpdated", "uri": "note://counter"}]


def test_a_subscription_delivers_every_kind_of_change(observed: Observation) -> None:
    wide = observed.seen["wide"]

    assert wide["honoured"] == expected.ALL_CHANGES
    assert changed(observed, wide) == ["tools", "prompts", "resources", "counter"]
    assert wide["events"] == expected.EVENTS


def changed(observed: Observation, watched: Json) -> list[str]:
    outcomes = [observed.outcome(outcome) for outcome in watched["caused"].values()]
    return [outcome["result"]["content"][0]["text"] for outcome in outcomes]


def test_what_changed_is_seen_after_its_notification(observed: Observation) -> None:
    lists, after = observed.seen["wide"]["lists"], observed.seen["wide"]["after"]

    assert joined(lists, "tools") == [*expected.TOOLS, expected.LATE_TOOL]
    assert joined(lists, "prompts") == [*expected.PROMPT_LIST, expected.LATE_PROMPT]
    assert joined(lists, "resources") == expected.RESOURCES
    assert joined(lists, "resourceTemplates") == expected.TEMPLATES
    assert observed.outcome(after["new tool"]) == content(text("Grüße, Mio!"))
    assert observed.outcome(after["counter"]) == expected.contents(
        {"uri": "note://counter", "mimeType": "text/plain", "text": "2"}
    )


def test_a_subscription_ends_gracefully_when_the_server_is_interrupted(observed: Observation) -> None:
    wide = observed.seen["wide"]

    assert observed.outcome(wide["after"]["closes"]) == content(text("closing"))
    assert wide["end"] == "graceful"


def test_no_message_of_the_server_surprises_the_client(observed: Observation) -> None:
    assert observed.seen["stray"] == []


def test_the_server_ends_in_order_and_logs_only_the_failure_of_its_author(observed: Observation) -> None:
    # Over stdio each of the two connections, the pinned one and the main one, has a server of its own.
    servers = 1 if observed.transport == "http" else 2

    assert observed.log.count("The server ended.") == servers
    assert observed.log.count("Tool 'breaks' raised") == 1
    assert observed.log.count("RuntimeError: a secret of the author's") == 1
    assert observed.log.count("Traceback") == 1
    assert "Exception ignored" not in observed.log


def test_a_missing_peer_is_a_failure_that_names_the_make_target() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"run `make \.peers/absent/\.ready`"):
        running.require(running.ROOT / ".peers" / "absent")
