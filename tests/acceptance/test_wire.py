"""Interim results as bytes: what is there, what is not, and who may send them."""

import asyncio
import logging
from collections import Counter
from typing import Any

import mcp_types
import pytest
from pydantic import BaseModel

from ekiden import (
    CallNext,
    Complete,
    Context,
    Failed,
    InputRequired,
    Interim,
    InvalidParams,
    Outcome,
    Request,
    Server,
)
from ekiden.testing import CallFailed
from tests.acceptance.driving import (
    Client,
    accept,
    call,
    error_text,
    messages,
    meta,
    new_server,
    only,
    post,
    process,
    request,
    said,
    served,
    soon,
    text,
    told,
)

INFO = {"io.modelcontextprotocol/serverInfo": {"name": "acceptance", "version": "0.0.0"}}


class Name(BaseModel):
    name: str


def everything() -> Server:
    """A server with something that asks in every place that may ask."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str, key="name")).data)

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str, key="name")).data)

    @server.resource("test://static")
    async def static(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str, key="name")).data)

    @server.resource("test://templates/{which}")
    async def template(which: str, ctx: Context) -> str:
        return f"{which} {(await ctx.elicit('Name?', str, key='name')).data}"

    return server


PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "tool", "arguments": {}}),
    "prompt": ("prompts/get", {"name": "prompt"}),
    "static resource": ("resources/read", {"uri": "test://static"}),
    "resource template": ("resources/read", {"uri": "test://templates/x"}),
}


def final_text(result: dict[str, Any]) -> str:
    assert result["resultType"] == "complete"
    if "messages" in result:
        return str(result["messages"][0]["content"]["text"])
    return str((result.get("content") or result["contents"])[0]["text"])


# The shape of an interim result


@pytest.mark.parametrize("place", PLACES)
async def test_an_interim_result_has_its_fields_and_no_others(place: str) -> None:
    method, params = PLACES[place]
    client = Client(everything())
    first = await client.round(method, params)
    assert first.result == {
        "resultType": "input_required",
        "inputRequests": {
            "name": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Name?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"value": {"type": "string"}},
                        "required": ["value"],
                    },
                },
            }
        },
        "requestState": first.state,
        "_meta": INFO,
    }
    done = await client.round(
        method, {**params, "inputResponses": {"name": accept("Ada")}, "requestState": first.state}
    )
    assert final_text(done.result).endswith("Ada")


def _nulls(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_nulls, value.values()))
    if isinstance(value, list):
        return any(map(_nulls, value))
    return value is None


async def test_absent_fields_are_absent_and_not_null() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        class Form(BaseModel):
            a: str | None = None
            b: int = 1

        await asyncio.gather(
            ctx.elicit("form", Form),
            ctx.elicit_url("url", "https://example.com/"),
            ctx.sample("sample", max_tokens=1),
            ctx.sample(
                [
                    mcp_types.SamplingMessage(
                        role="user", content=mcp_types.TextContent(type="text", text="other")
                    )
                ],
                max_tokens=1,
                tools=[mcp_types.Tool(name="t", input_schema={"type": "object"})],
                model_preferences=mcp_types.ModelPreferences(cost_priority=0.5),
            ),
            ctx.list_roots(),
        )
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    assert len(first.requests) == 5
    assert not _nulls(first.result)


async def test_interim_results_are_what_the_official_types_say() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await asyncio.gather(
            ctx.elicit("form", Name),
            ctx.elicit_url("url", "https://example.com/"),
            ctx.sample("sample", max_tokens=1),
            ctx.list_roots(),
        )
        return "done"

    first = await Client(server).ask("tool")
    parsed = mcp_types.InputRequiredResult.model_validate(first.result)
    assert parsed.input_requests is not None
    kinds = sorted(type(asked).__name__ for asked in parsed.input_requests.values())
    assert kinds == ["CreateMessageRequest", "ElicitRequest", "ElicitRequest", "ListRootsRequest"]
    again = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert again["inputRequests"] == first.requests
    assert again["resultType"] == "input_required"


async def test_a_complete_result_says_so() -> None:
    server = new_server()

    @server.tool
    async def tool() -> str:
        return "done"

    result = await Client(server).call_tool("tool")
    assert result["resultType"] == "complete"
    assert "inputRequests" not in result
    assert "requestState" not in result


async def test_keys_are_unique_within_a_call() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        for _ in range(4):
            await asyncio.gather(ctx.elicit("a", bool), ctx.elicit("b", bool), ctx.list_roots())
        return "done"

    client = Client(server, lambda _k, r: True if r["method"] == "elicitation/create" else ["file:///a"])
    assert text(await client.call_tool("tool")) == "done"
    keys = [key for played in client.rounds for key in played.requests]
    assert len(keys) == len(set(keys)) == 12


# Who may ask


@pytest.mark.parametrize("place", PLACES)
async def test_tools_prompts_and_resources_ask_over_several_rounds(place: str) -> None:
    server = new_server()

    async def handler(ctx: Context) -> str:
        one = await ctx.elicit("one", str)
        two = await ctx.sample("two", max_tokens=9)
        return f"{one.data} {two.content.text}"  # type: ignore[union-attr]

    async def templated(which: str, ctx: Context) -> str:
        return f"{which} {await handler(ctx)}"

    server.add_tool(handler, name="tool")
    server.add_prompt(handler, name="prompt")
    server.add_resource("test://static", handler)
    server.add_resource("test://templates/{which}", templated)
    client = Client(server, {"one": "1", "two": "2"})
    result = await client.call(*PLACES[place])
    assert final_text(result).endswith("1 2")
    assert len(client.rounds) == 3


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["returns", "raises", "returns from a thread", "raises from a thread"])
async def test_tools_prompts_and_resources_ask_by_hand(place: str, how: str) -> None:
    server = new_server()
    asks = InputRequired(
        {
            "name": {
                "method": "elicitation/create",
                "params": {
                    "message": "?",
                    "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}},
                },
            }
        },
        "my state",
    )

    def ask(ctx: Context) -> Any:
        if (answer := ctx.input_responses.get("name")) is None:
            assert ctx.request_state is None
            if how.startswith("raises"):
                raise asks
            return asks
        return f"{ctx.request_state} {answer.content}"  # type: ignore[union-attr]

    if how.endswith("thread"):

        def handler(ctx: Context) -> str:
            return ask(ctx)  # type: ignore[no-any-return]

        def templated(which: str, ctx: Context) -> str:
            return ask(ctx)  # type: ignore[no-any-return]
    else:

        async def handler(ctx: Context) -> str:  # type: ignore[misc]
            return ask(ctx)  # type: ignore[no-any-return]

        async def templated(which: str, ctx: Context) -> str:  # type: ignore[misc]
            return ask(ctx)  # type: ignore[no-any-return]

    server.add_tool(handler, name="tool")
    server.add_prompt(handler, name="prompt")
    server.add_resource("test://static", handler)
    server.add_resource("test://templates/{which}", templated)
    client = Client(server, {"name": {"value": "Ada"}})
    assert final_text(await client.call(*PLACES[place])) == "my state {'value': 'Ada'}"
    assert len(client.rounds) == 2
    assert client.rounds[0].state != "my state"


async def test_no_other_method_answers_input_required() -> None:
    server = everything()

    @server.completion(prompt="prompt", argument="name")
    async def complete(value: str) -> list[str]:
        return [value]

    asked = await Client(server).ask("tool")
    client = Client(server)
    for method, params in (
        ("server/discover", {}),
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "name", "value": "A"}},
        ),
    ):
        for more in ({}, {"inputResponses": {"name": accept("x")}, "requestState": asked.state}):
            played = await client.round(method, {**params, **more})
            assert played.result["resultType"] == "complete", method


async def test_a_completion_cannot_ask() -> None:
    server = everything()

    @server.completion(prompt="prompt", argument="name")
    async def complete(value: str) -> list[str]:
        raise InputRequired(request_state="x")

    async with server.connect() as channel:
        params = {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "name", "value": "A"}}
        await channel.send(request("completion/complete", params))
        reply = await soon(channel.receive())
    assert "error" in reply


# What the server sends


_ASKER = """
import asyncio
from ekiden import Context, Server

