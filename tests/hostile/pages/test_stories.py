"""Calls that are made so that nobody can look at them: their pages stay short, and take no time."""

import json
from typing import Any

import pytest

from ekiden.pages.desk.lists import task_line
from ekiden.pages.desk.reading import first_and_last
from ekiden.stores.memory import MemoryStore
from ekiden.stories.events import Event, encode_events
from ekiden.tasks.record import Question
from ekiden.testing.story_contract import _told
from ekiden.testing.task_contract import new_record
from tests.pages.browsing import Browser, Seen
from tests.pages.desk.opened import links, opened, settled, shop, site_of
from tests.processor import MOMENTS_PER_SECOND, measured
from tests.serving import ask

_MOST_MOMENTS = 3 * MOMENTS_PER_SECOND
"""For one page. What was quadratic took two minutes."""
_MOST_BYTES = 20_000_000


async def _seen(browser: Browser, path: str) -> Seen:
    with measured() as took:
        page = await browser.get(path)
    assert took.moments < _MOST_MOMENTS
    assert page.status == 200
    assert len(page.body) < _MOST_BYTES
    return page


async def _page_of(**params: Any) -> Seen:
    """The page of a call with these `params`."""
    async with opened() as (server, browser):
        await ask(server, "tools/call", {"name": "pay", "arguments": {"amount": 1}, **params})
        await settled(server)
        (call,) = links((await browser.get("/calls")).text, "/calls")
        return await _seen(browser, call)


async def test_of_twenty_thousand_answers_a_hundred_are_kept_and_the_page_says_so() -> None:
    page = await _page_of(inputResponses={f"k{number}": {} for number in range(20_000)})
    assert page.words.count("answered") == 100
    assert "19900 events are missing" in page.words


async def test_the_names_of_answers_are_kept_short() -> None:
    page = await _page_of(inputResponses={f"{number}" + "k" * 30_000: {} for number in range(100)})
    assert len(page.body) < 200_000


def _deep(levels: int, numbers: int) -> Any:
    value: Any = list(range(10)) * (numbers // 10)
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [1, 20, 100])
async def test_values_that_are_deep_and_long_are_copied_as_a_test_in_no_time(levels: int) -> None:
    answers = {f"k{number}": _deep(levels, 5000) for number in range(3)}
    page = await _page_of(arguments={"amount": 1, "note": _deep(levels, 5000)}, inputResponses=answers)
    assert "Copy as a test" in page.text


async def _written(*batches: list[Event]) -> Browser:
    """A browser, and a store with one story of these batches."""
    store = MemoryStore()
    for batch in batches:
        await store.stories.write([_told("call", events=encode_events(batch))])
    return Browser(site_of(shop(store)))


def _leg(number: int, *, journal: int = 0) -> list[Event]:
    rows = [[f"s:step{place}-AAAAAAAAAAAA", "value", "digest", 0, 9] for place in range(journal)]
    facts = json.dumps({"journal": rows, "replayed": [row[0] for row in rows]})
    name = f"leg{number}"
    return [
        Event(float(number), "leg", name, about=f"worker {number}", value='{"round": 1}'),
        Event(number + 0.1, "asked", name, "k", value='{"params": {"message": "Well?"}}'),
        Event(number + 0.2, "end", name, about="asked", value=facts),
    ]


async def test_of_a_round_that_was_repeated_thousands_of_times_the_first_and_the_last_are_shown() -> None:
    browser = await _written(*(_leg(number, journal=100) for number in range(2000)))
    page = await _seen(browser, "/calls/call")
    assert "This story is too long for a page" in page.text
    assert "worker 0" in page.text
    assert "worker 1999" in page.text
    assert "worker 1000" not in page.text


async def test_a_leg_of_many_effects_and_questions_takes_no_time() -> None:
    begun = [Event(1.0, "leg", "a", about="worker", value='{"round": 1}')]
    for number in range(2000):
        begun.append(Event(2.0, "began", "a", f"s:step{number}-AAAAAAAAAAAA"))
        begun.append(Event(3.0, "done", "a", f"s:step{number}-AAAAAAAAAAAA", 1.0, "value"))
        begun.append(Event(4.0, "asked", "a", f"k{number}.1", value="{}"))
        begun.append(Event(5.0, "answered", "a", f"k{number}", value="{}"))
    page = await _seen(await _written(begun), "/calls/call")
    assert page.text.count("too long for a page") == 0
    assert page.words.count("answered") == 2000


def test_a_story_that_fits_is_read_whole_and_in_order() -> None:
    events = [Event(float(number), "log", "a", value="x" * 100) for number in range(1000)]
    for size in (1, 7, 1000):
        batches = [encode_events(events[start : start + size]) for start in range(0, 1000, size)]
        assert first_and_last(batches) == (events, False)
    assert first_and_last([]) == ([], False)


def test_of_a_story_that_does_not_fit_both_ends_are_read_in_order() -> None:
    events = [Event(float(number), "log", "a", value="x" * 800) for number in range(5000)]
    found, is_cut = first_and_last([encode_events(events[:4990]), encode_events(events[4990:])])
    assert is_cut
    assert [each.at for each in found] == sorted({each.at for each in found})
    assert (found[0], found[-1]) == (events[0], events[-1])
    assert 1900 < len(found) < 2100


def test_the_list_of_tasks_has_the_beginning_of_a_long_question() -> None:
    params = {"message": "Send " + "x" * 1_000_000}
    question = Question("send", 1, "digest", {"method": "elicitation/create", "params": params})
    record = new_record("task", state="waiting", due=None, questions={question.key: question})
    line = task_line(record, 0.0, values=True)
    assert line.asks.startswith("Send x")
    assert len(line.asks) == 500
