"""Our own client at servers of the draft 2026-06-XX: its tasks, and results that do not say what they are."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import (
    CallCancelled,
    CannotAnswer,
    Client,
    Context,
    InvalidResult,
    PendingCall,
    ServerError,
    TaskHandle,
    TaskSnapshot,
    UsageError,
)
from ekiden.wire.draft import is_incomplete_unsaid
from tests.acceptance.driving import served as served_at
from tests.client.tasks.draft_server import DraftServer
from tests.client.tasks.test_handle import Person, text
from tests.client.tasks.test_legacy import shop
from tests.serving import served
from tests.tasks.driving import new_server

DRAFT = "2026-06-XX"

# A server of others


async def name(params: ElicitRequestFormParams) -> ElicitResult:
    (field,) = params.requested_schema["properties"]
    return ElicitResult(action="accept", content={field: "Ann"})


@pytest.fixture
async def draft() -> AsyncGenerator[tuple[DraftServer, str], None]:
    server = DraftServer()
    async with served(server.app) as base:
        yield server, f"{base}/mcp"


async def test_a_task_is_followed_from_its_creation_to_its_result(draft: tuple[DraftServer, str]) -> None:
    server, url = draft
    seen: list[TaskSnapshot] = []
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        assert client.session.version == DRAFT
        assert text(await client.call_tool("echo", on_status=seen.append)) == "Echo: Ann"
    statuses = [snapshot.status for snapshot in seen]
    assert statuses == ["working", "input_required", "completed"]
    assert len(server.sent("tasks/input_response")) == 1
    assert len(server.sent("tasks/result")) == 2
    asked = [message["method"] for message in server.heard]
    assert "subscriptions/listen" not in asked
    assert asked.count("initialize") == 1


async def test_an_interim_result_needs_no_result_type(draft: tuple[DraftServer, str]) -> None:
    server, url = draft
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        assert text(await client.call_tool("weather")) == "72 for Ann"
        pending = await client.start_tool("weather")
        assert isinstance(pending, PendingCall)
        assert list(pending.requests) == ["login"]
    assert [call.get("requestState") for call in server.sent("tools/call")] == [None, "foo", None]


async def test_a_task_is_answered_by_hand_and_by_another_client(draft: tuple[DraftServer, str]) -> None:
    _, url = draft
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        handle = await client.start_tool("echo")
        assert isinstance(handle, TaskHandle)
        written = handle.to_json()
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        other = client.task(written)
        assert (await other.status()).input_requests == {}, "it is only working yet"
        asked = (await other.status()).input_requests
        assert list(asked) == ["echo_input"]
        with pytest.raises(UsageError, match=r"'echo_input' \('What shall I echo\?'\) was not sent"):
            await other.answer({"echo_input": {"action": "accept", "content": {}}})
        await other.answer({"echo_input": {"action": "accept", "content": {"input": "Bob"}}})
        ended = await other.status()
        assert (ended.status, ended.result is not None) == ("completed", True)
        assert text(await other.wait(timeout=20)) == "Echo: Bob"


async def test_a_task_that_nobody_can_answer_is_cancelled(draft: tuple[DraftServer, str]) -> None:
    server, url = draft
    async with Client(url, experimental_protocol_version=DRAFT) as client:
        with pytest.raises(CannotAnswer):
            await client.call_tool("echo")
        assert server.cancelled
        with pytest.raises(CallCancelled):
            await client.task("echo_1").wait(timeout=20)


async def test_a_task_that_fails_raises_the_error_of_its_result(draft: tuple[DraftServer, str]) -> None:
    server, url = draft
    server.fails = True
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        with pytest.raises(ServerError, match="the echo is broken"):
            await client.call_tool("echo")


@pytest.mark.parametrize("wrong", [{"inputRequests": {"k": 5}}, {"inputRequests": {}, "requestState": "s"}])
async def test_questions_that_are_none_are_refused_or_waited_for(
    draft: tuple[DraftServer, str], wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = draft
    real, results = server._result, iter([wrong])
    monkeypatch.setattr(server, "_result", lambda params: next(results, None) or real(params))
    async with Client(url, elicit=name, experimental_protocol_version=DRAFT) as client:
        if wrong["inputRequests"]:
            with pytest.raises(InvalidResult, match="malformed"):
                await client.call_tool("echo")
        else:
            assert text(await client.call_tool("echo")) == "Echo: Ann"


@pytest.mark.parametrize(
    ("result", "incomplete"),
    [
        ({"inputRequests": {"k": {}}}, True),
        ({"requestState": "s"}, True),
        ({"inputRequests": {"k": {}}, "requestState": "s", "_meta": {}}, True),
        ({"content": [], "requestState": "s"}, False),
        ({"contents": [], "inputRequests": {}}, False),
        ({"messages": [], "inputRequests": {}}, False),
        ({"result_type": "complete", "requestState": "s"}, False),
        ({"requestState": 5}, False),
        ({}, False),
    ],
)
def test_what_an_incomplete_result_is_recognised_by(result: dict[str, Any], incomplete: bool) -> None:
    assert is_incomplete_unsaid(result) is incomplete


# Our own server

Called = Callable[..., Client]


@pytest.fixture(params=["http", "memory"])
async def ours(request: pytest.FixtureRequest, store: Any) -> AsyncGenerator[Called, None]:
    server = shop(store, experimental_protocol_version=DRAFT)

    @server.tool(task="deferred")
    async def book(ctx: Context) -> str:
        first = await ctx.elicit("book?", bool)
        await ctx.background()
        second = await ctx.elicit("seat?", int)
        return f"{first.data} {second.data}"

    if request.param == "http":
        async with served_at(server) as url:
            yield lambda **options: Client(url, experimental_protocol_version=DRAFT, **options)
    else:
        async with server.running():
            yield lambda **options: Client(server, experimental_protocol_version=DRAFT, **options)


async def test_tools_of_our_server_are_tasks_where_they_want_to_be(ours: Called) -> None:
    person = Person(True, 3)
    async with ours(elicit=person) as client:
        assert client.session.version == DRAFT
        seen: list[TaskSnapshot] = []
        assert text(await client.call_tool("refund", on_status=seen.append)) == "True 3"
        assert text(await client.call_tool("add", {"n": 1})) == "2"
        assert text(await client.call_tool("plain")) == "plain"
        optional = await client.start_tool("add", {"n": 1})
        assert isinstance(optional, TaskHandle)
        assert text(await optional.wait(timeout=20)) == "2"
    assert person.asked == ["refund?", "how many?"]
    assert seen[-1].status == "completed"


async def test_a_call_that_asks_first_becomes_a_task_later(ours: Called) -> None:
    person = Person(True, 3)
    async with ours(elicit=person) as client:
        pending = await client.start_tool("book")
        assert isinstance(pending, PendingCall)
        handle = await client.resume(PendingCall.from_json(pending.to_json()))
        assert isinstance(handle, TaskHandle)
        assert text(await handle.wait(timeout=20)) == "True 3"
    assert person.asked == ["book?", "seat?"]


async def test_ends_that_are_not_results(ours: Called) -> None:
    async with ours() as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("fails", {"how": "protocol"})
        assert (caught.value.code, caught.value.message) == (-32602, "no")
        result = await client.call_tool("fails", {"how": "tool"})
        assert (result.is_error, text(result)) == (True, "closed")
        handle = await client.start_tool("endless")
        assert isinstance(handle, TaskHandle)
        waiting = asyncio.create_task(handle.wait(timeout=20))
        await handle.cancel()
        await handle.cancel()  # Once more changes nothing.
        with pytest.raises(CallCancelled):
            await waiting


async def test_a_task_that_another_client_answers_is_not_waited_for_in_the_wrong_place(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered between `tasks/get` and `tasks/result`, which would wait for the end of the task."""
    monkeypatch.setattr("ekiden.client.tasks.draft._QUESTIONS_SECONDS", 0.2)
    server = new_server(store, experimental_protocol_version=DRAFT)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.elicit("go?", bool)
        await ctx.sleep(0.6)
        return "done"

    answered = asyncio.Event()
    yes = {"action": "accept", "content": {"value": True}}
    options: dict[str, Any] = {"elicit": Person(), "experimental_protocol_version": DRAFT}
    async with server.running(), Client(server, **options) as client:
        handle = await client.start_tool("slow")
        assert isinstance(handle, TaskHandle)
        async with asyncio.timeout(10):
            while not (asked := (await handle.status()).input_requests):
                await asyncio.sleep(0.01)
        late = client.task(handle.id)
        send = late._send

        async def send_late(method: str, **params: Any) -> Any:
            if method == "tasks/result" and not answered.is_set():
                await handle.answer(dict.fromkeys(asked, yes))
                answered.set()
            return await send(method, **params)

        monkeypatch.setattr(late, "_send", send_late)
        snapshot = await late.status()
        assert (snapshot.status, snapshot.input_requests) == ("working", {})
        assert text(await late.wait(timeout=20)) == "done"
