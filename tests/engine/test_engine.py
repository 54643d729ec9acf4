"""The engine's public surface: what integrations stand on, without a transport and without a host."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

import ekiden.engine
from ekiden import CacheHint, Context, InvalidParams, ProtocolError, Request, Server, UsageError
from ekiden.engine import Engine, HostStream, principal_of
from ekiden.errors import CannotAsk
from tests.serving import meta, soon

KEY = "bqMJ8Ow9t3d0DPSLtXsMOGN0yGFoC9wVLNeUl4hJH9E="
FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
OLD = {"version": "2025-11-25", "capabilities": {"elicitation": {}}, "client_info": {"name": "old"}}


class Confirm(BaseModel):
    ok: bool


def shop(**options: Any) -> Engine:
    server = Server("shop", **{"keys": [KEY], "principal": principal_of, **options})

    @server.tool
    async def refund(order: str, ctx: Context) -> str:
        """Refund an order."""
        answer = await ctx.elicit(f"Refund {order}?", Confirm)
        return f"{order}: {answer.action}"

    @server.prompt
    async def letter(name: str) -> str:
        """A letter."""
        return f"Dear {name}"

    @server.resource("shop://orders/{number}")
    async def order(number: str) -> str:
        """An order."""
        return f"order {number}"

    return Engine(server)


class Back:
    """The client's end of a stream."""

    def __init__(self, answer: Any = None) -> None:
        self.notified: list[tuple[str, dict[str, Any]]] = []
        self.pushed: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        self.notified.append((method, params))

    async def push(self, method: str, params: dict[str, Any]) -> Any:
        self.pushed.append((method, params))
        return self._answer


def modern(
    engine: Engine, method: str, params: Mapping[str, Any], principal: str = "", **more_meta: Any
) -> Request:
    return engine.request(method, {**params, "_meta": meta(**more_meta)}, principal=principal)


async def answered(engine: Engine, request: Request, back: Back | None = None) -> dict[str, Any]:
    back = back or Back()
    outcome = await soon(engine.answer(request, HostStream(request, back.notify, back.push)))
    return engine.result(request, outcome)


CALL = {"name": "refund", "arguments": {"order": "A1"}}
YES = {"action": "accept", "content": {"ok": True}}


def test_the_public_names_are_these_and_no_others() -> None:
    assert ekiden.engine.__all__ == [
        "AskingStream",
        "Carrier",
        "Engine",
        "HostStream",
        "Keys",
        "Kind",
        "Lasting",
        "Matcher",
        "ResumeMode",
        "Stream",
        "TokenSealer",
        "answers_by_hand",
        "ask",
        "has_lasting_keys",
        "lasting",
        "principal_of",
    ]


async def test_a_call_of_two_rounds_is_answered_without_a_transport() -> None:
    engine = shop()
    async with engine.running():
        asked = await answered(engine, modern(engine, "tools/call", CALL, **FORMS))
        assert asked["resultType"] == "input_required"
        assert Engine.is_token(asked["requestState"])
        again = {
            **CALL,
            "requestState": asked["requestState"],
            "inputResponses": dict.fromkeys(asked["inputRequests"], YES),
        }
        done = await answered(engine, modern(engine, "tools/call", again, **FORMS))
    assert done == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "A1: accept"}],
    }, "and it is not signed: the host says who it is"


async def test_a_client_of_2025_is_asked_through_the_host() -> None:
    engine, back = shop(), Back(YES)
    async with engine.running():
        request = engine.request("tools/call", CALL, request_id=7, **OLD)
        done = await answered(engine, request, back)
    assert done == {"content": [{"type": "text", "text": "A1: accept"}]}
    ((method, params),) = back.pushed
    assert (method, params["message"]) == ("elicitation/create", "Refund A1?")


