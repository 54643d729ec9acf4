"""What is exactly at a limit: due now, expired now, just within what may be kept. The same in every store."""

from collections.abc import Sequence
from typing import Any

import pytest

from ekiden.people.store import PeopleRow
from ekiden.stories.store import CallQuery
from ekiden.tasks.store import TaskQuery
from ekiden.testing.story_contract import _told
from ekiden.testing.task_contract import new_record


async def test_a_task_is_due_and_over_in_the_very_moment(store: Any) -> None:
    """It is made at 1000, and lives for 60 seconds. It is forgotten later than that."""
    await store.tasks.insert(new_record(), {})
    assert await store.tasks.due("server", ["tool"], now=999.9, limit=9) == []
    assert [each.id for each in await store.tasks.due("server", ["tool"], now=1000.0, limit=9)] == ["task"]
    assert await store.tasks.overdue(now=1059.9, limit=9) == []
    assert await store.tasks.overdue(now=1060.0, limit=9) == ["task"]
    assert await store.tasks.cancel("task", now=1060.0, tidy=False)
    assert await store.tasks.forget(before=1060.0) == 0
    assert await store.tasks.forget(before=1060.1) == 1
    assert await store.tasks.load("task") is None


async def test_a_page_of_tasks_ends_before_the_last_one_of_the_page_before(store: Any) -> None:
    for number in range(4):
        await store.tasks.insert(new_record(f"{number}", created=1000.0 + number // 2), {})
    queries = [TaskQuery(limit=2), TaskQuery(tools=("tool",), limit=2), TaskQuery(principal="", limit=2)]
    for query in queries:
        first = await store.tasks.search(query)
        assert ids(first) == ["3", "2"]
        for last, expected in ((first[-1], ["1", "0"]), (first[0], ["2", "1"])):
            after = (last.created, last.id)
            again = TaskQuery(tools=query.tools, principal=query.principal, after=after, limit=2)
            assert ids(await store.tasks.search(again)) == expected


def ids(found: Sequence[Any]) -> list[str]:
    return [each.id for each in found]


async def test_a_question_is_due_and_forgotten_in_the_very_moment(store: Any) -> None:
    row = PeopleRow(id="q", call="a call", audience="a server", due=50.0, expires=100.0, data=b"its data")
    await store.people.add(row)
    assert await store.people.due("a server", now=49.9, limit=9) == []
    assert ids(await store.people.due("a server", now=50.0, limit=9)) == ["q"]
    await store.people.purge(now=99.9)
    assert await store.people.load("q") == row
    await store.people.purge(now=100.0)
    assert await store.people.load("q") is None


async def test_calls_are_kept_up_to_the_limits(store: Any) -> None:
    await store.stories.write([_told(f"{number}", float(number), events=b"x" * 10) for number in range(4)])
    most: dict[str, Any] = {"before": 0.0, "most_calls": 4, "most_bytes": 40}
    assert await store.stories.trim(**most) == 0
    assert await store.stories.trim(**{**most, "before": 1.0}) == 1
    assert await store.stories.trim(**{**most, "most_calls": 3, "most_bytes": 30}) == 0
    assert await store.stories.trim(**{**most, "most_calls": 2}) == 1
    assert await store.stories.trim(**{**most, "most_bytes": 19}) == 1
    assert ids(await store.stories.listing(CallQuery())) == ["3"]


async def test_of_what_was_told_in_one_moment_the_last_counts(store: Any) -> None:
    for state in ("running", "waiting", "completed"):
        await store.stories.write([_told("a", 1.0, state=state)])
    row = await store.stories.load("a")
    assert row.state == "completed"


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_the_audit_log_in_memory_keeps_the_newest(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ekiden.stores.memory import stories
    from ekiden.stories.events import Action

    monkeypatch.setattr(stories, "_MOST_ACTIONS", 3)
    done = [Action(float(n), "ann", "cancel", f"task {n}", "cancelled") for n in range(5)]
    for action in done:
        await store.stories.note(action)
    assert await store.stories.actions() == [done[4], done[3], done[2]]
