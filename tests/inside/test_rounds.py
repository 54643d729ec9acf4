"""The same handlers in ekiden's own server, in an `MCPServer` and in FastMCP: rounds, once, and lists.

Every test runs against each host, in a process of its own, and where it says so with each client.
"""

from typing import Any

import pytest

from tests.inside.callers import CALLERS
from tests.inside.processes import HostProcesses
from tests.serving import call, events, post, request, soon

FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
YES = {"action": "accept", "content": {"ok": True}}

with_each_client = pytest.mark.parametrize("caller", CALLERS)


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@with_each_client
async def test_a_step_between_two_questions_runs_once(host: HostProcesses, caller: str) -> None:
    order = f"{caller}-1"
    async with CALLERS[caller](host[0].url) as client:
        result = await soon(client.call("refund", order=order))
    assert text(result) == f"receipt of {order}: accept, accept"
    assert client.asked == [f"Refund {order}?", f"Send the receipt of {order}?"]
    assert host.effects(order) == {"charge": 1}


@with_each_client
async def test_forms_samples_and_roots_are_asked_together(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        assert text(await soon(client.call("trip"))) == "accept, Nara, file:///home/aiko"


@with_each_client
async def test_draws_sleeps_and_checkpoints_work(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        result = await soon(client.call("draws"))
    assert result["structuredContent"] == {"same": [True, "accept"]}


@with_each_client
async def test_progress_and_log_messages_arrive(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        assert text(await soon(client.call("report"))) == "reported"
    assert client.progress == [1, 2]
    assert client.told == ["working"]


@with_each_client
async def test_what_is_asked_by_hand_is_answered(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        assert text(await soon(client.call("by_hand"))) == "asked, accept"


@with_each_client
async def test_a_parked_handler_goes_on(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        assert text(await soon(client.call("held"))) == "held: accept"


@with_each_client
async def test_prompts_and_resources_ask(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        prompt = await soon(client.prompt("letter", name="Aiko"))
        template = await soon(client.read("shop://orders/7"))
        resource = await soon(client.read("shop://counter"))
    assert prompt["messages"][0]["content"]["text"] == "Dear Aiko: accept"
    assert template["contents"][0]["text"] == "order 7: accept"
    assert resource["contents"][0]["text"] == "counted: accept"


@with_each_client
async def test_tools_are_listed_as_ekiden_defines_them(host: HostProcesses, caller: str) -> None:
    async with CALLERS[caller](host[0].url) as client:
        tools = await soon(client.tools())
        assert text(await soon(client.call("plain", x=3))) == "3", "the host's own tool is untouched"
    assert {"plain", "refund", "pay", "trip", "parcel", "later", "slowly"} <= set(tools)
    assert "outputSchema" not in tools["refund"], "a tool that returns text has no output schema"
    assert tools["refund"]["description"] == "A step between two questions."
    assert tools["refund"]["inputSchema"]["required"] == ["order"]
    if caller == "ours-2025":
        assert tools["parcel"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in tools["refund"]


# On the wire of 2026-07-28


async def said(host: HostProcesses, message: dict[str, Any]) -> dict[str, Any]:
    response = await post(host[0].base, message)
    if response.headers["content-type"].startswith("text/event-stream"):
        return events(response.text.replace("\r\n", "\n"))[-1]
    answer: dict[str, Any] = response.json()
    return answer


async def first_round(host: HostProcesses, tool: str, order: str) -> dict[str, Any]:
    asked = (await said(host, call(tool, {"order": order}, **FORMS)))["result"]
    assert asked["resultType"] == "input_required"
    return asked  # type: ignore[no-any-return]


def again(tool: str, order: str, asked: dict[str, Any], answer: Any = None) -> dict[str, Any]:
    retry = {
        "requestState": asked["requestState"],
        "inputResponses": dict.fromkeys(asked["inputRequests"], answer or YES),
    }
    return request("tools/call", {"name": tool, "arguments": {"order": order}, **retry}, **FORMS)


async def test_a_state_is_sealed_once_and_by_ekidens_keys(host: HostProcesses) -> None:
    asked = await first_round(host, "refund", "sealed")
    assert asked["requestState"].startswith("ek1.")
    assert len(asked["requestState"]) < 400


async def test_a_damaged_state_is_refused(host: HostProcesses) -> None:
    asked = await first_round(host, "refund", "damaged")
    asked["requestState"] = asked["requestState"][:-6] + "AAAA=="
    refused = (await said(host, again("refund", "damaged", asked)))["error"]
    assert (refused["code"], "requestState" in refused["message"]) == (-32602, True)


async def test_a_state_of_another_call_is_refused(host: HostProcesses) -> None:
    asked = await first_round(host, "refund", "mine")
    refused = (await said(host, again("refund", "yours", asked)))["error"]
    assert refused["code"] == -32602


async def test_a_client_that_cannot_be_asked_is_told_what_is_missing(host: HostProcesses) -> None:
    response = await post(host[0].base, call("refund", {"order": "silent"}))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, -32021)
    assert error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


async def test_arguments_that_do_not_fit_are_a_result_that_says_so(host: HostProcesses) -> None:
    result = (await said(host, call("refund", {"order": 7}, **FORMS)))["result"]
    assert result["isError"]
    assert "order" in text(result)


async def test_a_repeated_round_runs_its_step_once(host: HostProcesses) -> None:
    asked = await first_round(host, "refund", "repeated")
    second = (await said(host, again("refund", "repeated", asked)))["result"]
    repeat = (await said(host, again("refund", "repeated", asked)))["result"]
    assert second["inputRequests"] == repeat["inputRequests"]
    assert host.effects("repeated") == {"charge": 1}


async def test_with_once_a_round_counts_once(host: HostProcesses) -> None:
    asked = await first_round(host, "pay", "once")
    second = (await said(host, again("pay", "once", asked)))["result"]
    done = (await said(host, again("pay", "once", second)))["result"]
    repeat = (await said(host, again("pay", "once", second)))["result"]
    other = await said(host, again("pay", "once", second, {"action": "decline"}))
    assert text(done) == text(repeat) == "receipt of once: accept, accept"
    assert other["error"]["code"] == -32602
    assert host.effects("once") == {"charge": 1}


async def test_an_unknown_tool_is_still_the_hosts_business(host: HostProcesses) -> None:
    answer = await said(host, call("nobody", {}))
    assert answer.get("error", {}).get("code") == -32602 or answer["result"]["isError"]
