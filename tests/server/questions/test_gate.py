"""The gate on the way out: which interim results leave, whoever made them."""

import logging
from typing import Any

import pytest

from ekiden import CallNext, Context, Interim, Outcome, Request, Server
from ekiden.testing import CallFailed
from tests.acceptance.driving import KEY, Client
from tests.serving import error_of, result_of

FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}
PAGE: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Log in", "url": "https://example.com"},
}
SAMPLE: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {"messages": [], "maxTokens": 1, "includeContext": "thisServer"},
}


def asking(interim: Interim) -> Server:
    """A server whose middleware answers everything with this."""
    server = Server("gate", keys=[KEY])

    @server.tool
    async def tool() -> str:
        return "called"

    @server.prompt
    async def prompt() -> str:
        return "got"

    @server.resource("a://b")
    async def resource() -> str:
        return "read"

    @server.completion(prompt="prompt", argument="x")
    async def complete(value: str) -> list[str]:
        return []

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        return interim

    return server


async def refused(client: Client, method: str, params: dict[str, Any]) -> CallFailed:
    """The error of a request that must fail."""
    with pytest.raises(CallFailed) as caught:
        await client.round(method, params)
    return caught.value


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "tool"}),
    ("prompts/get", {"name": "prompt"}),
    ("resources/read", {"uri": "a://b"}),
]


@pytest.mark.parametrize(("method", "params"), CALLS)
async def test_a_middleware_may_ask_what_the_client_declared(method: str, params: dict[str, Any]) -> None:
    server = asking(Interim({"sure": FORM}, "state"))
    client = Client(server, capabilities={"elicitation": {}})
    result = (await client.round(method, params)).result
    assert result["resultType"] == "input_required"
    assert result["inputRequests"] == {"sure": FORM}


@pytest.mark.parametrize(("method", "params"), CALLS)
@pytest.mark.parametrize(
    ("question", "declared", "required"),
    [
        (FORM, {}, {"elicitation": {"form": {}}}),
        (FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (PAGE, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (SAMPLE, {"sampling": {}}, {"sampling": {"context": {}}}),
        ({"method": "roots/list"}, {"sampling": {}}, {"roots": {}}),
    ],
)
async def test_a_middleware_asks_nothing_that_the_client_did_not_declare(
    method: str,
    params: dict[str, Any],
    question: dict[str, Any],
    declared: dict[str, Any],
    required: dict[str, Any],
) -> None:
    client = Client(asking(Interim({"q": question}, None)), capabilities=declared)
    error = await refused(client, method, params)
    assert (error.code, error.data) == (-32021, {"requiredCapabilities": required})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("server/discover", {}),
        ("resources/templates/list", {}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "x", "value": ""}},
        ),
    ],
)
async def test_no_other_method_answers_with_an_interim_result(
    method: str, params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = await error_of(asking(Interim({}, "state")), method, params)
    assert error == {"code": -32603, "message": "Internal error"}
    assert f"An interim result of {method} was held back" in caplog.text


@pytest.mark.parametrize("requests", [{}, {"q": {"method": "tools/call"}}, {"q": "sure?"}, {"q": {}}])
async def test_what_is_not_a_question_is_held_back(
    requests: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = await error_of(asking(Interim(requests, None)), "tools/call", {"name": "tool"})
    assert error["code"] == -32603
    assert "held back" in caplog.text


async def test_a_middleware_cannot_declare_for_the_client() -> None:
    server = Server("gate", keys=[KEY])

    @server.tool
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).action)

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        request.meta.capabilities = {"elicitation": {}}
        return await call_next(request)

    error = await Client(server, capabilities={}).refused()
    assert error.code == -32021


async def test_a_recorded_round_asks_only_what_this_request_declares() -> None:
    server = Server("gate", keys=[KEY])
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("First?", bool, key="first")
        await ctx.step(ran.append, 1)
        await ctx.elicit_url("Second?", "https://example.com", key="second")
        return "done"

    both = Client(server, capabilities={"elicitation": {"form": {}, "url": {}}})
    yes = {"first": {"action": "accept", "content": {"value": True}}}
    begun = await both.ask("tool")
    assert "second" in (await both.retry(begun, yes)).result["inputRequests"]
    less = Client(server, capabilities={"elicitation": {"form": {}}})
    error = await less.refused(inputResponses=yes, requestState=begun.state)
    assert (error.code, ran) == (-32021, [1])


async def test_other_outcomes_pass() -> None:
    server = Server("gate", keys=[KEY])

    @server.tool
    async def tool() -> str:
        return "called"

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        return await call_next(request)

    result = await result_of(server, "tools/call", {"name": "tool"})
    assert result["content"][0]["text"] == "called"
