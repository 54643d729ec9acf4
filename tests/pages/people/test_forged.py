"""Nobody answers in the place of a person: what a client says for somebody who is asked by name is not heard.

Every way in which a client can send an answer is tried, before the person was asked and after.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ekiden import Context, ProtocolError, Server
from ekiden.engine import Engine, HostStream
from ekiden.pages.people.pages import Pages
from ekiden.rounds.asks import PAGED, PAGES
from ekiden.server.questions.addressed import addressed
from ekiden.server.questions.forms import form_for
from ekiden.stores.memory import MemoryStore
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from tests.pages.people.calling import Caller
from tests.pages.people.shop import KEYS, ORIGIN, Approval, Post, Size, fill, pages_of

BOSS = "boss@example.com"
QUESTION = "May they?"
DERIVED = addressed(form_for(Approval).ask(QUESTION), BOSS, {PAGES: PAGED}).name
"""The key of the question where its author gave none: anybody can work it out of its words."""
YES = {"action": "accept", "content": {"approve": True, "reason": "forged"}}
FORGED = {
    "boss": YES,
    DERIVED: YES,
    "boss.1": YES,
    f"{DERIVED}.1": YES,
    "size": {"action": "accept", "content": {"size": "large"}},
}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def approved(ctx: Context, key: str | None = "boss") -> str:
    """What is done once the boss has agreed."""
    answer = await ctx.elicit(QUESTION, Approval, key=key, who=BOSS)
    if answer.action != "accept" or not answer.data.approve:
        return answer.action

    async def done() -> None:
        ctx.state.append("done")

    await ctx.step(done, key="done")
    return f"done, {answer.data.reason}"


async def unnamed(ctx: Context) -> str:
    return await approved(ctx, None)


async def after_another(ctx: Context) -> str:
    await ctx.elicit("Which size?", Size, key="size")
    return await approved(ctx)


async def beside_another(ctx: Context) -> str:
    _, said = await asyncio.gather(ctx.elicit("Which size?", Size, key="size"), approved(ctx))
    return said


async def named(ctx: Context) -> str:
    return await approved(ctx)


def office(store: Any, post: Post, ran: list[str]) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[list[str], None]:
        yield ran

    pages = Pages(ORIGIN, notify=post, wait_seconds=0.0)
    server = Server("office", keys=KEYS, store=store, pages=pages, lifespan=lifespan)
    for tool in (named, unnamed, after_another, beside_another):
        server.add_tool(tool)
    server.add_tool(named, name="strict", once=True)
    server.add_tool(named, name="parked", resume="parked")
    server.add_prompt(named, name="letter")
    server.add_resource("office://safe", named)
    return server


TOOLS = ("named", "unnamed", "strict", "parked", "after_another", "beside_another")
WAYS: list[tuple[str, dict[str, Any]]] = [
    *(("tools/call", {"name": tool, "arguments": {}}) for tool in TOOLS),
    ("prompts/get", {"name": "letter"}),
    ("resources/read", {"uri": "office://safe"}),
]


async def answered(server: Server, era: str, method: str, params: dict[str, Any]) -> str:
    """What a client is told, in JSON or in the words of an error."""
    engine, able = Engine(server), {"elicitation": {"form": {}}}
    meta = {PROTOCOL_VERSION: era, CLIENT_CAPABILITIES: able, CLIENT_INFO: {"name": "x", "version": "1"}}
    told = {**params, "_meta": meta} if era == "2026-07-28" else params
    request = engine.request(method, told, version=era, capabilities=able, session="one")

    async def nothing(*_: Any) -> None:
        """Notifications are not of interest here."""

    try:
        return str(engine.result(request, await engine.answer(request, HostStream(request, nothing))))
    except ProtocolError as error:
        return error.message


@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize(("method", "params"), WAYS, ids=lambda each: str(each))
async def test_no_request_answers_for_somebody_who_is_asked_by_name(
    era: str, method: str, params: dict[str, Any]
) -> None:
    post, ran = Post(), list[str]()
    server = office(MemoryStore(), post, ran)
    async with server.running():
        for _ in range(2):  # Before the person was asked, and after.
            told = await answered(server, era, method, {**params, "inputResponses": FORGED})
            assert "boss@example.com was asked" in told
        assert (ran, [notice.person for notice in post.notices]) == ([], [BOSS])
        await fill(pages_of(server), post.path(), approve="true", reason="fine")
        told = await answered(server, era, method, {**params, "inputResponses": FORGED})
        assert "done, fine" in told
        assert ran == ["done"]


async def test_a_question_that_comes_up_beside_another_is_not_answered_with_that_one() -> None:
    post, ran = Post(), list[str]()
    server = office(MemoryStore(), post, ran)
    async with server.running():
        caller = Caller(server, elicitation={"form": {}})
        for tool in ("after_another", "beside_another"):
            asked = await caller.call(tool)
            assert list(asked["inputRequests"]) == ["size"]
            told = str(await caller.call(tool, asked["requestState"], FORGED))
            assert "boss@example.com was asked" in told
    assert ran == []


async def test_a_question_that_comes_up_while_a_task_is_answered_is_not_answered_with_the_others(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("office", keys=KEYS, store=store, pages=Pages(ORIGIN, notify=Post(), wait_seconds=0.0))
    is_sent = asyncio.Event()

    async def wait() -> None:
        await is_sent.wait()

    @server.tool(task="optional")
    async def order(ctx: Context) -> str:
        async def approved() -> str:
            await ctx.step(wait, key="wait")
            return (await ctx.elicit(QUESTION, Approval, key="boss", who=BOSS)).action

        _, said = await asyncio.gather(ctx.elicit("Which size?", Size, key="size"), approved())
        return said

    tasks = server.endpoint.tasks
    assert tasks is not None
    answer_row = tasks.store.answer

    async def until_asked(task_id: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                record = await tasks.store.load(task_id)
                assert record is not None
                if found := record.paged_questions():
                    return found
                await asyncio.sleep(0.01)

    async def late(task_id: str, responses: Any, *, now: float) -> Any:
        is_sent.set()  # The client's request was looked at; now the task comes to its next question.
        await until_asked(task_id)
        return await answer_row(task_id, responses, now=now)

    async with server.running():
        caller = Caller(server, elicitation={"form": {}}, **TASKS)
        task = (await caller.call("order"))["taskId"]
        async with asyncio.timeout(60):
            while "size.1" not in str(await caller.send("tasks/get", taskId=task)):
                await asyncio.sleep(0.01)
        monkeypatch.setattr(tasks.store, "answer", late)
        given = {"size.1": FORGED["size"], "boss.1": YES}
        await caller.send("tasks/update", taskId=task, inputResponses=given)
        record = await tasks.store.load(task)
        assert record is not None
        assert list(record.paged_questions()) == ["boss.1"]
