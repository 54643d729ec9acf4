"""The page Tasks: the list, a story with its journal, and what may be done."""

import asyncio
from typing import Any

from ekiden import Person, Server
from ekiden.pages.desk import Desk, Everybody
from ekiden.pages.desk.lists import task_line
from ekiden.pages.web import Site
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.record import Question, TaskRecord
from ekiden.testing import ScriptedClient
from ekiden.testing.task_contract import new_record
from ekiden.testing.task_contract.records import step
from tests.pages.browsing import Browser, Seen
from tests.pages.desk.opened import ONLY_LOOKS, links, opened, settled, site_of, tries
from tests.stories.telling import until


async def begin(server: Server, tool: str, **arguments: Any) -> str:
    """Call a tool that becomes a task; its id."""
    client = ScriptedClient(server, tasks=True)
    round_ = await client.round("tools/call", {"name": tool, "arguments": arguments})
    return str(round_.result["taskId"])


async def waits(server: Server, task_id: str, *, asks: bool = False, state: str = "waiting") -> TaskRecord:
    async def found() -> TaskRecord | None:
        store: Any = server._store
        record = await store.tasks.load(task_id)
        is_there = record.state == state and bool(record.open_questions()) == asks
        return record if is_there else None

    found_record: TaskRecord = await until(found)
    await settled(server)
    return found_record


def asked(**options: Any) -> TaskRecord:
    """A task that waits for an answer."""
    params = {"message": "Spend it?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
    question = Question("spend", 1, "digest", {"method": "elicitation/create", "params": params}, **options)
    return new_record("task", state="waiting", due=None, questions={question.key: question})


async def test_a_time_that_no_calendar_has_hides_no_tasks() -> None:
    async with opened() as (server, browser):
        store: Any = server._store
        far = new_record("f" * 32, state="waiting", ttl=1e300, due=1e300)
        await store.tasks.insert(far, {})
        for path in ("/tasks", f"/tasks/{far.id}"):
            page = await browser.get(path)
            assert page.status == 200
            assert far.id[:8] in page.text


async def test_a_task_says_for_whom_it_waits() -> None:
    boss = Person("ann@example.com", deadline=60, escalate=("boss@example.com",))
    records = [asked(), asked(paged=True), asked(paged=True, person=Person("ann@example.com"))]
    records.append(asked(paged=True, person=boss))
    lines = [task_line(record, 0.0, values=True) for record in records]
    assert [line.waits_for.removeprefix("an answer of ") for line in lines] == [
        "the client",
        "the caller's user, on a page",
        "ann@example.com",
        "ann@example.com, then boss@example.com",
    ]
    assert {line.asks for line in lines} == {"Spend it?"}
    assert task_line(records[0], 0.0, values=False).asks == ""
    store = MemoryStore()
    await store.tasks.insert(records[3], {})
    desk = Desk(stories=store.stories, tasks=store.tasks, access=Everybody())
    site = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(site)
    page = await Browser(site).get("/tasks/task")
    assert "Waits for an answer of ann@example.com, then boss@example.com: Spend it?" in page.words


async def post(browser: Browser, page: Seen, task_id: str, what: str, **form: str) -> Seen:
    return await browser.post(f"/tasks/{task_id}/{what}", {"form_code": page.hidden("form_code"), **form})


async def test_tasks_are_listed_with_what_they_wait_for() -> None:
    async with opened() as (server, browser):
        assert "No tasks yet" in (await browser.get("/tasks")).words
        asleep, asking = await begin(server, "ship", parcel="a book"), await begin(server, "retry")
        await waits(server, asleep)
        await waits(server, asking, asks=True)
        seen = await browser.get("/tasks")
        assert "waiting ship" in seen.words
        assert "a time, 60 min" in seen.words
        assert "an answer of the client Well?" in seen.words
        assert set(links(seen.text, "/tasks")) == {f"/tasks/{asleep}", f"/tasks/{asking}"}
        assert links((await browser.get("/tasks?q=shi")).text, "/tasks") == [f"/tasks/{asleep}"]
        assert links((await browser.get(f"/tasks?q={asking}")).text, "/tasks") == [f"/tasks/{asking}"]
        assert "Nothing fits" in (await browser.get("/tasks?state=failed")).words


async def test_pages_of_a_long_list_have_every_task_once() -> None:
    store = MemoryStore()
    for number in range(120):
        await store.tasks.insert(new_record(f"task{number:03}", created=1000.0 + number // 3), {})
    async with opened(store=store) as (_, browser):
        seen: list[str] = []
        path = "/tasks"
        while path:
            page = await browser.get(path)
            seen += links(page.text, "/tasks")
            older = [part for part in page.text.split('href="') if "after=" in part and ">Older<" in part]
            path = older[0].partition('"')[0].replace("&amp;", "&") if older else ""
    assert seen == [f"/tasks/task{number:03}" for number in range(119, -1, -1)]


async def test_a_task_with_a_retry_is_answered_on_its_page() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "retry")
        await waits(server, task_id, asks=True)
        page = await browser.get(f"/tasks/{task_id}")
        assert "Well?" in page.words
        assert "3 tries" in page.words or page.words.count("retried") > 1
        record = await server._store.tasks.load(task_id)  # type: ignore[union-attr]
        (key,) = record.open_questions()
        wrong = await post(browser, page, task_id, "answer", key=key, action="accept")
        assert wrong.status == 422
        assert "Something is not right yet" in wrong.words
        answered = await post(
            browser, page, task_id, "answer", key=key, action="accept", **{"/value": "true"}
        )
        assert answered.status == 303
        await waits(server, task_id, state="completed")
        page = await browser.get(f"/tasks/{task_id}")
        assert "completed" in page.words
        assert "receipt -1 accept" in page.words
        audit = await browser.get("/actions")
        assert "ann answer" in audit.words
        assert "The answer was taken." in audit.words


async def test_a_task_that_sleeps_is_woken_and_goes_on_at_once() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "ship", parcel="a book")
        await waits(server, task_id)
        page = await browser.get(f"/tasks/{task_id}")
        assert "Wake now" in page.words
        assert (await post(browser, page, task_id, "wake")).status == 303
        await waits(server, task_id, asks=True)
        assert "Send a book?" in (await browser.get(f"/tasks/{task_id}")).words
        assert tries == [1]


async def test_a_task_is_cancelled_and_the_page_says_so() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "ship", parcel="a book")
        await waits(server, task_id)
        page = await browser.get(f"/tasks/{task_id}")
        await post(browser, page, task_id, "cancel")
        await waits(server, task_id, state="cancelled")
        page = await browser.get(f"/tasks/{task_id}")
        assert "cancelled" in page.words
        assert "Cancel the task" not in page.words


