"""What is worked out of the events of a call."""

import asyncio
import json
from typing import Any

from ekiden import Context, Server
from ekiden.pages.desk import Desk, Everybody
from ekiden.pages.desk.masking import masked
from ekiden.pages.desk.story import assembled, label_of
from ekiden.pages.web import Site
from ekiden.stores.memory import MemoryStore
from ekiden.stories.events import Event
from ekiden.testing import ScriptedClient
from ekiden.testing.story_contract import _told
from tests.pages.browsing import Browser
from tests.pages.desk.opened import links, settled


def leg(at: float, name: str, worker: str = "host 1", **facts: Any) -> Event:
    return Event(at, "leg", name, about=worker, value=json.dumps({"round": 1, **facts}))


def end(at: float, name: str, how: str, **facts: Any) -> Event:
    return Event(at, "end", name, about=how, value=json.dumps(facts))


def test_a_leg_without_an_end_has_lost_its_worker_once_another_begins() -> None:
    row = _told("call").row
    begun = [leg(1.0, "a"), Event(1.1, "began", "a", "s:pay-AAAAAAAAAAAA", about="shop.pay(5) at shop.py:3")]
    (alone,) = assembled(row, begun).legs
    assert (alone.how, alone.state, alone.marks[0].state) == ("", "working", "run")
    later = [leg(9.0, "b", "host 2"), end(9.5, "b", "completed", replayed=["s:charge-AAAAAAAAAAAA"])]
    view = assembled(row, [*begun, *later])
    lost, other = view.legs
    assert (lost.how, lost.state, lost.marks[0].state) == ("its worker was lost", "failed", "cut")
    assert (other.how, other.state) == ("completed", "done")
    assert [(mark.label, mark.state) for mark in other.marks] == [("charge", "replayed")]
    assert view.workers == ["host 1", "host 2"]


def test_the_request_that_makes_a_task_is_not_lost_because_the_task_has_begun() -> None:
    events = [leg(1.0, "a"), leg(1.1, "b", fence=1), end(1.2, "a", "became a task")]
    assert [each.how for each in assembled(_told("call").row, events[:2]).legs] == ["", ""]
    assert [each.how for each in assembled(_told("call").row, events).legs] == ["became a task", ""]


def test_a_question_that_was_put_again_has_the_answer_that_fits() -> None:
    asked = json.dumps({"method": "elicitation/create", "params": {"message": "How many?"}})
    events = [
        leg(1.0, "a", fence=1),
        Event(1.1, "asked", "a", "n.1", value=asked),
        end(1.1, "a", "asked"),
        leg(4.0, "b", fence=2),
        Event(4.0, "asked", "b", "n.2", value=asked),
        end(4.1, "b", "asked"),
        leg(7.0, "c", fence=3),
        Event(7.1, "done", "c", "a:n", about="answer", value='["answer",{"action":"accept"}]', size=30),
    ]
    view = assembled(_told("call").row, events)
    assert [(q.key, q.words, q.answered) for q in view.questions] == [
        ("n.1", "How many?", None),
        ("n.2", "How many?", 7.0),
    ]
    assert view.questions[1].waited == 3.0
    assert view.legs[2].marks[0].label == "How many?"
    hidden = masked(view)
    assert hidden.questions[1].words == "a question to the user"
    assert hidden.questions[1].answer == ""
    assert hidden.legs[2].marks[0].label == "a question"


def test_events_that_were_dropped_are_counted_and_labels_have_no_digest() -> None:
    view = assembled(_told("call").row, [Event(1.0, "lost_count", "", size=7)])
    assert (view.dropped, view.legs) == (7, [])
    assert label_of("s:make.<locals>.charge-AbCdEfGhIj_-") == "charge"
    assert label_of("s:charge-AbCdEfGhIj_--2") == "charge"
    assert label_of("s:my key") == "my key"


async def test_a_sealed_store_opened_without_keys_says_so() -> None:
    inner = MemoryStore()
    server = Server("shop", keys=[bytes(32)], record=True, store=inner, seal_store=True)

    @server.tool
    async def ask(word: str, ctx: Context) -> str:
        return (await ctx.elicit(f"A secret {word}?", bool)).action

    async with server.running():
        await ScriptedClient(server, {"A secret": True}).call_tool("ask", {"word": "thing"})
        await settled(server)
        await asyncio.sleep(0)
    desk = Desk(stories=inner.stories, tasks=inner.tasks, access=Everybody())
    site = Site(secure=False)
    desk.install(site)
    (path,) = links((await Browser(site).get("/calls")).text, "/calls")
    page = await Browser(site).get(path)
    assert page.status == 200
    assert "This store is sealed" in page.words
    assert "secret" not in page.text
