"""The gate on the way out: what a middleware does to a request, and what it asks clients of 2025."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import ekiden
from ekiden import CallNext, Context, Interim, InvalidParams, Outcome, Outgoing, Request, SendOn, Server
from ekiden.server.questions.gate import MAY_ASK
from ekiden.server.rounds import pushed
from ekiden.stores.memory import MemoryStore
from tests.acceptance.driving import KEY, Client, accept, only, text
from tests.eras.old_client import accepted, hello, notification, old_client
from tests.eras.old_client import call as old_call
from tests.eras.old_client import request as old_request
from tests.serving import exchange, post, request, served, soon

from .test_gate import CALLS, FORM, PAGE

# What a middleware does to the request


def _replaced(request: Request) -> Request:
    request.meta.capabilities = {"elicitation": {}}
    return request


def _changed(request: Request) -> Request:
    request.meta.capabilities["elicitation"] = {}
    return request


def _changed_in_params(request: Request) -> Request:
    key = "io.modelcontextprotocol/clientCapabilities"
    request.params.setdefault("_meta", {}).setdefault(key, {})["elicitation"] = {}
    return _changed(request)


def _made_anew(request: Request) -> Request:
    meta = msgspec.structs.replace(request.meta, capabilities={"elicitation": {}})
    return msgspec.structs.replace(request, meta=meta)


def _with_another_id(request: Request) -> Request:
    request.id = "another"
    return msgspec.structs.replace(request, id="a third")


def _with_another_version(request: Request) -> Request:
    modern = request.meta.protocol_version == "2026-07-28"
    request.meta.protocol_version = "2025-11-25" if modern else "2026-07-28"
    return request


DECLARING = [_replaced, _changed, _changed_in_params, _made_anew]


def changing(change: Callable[[Request], Request], first: Outcome | None = None) -> Server:
    """A server whose middleware changes every call, and answers the first with `first`."""
    server = Server("gate", keys=[KEY], store=MemoryStore())

    @server.tool
    async def tool(ctx: Context) -> str:
        if not ctx.can_ask("elicitation"):
            return "cannot ask"
        return str((await ctx.elicit("Sure?", bool)).action)

    @server.tool
    async def insists(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).action)

    @server.tool(task="optional")
    async def long(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).action)

    outcomes = [] if first is None else [first]

    @server.middleware(tasks=True)
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        if request.method != "tools/call":
            return await call_next(request)
        passed = change(request)
        return outcomes.pop() if outcomes else await call_next(passed)

    return server


@pytest.mark.parametrize("change", DECLARING)
async def test_what_a_middleware_declares_for_the_client_does_not_count(
    change: Callable[[Request], Request],
) -> None:
    client = Client(changing(change), capabilities={})
    assert (await client.refused("insists")).code == -32021
    assert text(await client.round("tools/call", {"name": "tool", "arguments": {}})) == "cannot ask"


@pytest.mark.parametrize("change", DECLARING)
async def test_a_middleware_that_declares_cannot_ask_itself(change: Callable[[Request], Request]) -> None:
    client = Client(changing(change, Interim({"sure": FORM}, None)), capabilities={})
    assert (await client.refused("tool")).code == -32021


@pytest.mark.parametrize("change", DECLARING)
async def test_what_a_middleware_declares_does_not_stay_in_a_session(
    change: Callable[[Request], Request],
) -> None:
    async with changing(change).connect() as channel:
        await channel.send(hello(capabilities={}))
        await soon(channel.receive())
        await channel.send(notification("notifications/initialized"))
        for number in (1, 2):
            await channel.send(old_call("insists", id=number))
            response = await soon(channel.receive())
            assert response["id"] == number
            assert response["result"]["isError"] is True


@pytest.mark.parametrize("change", DECLARING)
async def test_what_a_middleware_declares_does_not_count_in_a_task(
    change: Callable[[Request], Request],
) -> None:
    async with ekiden.Client(changing(change)) as client:
        with pytest.raises(ekiden.ServerError) as caught:
            await soon(client.call_tool("long", {}))
    assert caught.value.code == -32021


async def test_a_middleware_may_take_a_capability_away() -> None:
    def nothing(request: Request) -> Request:
        request.meta.capabilities.clear()
        return request

    client = Client(changing(nothing), capabilities={"elicitation": {}})
    assert text(await client.round("tools/call", {"name": "tool", "arguments": {}})) == "cannot ask"


@pytest.mark.parametrize("change", [_with_another_id, _with_another_version])
@pytest.mark.parametrize("watched", [False, True])
async def test_the_response_goes_to_the_request_as_it_was_sent(
    change: Callable[[Request], Request], watched: bool
) -> None:
    server = changing(change)
    if watched:

        @server.outgoing
        async def outgoing(message: Outgoing, send: SendOn) -> None:
            assert message.request is not None
            change(message.request)
            await send(message)

    call = request("tools/call", {"name": "tool", "arguments": {}})
    in_memory = (await exchange(server, call))[-1]
    async with served(server) as base, old_client(base, capabilities={}) as old:
        over_http = (await post(base, call)).json()
        of_2025 = await old.answered(old_call("tool"))
    for response in (in_memory, over_http, of_2025):
        assert response["id"] == 1
        assert response["result"]["content"][0]["text"] == "cannot ask"


@pytest.mark.parametrize("change", [_with_another_id, _with_another_version])
async def test_a_client_is_asked_in_the_way_of_its_version_whatever_a_middleware_says(
    change: Callable[[Request], Request],
) -> None:
    """One of 2026 gets the question as a result, and one of 2025 as a request."""
    client = Client(changing(change))
    asked = await client.ask("tool")
    assert text(await client.retry(asked, {only(asked): accept(True)})) == "accept"
    async with changing(change).connect() as channel:
        await channel.send(hello(capabilities={"elicitation": {}}))
        await soon(channel.receive())
        await channel.send(notification("notifications/initialized"))
        await channel.send(old_call("tool", id=1))
        question = await soon(channel.receive())
        assert question["method"] == "elicitation/create"
        await channel.send({"jsonrpc": "2.0", "id": question["id"], "result": accept(True)})
        response = await soon(channel.receive())
        assert (response["id"], response["result"]["content"][0]["text"]) == (1, "accept")


@pytest.mark.parametrize("change", DECLARING)
async def test_what_an_outgoing_function_declares_does_not_count(
    change: Callable[[Request], Request],
) -> None:
    server = changing(lambda request: request)

    @server.outgoing
    async def outgoing(message: Outgoing, send: SendOn) -> None:
        if message.request is not None:
            change(message.request)
        if message.method == "tools/call":
            message.body["result"] = {"resultType": "input_required", "inputRequests": {"sure": FORM}}
        await send(message)

    for _ in range(2):
        assert (await Client(server, capabilities={}).refused("tool")).code == -32021


# Clients of 2025, which know no interim results


def confirming(question: dict[str, Any], state: str | None = None) -> Server:
    """A server whose middleware asks before every call, as one for clients of 2026 would."""
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

    @server.middleware
    async def confirm(request: Request, call_next: CallNext) -> Outcome:
        if request.kind != "request" or request.method not in MAY_ASK:
            return await call_next(request)
        answers = request.params.pop("inputResponses", None)
        if answers is None:
            return Interim({"sure": question}, state)
        if request.params.pop("requestState", None) != state:
            raise InvalidParams("the state is lost")
        if answers["sure"]["action"] != "accept":
            raise InvalidParams("declined")
        return await call_next(request)

    return server


@pytest.mark.parametrize(("method", "params"), CALLS)
@pytest.mark.parametrize("state", [None, "mine"])
async def test_what_a_middleware_asks_is_pushed_to_a_client_of_2025(
    method: str, params: dict[str, Any], state: str | None
) -> None:
    server = confirming(FORM, state)
    async with served(server) as base, old_client(base) as client:
        asked, answered = await client.talk(old_request(method, params), lambda m: accepted(m["id"]))
        refused = await client.answered(
            old_request(method, params), lambda m: {**accepted(m["id"]), "result": {"action": "decline"}}
        )
    assert asked["params"]["message"] == "Sure?"
    assert "error" not in answered
    assert refused["error"]["message"] == "declined"
    in_2026 = Client(server, capabilities={"elicitation": {}})
    begun = await in_2026.round(method, params)
    again = {**params, "inputResponses": {"sure": {"action": "accept", "content": {}}}}
    done = await in_2026.round(method, again if state is None else {**again, "requestState": state})
    answered["result"].pop("_meta", None)
    assert {key: done.result[key] for key in answered["result"]} == answered["result"]
    assert begun.result["inputRequests"] == {"sure": FORM}


async def test_a_page_that_a_middleware_shows_is_told_to_be_done() -> None:
    async with served(confirming(PAGE)) as base, old_client(base) as client:
        asked, told, answered = await client.talk(old_call("tool"), lambda m: accepted(m["id"]))
    assert told["method"] == "notifications/elicitation/complete"
    assert told["params"]["elicitationId"] == asked["params"]["elicitationId"]
    assert answered["result"]["content"][0]["text"] == "called"


async def test_a_client_of_2025_that_cannot_be_asked_reads_why() -> None:
    async with served(confirming(FORM)) as base, old_client(base, capabilities={}) as client:
        answered = await client.answered(old_call("tool"))
    assert answered["result"]["isError"] is True
    assert "elicitation" in answered["result"]["content"][0]["text"]


async def test_a_middleware_that_asks_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed, "_IDLE_SECONDS", 0.0)
    async with served(asking_calls(Interim({}, "again"))) as base, old_client(base) as client:
        answered = await client.answered(old_call("tool"))
    assert "did not end within 10 rounds" in answered["result"]["content"][0]["text"]


def asking_calls(interim: Interim) -> Server:
    """A server whose middleware answers every call with this."""
    server = Server("gate", keys=[KEY])

    @server.tool
    async def tool() -> str:
        return "called"

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        return interim if request.method == "tools/call" else await call_next(request)

    return server