server = Server("asker", keys=[b"k" * 32])

@server.tool
async def tool(ctx: Context) -> str:
    await ctx.progress(1)
    name, poem, roots = await asyncio.gather(
        ctx.elicit("Name?", str), ctx.sample("Poem", max_tokens=9), ctx.list_roots()
    )
    await ctx.elicit_url("Sign in", "https://example.com/")
    return f"{name.data} {poem.content.text} {len(roots)}"
"""


def _responses(requests: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "elicitation/create": accept("Ada"),
        "sampling/createMessage": said("roses"),
        "roots/list": {"roots": [{"uri": "file:///a"}]},
    }
    return {
        key: {"action": "accept"} if asked.get("params", {}).get("mode") == "url" else kinds[asked["method"]]
        for key, asked in requests.items()
    }


async def test_the_server_sends_responses_and_notifications_but_never_a_request_on_stdio() -> None:
    async with process(_ASKER + "\nserver.run('stdio')\n") as child:
        retry: dict[str, Any] = {}
        for request_id in range(1, 4):
            message = call("tool", {}, request_id, **retry)
            message["params"]["_meta"]["progressToken"] = request_id
            result = (await child.exchange(message))["result"]
            if result["resultType"] == "complete":
                break
            retry = {
                "inputResponses": _responses(result["inputRequests"]),
                "requestState": result["requestState"],
            }
        assert result["content"][0]["text"] == "Ada roses 1"
        assert all(("method" in message) != ("id" in message) for message in child.said)
        assert [message["id"] for message in child.said if "id" in message] == [1, 2, 3]


async def test_the_server_sends_responses_and_notifications_but_never_a_request_on_http() -> None:
    namespace: dict[str, Any] = {}
    exec(_ASKER, namespace)
    seen: list[dict[str, Any]] = []
    async with served(namespace["server"]) as url:
        retry: dict[str, Any] = {}
        for request_id in range(1, 4):
            message = call("tool", {}, request_id, **retry)
            message["params"]["_meta"]["progressToken"] = request_id
            response = await post(url, message)
            assert response.status_code == 200
            seen += told(response)
            result = seen[-1]["result"]
            assert seen[-1]["id"] == request_id
            if result["resultType"] == "complete":
                break
            retry = {
                "inputResponses": _responses(result["inputRequests"]),
                "requestState": result["requestState"],
            }
    assert result["content"][0]["text"] == "Ada roses 1"
    assert all(("method" in message) != ("id" in message) for message in seen)
    assert any("method" in message for message in seen)


async def test_parallel_calls_on_one_connection_get_each_their_own_answers() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context, who: str) -> str:
        return f"{who} {(await ctx.elicit('Number?', str)).data}"

    async with server.connect() as channel:
        for n in range(20):
            await channel.send(call("tool", {"who": f"w{n}"}, n))
        firsts = {}
        for _ in range(20):
            reply = await soon(channel.receive())
            firsts[reply["id"]] = reply["result"]
        for n in reversed(range(20)):
            responses = {key: accept(str(n)) for key in firsts[n]["inputRequests"]}
            retry = {"inputResponses": responses, "requestState": firsts[n]["requestState"]}
            await channel.send(call("tool", {"who": f"w{n}"}, 100 + n, **retry))
        for _ in range(20):
            reply = await soon(channel.receive())
            n = reply["id"] - 100
            assert text(reply["result"]) == f"w{n} {n}"


# HTTP


async def test_a_missing_capability_is_http_400_before_the_response_has_begun() -> None:
    async with served(everything()) as url:
        response = await post(url, call("tool", capabilities={}))
    assert response.status_code == 400
    assert response.json() == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {
            "code": -32021,
            "message": response.json()["error"]["message"],
            "data": {"requiredCapabilities": {"elicitation": {"form": {}}}},
        },
    }


async def test_a_missing_capability_is_the_last_message_of_a_stream_that_has_begun() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.list_roots()
        return "never"

    message = call("tool", capabilities={})
    message["params"]["_meta"]["progressToken"] = "t"
    async with served(server) as url:
        response = await post(url, message)
    assert response.status_code == 200
    progress, last = told(response)
    assert progress["method"] == "notifications/progress"
    assert last["error"]["code"] == -32021
    assert last["error"]["data"] == {"requiredCapabilities": {"roots": {}}}


async def test_an_interim_result_over_http_is_a_plain_response() -> None:
    async with served(everything()) as url:
        response = await post(url, call("tool"))
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("application/json")
        result = response.json()["result"]
        retry = {"inputResponses": {"name": accept("Ada")}, "requestState": result["requestState"]}
        done = await post(url, call("tool", {}, 2, **retry))
    assert text(done.json()["result"]) == "Ada"


# Errors are errors, interim results are not


async def test_a_tool_that_throws_gives_an_error_and_not_an_interim_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool)
        raise ValueError("broken in the second round")

    client = Client(server)
    with caplog.at_level(logging.INFO):
        first = await client.ask("tool")
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
        second = await client.retry(first, {only(first): accept(True)})
    assert error_text(second)
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.exc_info
    assert "broken in the second round" in str(record.exc_info[1])


@pytest.mark.parametrize("place", ["prompt", "static resource", "resource template"])
async def test_a_prompt_or_resource_that_throws_is_an_internal_error(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()

    async def handler(ctx: Context) -> str:
        await ctx.elicit("ok?", bool)
        raise ValueError("secret words")

    async def templated(which: str, ctx: Context) -> str:
        return await handler(ctx)

    server.add_prompt(handler, name="prompt")
    server.add_resource("test://static", handler)
    server.add_resource("test://templates/{which}", templated)
    client = Client(server, {"ok?": True})
    with pytest.raises(CallFailed) as caught:
        await client.call(*PLACES[place])
    assert caught.value.code == -32603
    assert "secret words" not in str(caught.value)
    assert "secret words" in caplog.text


async def _fails(client: Client, name: str) -> None:
    """A misuse may be told as the tool's error or as an internal one, but not as success."""
    try:
        result = await client.call_tool(name)
    except CallFailed as error:
        result = {"isError": error.code == -32603}
    assert result["isError"]


