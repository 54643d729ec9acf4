"""What is over is forgotten some at a time, and the rest at the next time: whoever asks waits for it."""

from typing import Any

import pytest

from ekiden.rounds.ledger import Claimed
from ekiden.sessions.store import Room, SessionRow
from ekiden.stores.postgres import PostgresStore, sessions, stories
from ekiden.stores.postgres import store as rounds
from ekiden.stores.postgres import tasks as postgres_tasks
from ekiden.stories.store import CallQuery
from ekiden.testing.story_contract import _told
from ekiden.testing.task_contract import new_record


async def test_rounds_and_journals_are_purged_some_at_a_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_PURGE_AT_ONCE", 2)
    monkeypatch.setattr(rounds, "_MOST_PURGES", 2)
    store = PostgresStore(database)
    for number in range(5):
        claim = await store.claim(f"{number}", "history", now=1.0, lease=10.0, expires=100.0 + number)
        assert claim == Claimed(1, {})
        assert await store.finish(f"{number}", 1, b"done")
        await store.put_journal(f"{number}", b"data", expires=100.0 + number)

    async def left() -> list[tuple[bool, bool]]:
        names = [str(number) for number in range(5)]
        known = [await store.look(name, "history", now=1.0) is not None for name in names]
        return [
            (had, await store.get_journal(name) is not None) for had, name in zip(known, names, strict=True)
        ]

    await store.purge(now=1000.0)
    assert await left() == [(False, False)] * 4 + [(True, True)], "the oldest first"
    await store.purge(now=1000.0)
    assert await left() == [(False, False)] * 5
    await store.close()


async def test_calls_are_trimmed_some_at_a_time(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "_TRIM_AT_ONCE", 2)
    monkeypatch.setattr(stories, "_MOST_TRIMS", 2)
    store = PostgresStore(database)
    await store.stories.write([_told(f"call {number}", float(number), events=b"x") for number in range(5)])
    limits: dict[str, Any] = {"before": 100.0, "most_calls": 100, "most_bytes": 100}
    assert await store.stories.trim(**limits) == 4
    assert [row.id for row in await store.stories.listing(CallQuery())] == ["call 4"], "the newest is left"
    assert await store.stories.trim(**limits) == 1
    assert await store.stories.listing(CallQuery()) == []
    await store.close()


async def test_all_old_tasks_are_forgotten_some_at_a_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_tasks, "_FORGET_AT_ONCE", 2)
    store = PostgresStore(database)
    for number in range(5):
        await store.tasks.insert(new_record(f"{number}", state="failed", due=None), {})
    assert await store.tasks.forget(before=1061.0) == 5
    assert await store.tasks.listing() == []
    await store.close()


async def test_all_old_sessions_are_forgotten_some_at_a_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_PURGE_AT_ONCE", 2)
    store = PostgresStore(database)
    for number in range(6):
        row = SessionRow(
            key=f"{number}", audience="a", principal="", used=1.0, expires=10.0 + number, data=b""
        )
        assert await store.sessions.add(row, Room(100, 10, 0.0)) == []
    await store.sessions.purge(now=14.0)
    left = [await store.sessions.load(f"{number}", now=1.0) is not None for number in range(6)]
    assert left == [False] * 5 + [True]
    await store.close()
