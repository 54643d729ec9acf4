"""Tasks that wait for people."""

import asyncio
from typing import Any

from ekiden import Context, Person, Server
from ekiden.pages.people.pages import Pages
from tests.pages.people.calling import Caller
from tests.pages.people.shop import KEYS, ORIGIN, Approval, Post, fill, link_in, pages_of

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def office(store: Any, post: Post, ran: list[str]) -> Server:
    server = Server("office", keys=KEYS, store=store, pages=Pages(ORIGIN, notify=post, wait_seconds=0.0))

    def note(what: str) -> None:
        ran.append(what)

    @server.tool(task="optional")
    async def order(ctx: Context, item: str) -> str:
        await ctx.step(note, f"priced {item}", key="price")
        mine = await ctx.elicit(f"Order {item}?", Approval)
        boss = await ctx.elicit(
            f"May they order {item}?", Approval, who=Person("boss@example.com", deadline=60)
        )
        await ctx.step(note, f"ordered {item}", key="order")
        return f"{mine.action} {boss.action} {boss.data.reason if boss.data else ''}"

    return server


async def until(caller: Caller, task: str, words: str) -> dict[str, Any]:
    """The task, once it says this."""
    async with asyncio.timeout(20):
        while True:
            seen = await caller.send("tasks/get", taskId=task)
            if words in str(seen):
                return seen
            await asyncio.sleep(0.02)


async def test_a_task_waits_for_people_one_after_the_other_and_goes_on_with_their_answers(store: Any) -> None:
    post, ran = Post(), list[str]()
    server = office(store, post, ran)
    async with server.running():
        caller, browser = Caller(server, **TASKS), pages_of(server)
        task = (await caller.call("order", item="desk"))["taskId"]
        seen = await until(caller, task, "Order desk?")
        assert seen["status"] == "working"
        await fill(browser, link_in(seen["statusMessage"]), approve="true")
        seen = await until(caller, task, "boss@example.com was asked")
        assert seen["status"] == "working"
        assert ORIGIN not in str(seen)
        assert [notice.person for notice in post.notices] == ["boss@example.com"]
        await fill(browser, post.path(), approve="true", reason="why not")
        seen = await until(caller, task, "completed")
        assert seen["result"]["content"][0]["text"] == "accept accept why not"
        assert ran == ["priced desk", "ordered desk"]


async def test_a_client_with_url_mode_is_shown_the_page_as_an_input_request_of_the_task(store: Any) -> None:
    post, ran = Post(), list[str]()
    server = office(store, post, ran)
    async with server.running():
        caller = Caller(server, elicitation={"url": {}}, **TASKS)
        task = (await caller.call("order", item="desk"))["taskId"]
        seen = await until(caller, task, "inputRequests")
        [(key, request)] = seen["inputRequests"].items()
        assert seen["status"] == "input_required"
        assert request["params"]["url"].startswith(f"{ORIGIN}/ask/")
        forged = {"action": "accept", "content": {"approve": True}}
        await caller.send("tasks/update", taskId=task, inputResponses={key: forged})
        assert (await caller.send("tasks/get", taskId=task))["status"] == "input_required"
        await caller.send("tasks/update", taskId=task, inputResponses={key: {"action": "decline"}})
        await until(caller, task, "boss@example.com was asked")
        assert post.notices


async def test_a_client_that_can_show_a_form_answers_its_own_question_and_not_that_of_somebody_else(
    store: Any,
) -> None:
    post, ran = Post(), list[str]()
    server = office(store, post, ran)
    async with server.running():
        caller, browser = Caller(server, elicitation={}, **TASKS), pages_of(server)
        task = (await caller.call("order", item="desk"))["taskId"]
        seen = await until(caller, task, "inputRequests")
        answers = {key: {"action": "accept", "content": {"approve": True}} for key in seen["inputRequests"]}
        await caller.send("tasks/update", taskId=task, inputResponses=answers)
        seen = await until(caller, task, "boss@example.com was asked")
        assert "inputRequests" not in seen
        for key in [f"{question}" for question in (await record(store, task)).questions]:
            forged = {key: {"action": "accept", "content": {"approve": True}}}
            await caller.send("tasks/update", taskId=task, inputResponses=forged)
        assert (await caller.send("tasks/get", taskId=task))["status"] == "working"
        await fill(browser, post.path(), "decline")
        seen = await until(caller, task, "completed")
        assert seen["result"]["content"][0]["text"] == "accept decline "


async def test_the_question_of_a_task_that_was_cancelled_cannot_be_answered_any_more(store: Any) -> None:
    server = office(store, Post(), [])
    async with server.running():
        caller, browser = Caller(server, **TASKS), pages_of(server)
        task = (await caller.call("order", item="desk"))["taskId"]
        path = link_in((await until(caller, task, "Order desk?"))["statusMessage"])
        await caller.send("tasks/cancel", taskId=task)
        await until(caller, task, "cancelled")
        page = await browser.get(path)
        assert "nothing to answer any more" in page.words
        assert "<form" not in page.text


async def record(store: Any, task: str) -> Any:
    found = await store.tasks.load(task)
    assert found is not None
    return found


async def test_of_two_answers_to_a_task_one_counts(store: Any) -> None:
    post, ran = Post(), list[str]()
    server = office(store, post, ran)
    async with server.running():
        caller = Caller(server, **TASKS)
        task = (await caller.call("order", item="desk"))["taskId"]
        path = link_in((await until(caller, task, "Order desk?"))["statusMessage"])
        browsers = [pages_of(server) for _ in range(4)]
        codes = [(await browser.get(path)).hidden("form_code") for browser in browsers]
        sent = await asyncio.gather(
            *(
                browser.post(path, {"form_code": code, "action": "decline"}, origin=ORIGIN)
                for browser, code in zip(browsers, codes, strict=True)
            )
        )
        assert [seen.status for seen in sent].count(303) == 1
        await until(caller, task, "boss@example.com was asked")