async def test_mixing_both_ways_in_one_call_is_a_clear_error(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def asks_then_returns(ctx: Context) -> Any:
        await ctx.elicit("ok?", bool)
        return InputRequired(request_state="x")

    @server.tool
    async def reads_then_asks(ctx: Context) -> Any:
        _ = ctx.input_responses
        await ctx.elicit("ok?", bool)
        return "never"

    for name in ("asks_then_returns", "reads_then_asks"):
        caplog.clear()
        await _fails(Client(server, {"ok?": True}), name)
        assert "InputRequired" in caplog.text, name


async def test_a_step_of_a_handler_that_asks_by_hand_runs_once() -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> Any:
        def work() -> int:
            ran.append(1)
            return len(ran)

        worked = await ctx.step(work)
        if ctx.request_state != "x" * 3:
            return InputRequired(request_state=(ctx.request_state or "") + "x")
        return str(worked)

    client = Client(server)
    assert text(await client.call_tool("tool")) == "1"
    assert len(client.rounds) == 4


async def test_an_input_required_without_anything_is_refused() -> None:
    with pytest.raises(Exception, match="input_requests"):
        InputRequired()
    with pytest.raises(Exception, match="input_requests"):
        InputRequired({})


async def test_an_input_request_of_another_method_is_never_sent(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> Any:
        return InputRequired({"x": {"method": "tools/call", "params": {}}})

    await _fails(Client(server), "tool")
    assert "tools/call" in caplog.text


async def test_an_undeclared_request_by_hand_is_never_sent() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context, kind: str) -> Any:
        requests: dict[str, dict[str, Any]] = {
            "form": {
                "method": "elicitation/create",
                "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
            },
            "url": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "?", "url": "https://example.com/"},
            },
            "sample": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
            "tools": {
                "method": "sampling/createMessage",
                "params": {"messages": [], "maxTokens": 1, "tools": []},
            },
            "roots": {"method": "roots/list"},
        }
        return InputRequired({"x": requests[kind]})

    for kind, needed in (
        ("form", {"elicitation": {"form": {}}}),
        ("url", {"elicitation": {"url": {}}}),
        ("sample", {"sampling": {}}),
        ("tools", {"sampling": {"tools": {}}}),
        ("roots", {"roots": {}}),
    ):
        error = await Client(server, capabilities={}).refused(arguments={"kind": kind})
        assert error.code == -32021
        assert error.data == {"requiredCapabilities": needed}