async def test_a_task_runs_again_from_a_step_with_the_journal_up_to_there() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "ship", parcel="a book")
        await waits(server, task_id)
        page = await browser.get(f"/tasks/{task_id}")
        assert tries == [1]
        again = await post(browser, page, task_id, "again", key="s:charge")
        other = again.headers["location"].rpartition("/")[2]
        assert other != task_id
        await waits(server, other)
        assert tries == [1, 1]
        await post(browser, page, task_id, "wake")
        await waits(server, task_id, asks=True)
        page = await browser.get(f"/tasks/{task_id}")
        again = await post(browser, page, task_id, "again", key="z:sleep")
        await waits(server, again.headers["location"].rpartition("/")[2])
        assert tries == [1, 1]


async def test_who_only_looks_changes_nothing_and_the_try_is_noted() -> None:
    async with opened(ONLY_LOOKS) as (server, browser):
        task_id = await begin(server, "ship", parcel="a secret book")
        await waits(server, task_id)
        page = await browser.get(f"/tasks/{task_id}")
        assert "Cancel the task" not in page.words
        assert "secret" not in page.text
        code = Browser(site_of(server))
        other = await code.get(f"/tasks/{task_id}")
        browser.cookies = code.cookies
        for action in ("cancel", "wake", "again"):
            refused = await post(browser, other, task_id, action, key="s:charge")
            assert refused.status == 403
        await waits(server, task_id)
        assert "refused: not allowed" in (await browser.get("/actions")).words


async def test_a_form_of_another_site_does_nothing() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "ship", parcel="a book")
        await waits(server, task_id)
        await browser.get(f"/tasks/{task_id}")
        assert (await browser.post(f"/tasks/{task_id}/cancel", {"form_code": "guessed"})).status == 403
        await waits(server, task_id)


async def test_a_task_of_which_nothing_was_recorded_has_its_journal() -> None:
    store = MemoryStore()
    await store.tasks.insert(new_record("task", tool="old"), {"s:pay-AAAAAAAAAAAA": step("paid")})
    desk = Desk(stories=store.stories, tasks=store.tasks, access=Everybody())
    site = Site(secure=False)
    desk.install(site)
    page = await Browser(site).get("/tasks/task")
    assert "Nothing was recorded" in page.words
    assert "pay s:pay-AAAAAAAAAAAA step" in page.words
    assert (await Browser(site).get("/tasks/nothing")).status == 404


async def test_a_store_that_is_away_is_said_in_words() -> None:
    from ekiden import StoreUnavailable

    store = MemoryStore()

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("no connection")

    store.stories.listing = away  # type: ignore[method-assign]
    desk = Desk(stories=store.stories, tasks=store.tasks, access=Everybody())
    site = Site(secure=False)
    desk.install(site)
    seen = await Browser(site).get("/calls")
    assert seen.status == 503
    assert "The store cannot be reached" in seen.words


async def test_an_open_page_of_a_task_is_drawn_again_when_it_changes() -> None:
    async with opened() as (server, browser):
        task_id = await begin(server, "ship", parcel="a book")
        await waits(server, task_id)
        pieces: asyncio.Queue[bytes] = asyncio.Queue()

        async def send(event: dict[str, Any]) -> None:
            if body := event.get("body"):
                pieces.put_nowait(body)

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        shown = (await browser.get(f"/tasks/{task_id}")).text
        seen = shown.partition("?seen=")[2].partition('"')[0]
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/live/tasks/{task_id}",
            "query_string": f"seen={seen}".encode(),
            "headers": [(b"host", b"127.0.0.1")],
        }
        live = asyncio.create_task(browser.app(scope, receive, send))
        async with asyncio.timeout(5):
            assert await pieces.get() == b"retry: 2000\n\n"
            assert b'<div id="story"' in await pieces.get()
            page = await browser.get(f"/tasks/{task_id}")
            await post(browser, page, task_id, "cancel")
            assert b"event: reload" in await pieces.get()
        live.cancel()
        await asyncio.wait({live})