async def test_a_client_of_2025_without_a_session_is_told_that_it_cannot_be_asked() -> None:
    engine = shop()
    async with engine.running():
        request = engine.request("tools/call", CALL, **OLD)
        outcome = await engine.answer(request, HostStream(request, Back().notify))
    result = engine.result(request, outcome)
    assert result["isError"]
    assert "has no session" in result["content"][0]["text"]


async def test_a_question_that_an_old_version_has_no_words_for_says_so() -> None:
    request = shop().request("tools/call", CALL, version="2025-06-18")
    stream = HostStream(request, None, Back().push)
    choices = {"type": "object", "properties": {"toppings": {"type": "array"}}}
    with pytest.raises(CannotAsk, match=r"2025-06-18: field 'toppings'"):
        await stream.ask("elicitation/create", {"message": "?", "requestedSchema": choices}, "")


async def test_a_stream_says_nothing_after_its_request_has_ended() -> None:
    back = Back(YES)
    stream = HostStream(shop().request("tools/call", CALL, **OLD), back.notify, back.push)
    stream.open = False
    await stream.notify("notifications/message", {})
    with pytest.raises(CannotAsk, match="has ended"):
        await stream.ask("elicitation/create", {}, "")
    assert (back.notified, back.pushed, stream.can_notify) == ([], [], False)


async def test_a_missing_capability_is_an_error_in_2026_and_a_result_in_2025() -> None:
    engine = shop()
    async with engine.running():
        with pytest.raises(ProtocolError) as refused:
            await answered(engine, modern(engine, "tools/call", CALL))
        old = await answered(engine, engine.request("tools/call", CALL, version="2025-11-25"))
    assert refused.value.code == -32021
    assert old["isError"]
    assert "elicitation" in old["content"][0]["text"]


async def test_a_state_is_valid_only_for_the_principal_it_was_made_for() -> None:
    engine = shop()
    async with engine.running():
        asked = await answered(engine, modern(engine, "tools/call", CALL, "alice", **FORMS))
        again = {**CALL, "requestState": asked["requestState"], "inputResponses": {}}
        with pytest.raises(ProtocolError, match="requestState"):
            await answered(engine, modern(engine, "tools/call", again, "bob", **FORMS))
        assert (await answered(engine, modern(engine, "tools/call", again, "alice", **FORMS)))["requestState"]


def test_definitions_are_those_of_the_clients_version() -> None:
    engine = shop(store="memory:")
    engine.server.add_tool(_count, task="optional", output_schema={"type": "integer"})
    tools = {tool["name"]: tool for tool in engine.definitions("tools")}
    old = {tool["name"]: tool for tool in engine.definitions("tools", "2025-11-25")}
    assert list(tools) == ["refund", "_count"]
    assert "outputSchema" not in tools["refund"]
    assert tools["_count"]["outputSchema"] == {"type": "integer"}
    assert old["_count"]["outputSchema"]["required"] == ["result"]
    assert old["_count"]["execution"] == {"taskSupport": "optional"}
    assert [prompt["name"] for prompt in engine.definitions("prompts")] == ["letter"]
    assert engine.definitions("resources") == []
    (template,) = engine.definitions("resourceTemplates")
    assert template["uriTemplate"] == "shop://orders/{number}"


async def _count(ctx: Context) -> int:
    """Count slowly."""
    await ctx.step(_wait)
    return 3


async def _wait() -> None:
    """Nothing to wait for."""


def test_one_definition_is_found_by_its_name_or_uri() -> None:
    engine = shop(store="memory:")
    engine.server.add_tool(_count, task="optional")
    for kind, key in (
        ("tools", "_count"),
        ("prompts", "letter"),
        ("resourceTemplates", "shop://orders/{number}"),
    ):
        for version in ("2026-07-28", "2025-11-25", "2025-03-26"):
            assert engine.definition(kind, key, version) in engine.definitions(kind, version)
    assert engine.definition("tools", "letter") is None