# Middleware


async def test_middleware_sees_every_interim_result_and_every_retry() -> None:
    server = everything()
    seen: list[tuple[str, str]] = []

    @server.middleware
    async def watch(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        seen.append(("retry" if "requestState" in request.params else "first", type(outcome).__name__))
        if isinstance(outcome, Interim):
            assert outcome.requests.keys() == {"name"}
            assert outcome.state
        return outcome

    client = Client(server, {"name": "Ada"})
    for method, params in PLACES.values():
        await client.call(method, params)
    assert seen == [("first", "Interim"), ("retry", "Complete")] * 4


async def test_middleware_can_limit_the_rounds_of_a_principal() -> None:
    server = new_server()
    asked: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        for n in range(5):
            await ctx.elicit(f"q{n}", bool)
        return "done"

    @server.middleware
    async def limit(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if isinstance(outcome, Interim):
            who = str(request.meta.client_info)
            asked[who] += 1
            if asked[who] > 3:
                return Failed(InvalidParams("too many questions"))
        return outcome

    client = Client(server, lambda _k, _r: True)
    with pytest.raises(CallFailed, match="too many questions"):
        await client.call_tool("tool")
    assert len(client.rounds) == 3
    other = Client(
        server,
        lambda _k, _r: True,
        meta={"io.modelcontextprotocol/clientInfo": {"name": "other", "version": "1"}},
    )
    assert messages(await other.ask("tool")) == ["q0"]


@pytest.mark.parametrize(("error", "code"), [(InvalidParams("no"), -32602), (ValueError("no"), -32603)])
async def test_a_middleware_that_raises_is_an_error_that_the_client_gets(error: Exception, code: int) -> None:
    server = everything()

    @server.middleware
    async def fail(request: Request, call_next: CallNext) -> Outcome:
        await call_next(request)
        raise error

    async with asyncio.timeout(30):
        assert (await Client(server).refused()).code == code


async def test_middleware_can_answer_in_the_place_of_a_handler() -> None:
    server = everything()

    @server.middleware
    async def answer(request: Request, call_next: CallNext) -> Outcome:
        if request.method == "tools/call":
            return Complete({"content": [{"type": "text", "text": "instead"}]})
        return await call_next(request)

    assert text(await Client(server).call_tool("tool")) == "instead"


async def test_the_meta_of_a_request_is_never_echoed() -> None:
    server = everything()
    async with server.connect() as channel:
        message = call("tool")
        message["params"]["_meta"] = meta(**{"example.com/secret": "x"})
        await channel.send(message)
        reply = await soon(channel.receive())
    assert reply["result"]["_meta"] == INFO