def test_it_is_known_what_is_served_here() -> None:
    engine = shop()
    assert engine.serves("tools/call", "refund")
    assert engine.serves("prompts/get", "letter")
    assert engine.serves("resources/read", "shop://orders/7")
    assert not engine.serves("tools/call", "letter")
    assert not engine.serves("resources/read", "shop://customers/7")


def test_tasks_are_declared_only_where_a_tool_can_become_one() -> None:
    engine = shop(store="memory:")
    assert (engine.task_methods("2026-07-28"), engine.task_capabilities("2026-07-28")) == ((), {})
    engine.server.add_tool(_count, task="optional")
    assert engine.task_capabilities("2026-07-28") == {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert engine.task_capabilities("2025-06-18") == {}
    assert "list" not in engine.task_capabilities("2025-11-25")["tasks"]
    assert "list" in engine.task_capabilities("2025-11-25", has_principal=True)["tasks"]
    assert "tasks/result" in engine.task_methods("2025-11-25")


async def test_the_changes_of_a_task_are_fed_until_it_has_ended() -> None:
    engine = shop(store="memory:")
    engine.server.add_tool(_count, task="optional")
    call = {"name": "_count", "arguments": {}}
    async with engine.running():
        created = await answered(engine, modern(engine, "tools/call", call, "alice", **TASKS))
        assert created["resultType"] == "task"
        async with asyncio.timeout(10):
            states = [state async for state in engine.task_changes(created["taskId"])]
            old = [state async for state in engine.task_changes(created["taskId"], "2025-11-25")]
    assert states[-1]["status"] == "completed"
    assert states[-1]["result"]["structuredContent"] == 3
    assert [(state["status"], "result" in state) for state in old] == [("completed", False)]


class Reversed:
    """A sealer that seals nothing, so that a test can read its tokens."""

    def seal(self, data: bytes) -> str:
        return data.hex()[::-1]

    def open(self, token: str) -> bytes | None:
        try:
            return bytes.fromhex(token[::-1])
        except ValueError:
            return None


async def test_a_host_can_seal_tokens_itself() -> None:
    engine = shop(keys=Reversed())
    async with engine.running():
        asked = await answered(engine, modern(engine, "tools/call", CALL, **FORMS))
        assert b"refund" in (Reversed().open(asked["requestState"].removeprefix("ekx.")) or b"")
        assert Engine.is_token(asked["requestState"])
        again = {**CALL, "requestState": asked["requestState"], "inputResponses": {}}
        assert "inputRequests" in await answered(engine, modern(engine, "tools/call", again, **FORMS))
        with pytest.raises(ProtocolError, match="requestState"):
            await answered(engine, modern(engine, "tools/call", {**again, "requestState": "ek1.x"}, **FORMS))


def test_a_sealer_of_tokens_does_not_seal_a_store() -> None:
    with pytest.raises(UsageError, match="seals no stores"):
        Server("shop", keys=Reversed(), store="memory:", seal_store=True)


def test_a_request_that_cannot_be_one_is_refused() -> None:
    engine = shop()
    with pytest.raises(InvalidParams, match="_meta"):
        engine.request("tools/call", CALL)
    with pytest.raises(ProtocolError, match="Method not found"):
        modern(engine, "tasks/get", {"taskId": "1"})
    with pytest.raises(UsageError, match="must be one of 2026-07-28, 2025-11-25"):
        engine.request("tools/call", CALL, version="1999-01-01")


async def test_what_is_kept_as_bytes_is_a_result_too() -> None:
    engine = shop(cache={"tools/list": CacheHint(ttl_ms=5)})
    async with engine.running():
        listed = await answered(engine, modern(engine, "tools/list", {}))
        old = await answered(engine, engine.request("tools/list", {}, version="2025-06-18"))
    assert (listed["ttlMs"], [tool["name"] for tool in listed["tools"]]) == (5, ["refund"])
    assert set(old) == {"tools"}
