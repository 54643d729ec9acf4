"""A session at several processes, whose messages overtake each other, come late, or never."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from ekiden import Server, SessionLimits
from ekiden.bus.port import Hear
from ekiden.errors import StoreUnavailable
from ekiden.server.legacy.session import Session
from ekiden.server.legacy.sessions import Sessions
from ekiden.sessions import shared as shared_module
from ekiden.sessions.messages import News, read
from ekiden.sessions.record import SessionRecord
from ekiden.sessions.shared import SessionRules, SharedSessions
from ekiden.stores.sqlite import SQLiteStore
from tests.serving import soon

RULES = SessionRules(100, 100, 1800.0, 60.0)


class HeldBus:
    """Delivers nothing by itself: the test decides what arrives, and when."""

    def __init__(self) -> None:
        self.said: list[News] = []

    def publish(self, message: bytes) -> None:
        news = read(message)
        assert news is not None
        self.said.append(news)

    async def listen(self, hear: Hear) -> Callable[[], None]:
        return lambda: None

    async def close(self) -> None:
        pass


class Process:
    """One process of a server, and what it says on the bus."""

    def __init__(self, store: SQLiteStore) -> None:
        self.bus = HeldBus()
        assert store.sessions is not None
        self.shared = SharedSessions(store.sessions, self.bus, "s", RULES, lambda: 1000.0)
        self.registry = Server("s")._registry
        self.registry.resources.declared = True
        self.sessions = Sessions(
            cast("Any", None),
            self.registry,
            None,
            SessionLimits(),
            stateless=False,
            draft=False,
            shared=self.shared,
        )

    async def session(self) -> Session:
        found = await self.sessions._current(self.shared, "an id", None)
        assert found is not None
        return found

    async def hears(self, *news: News | None) -> None:
        """Take what the others said, and wait for what it does about it."""
        for one in news:
            self.sessions.heard(one)
        while self.shared._running:
            await asyncio.wait(set(self.shared._running), timeout=10)


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SQLiteStore, None]:
    opened = SQLiteStore(tmp_path / "store.db")
    record = SessionRecord("2025-11-25", {}, {}, "info")
    await Process(opened).shared.add("an id", "", record)
    yield opened
    await opened.close()


async def three(store: SQLiteStore) -> tuple[Process, Session, Process, Process]:
    """A process that has the session, the session as it holds it, and two other processes."""
    reader = Process(store)
    session = await reader.session()
    session.hold()
    return reader, session, Process(store), Process(store)


async def test_a_subscription_that_overtakes_the_end_of_an_earlier_one_stays(store: SQLiteStore) -> None:
    """One process says late that the client has unsubscribed; at another it has subscribed again since."""
    reader, session, one, other = await three(store)
    await one.shared.change("an id", "watch", "note://1")
    await one.shared.change("an id", "unwatch", "note://1")
    await other.shared.change("an id", "watch", "note://1")
    watched, unwatched = one.bus.said
    (again,) = other.bus.said
    await reader.hears(watched, again, unwatched)
    assert list(session.watching._watched) == ["note://1"]


async def test_a_change_of_which_nobody_told_is_taken_over_with_the_next(store: SQLiteStore) -> None:
    """The process that made it was killed before it could tell."""
    reader, session, killed, other = await three(store)
    await killed.shared.change("an id", "watch", "note://1")
    await other.shared.change("an id", "level", "error")
    await reader.hears(*other.bus.said)
    assert (list(session.watching._watched), session.log_level) == (["note://1"], "error")


async def test_who_repeats_a_subscription_has_everybody_hear_of_it(store: SQLiteStore) -> None:
    reader, session, killed, other = await three(store)
    await killed.shared.change("an id", "watch", "note://1")
    await other.shared.change("an id", "watch", "note://1")
    await reader.hears(*other.bus.said)
    assert list(session.watching._watched) == ["note://1"]


async def test_what_was_read_before_a_change_does_not_undo_it(store: SQLiteStore) -> None:
    process = Process(store)
    session = await process.session()
    before = await process.shared.load("an id")
    assert before is not None
    session.watching.watch("note://1", None)
    await session.remember("watch", "note://1")
    session.take_over(before[1])
    assert list(session.watching._watched) == ["note://1"]


async def test_a_row_from_before_does_not_drop_what_was_told_since(store: SQLiteStore) -> None:
    """Else it would be new again with the next row, and told of once more."""
    reader, other = Process(store), Process(store)
    session = await reader.session()
    before = await reader.shared.load("an id")
    assert before is not None
    await other.shared.change("an id", "watch", "note://1")
    await reader.hears(*other.bus.said)
    session.take_over(before[1])
    assert list(session.watching._watched) == ["note://1"]


async def test_of_two_streams_that_are_opened_at_once_one_stays(store: SQLiteStore) -> None:
    """Each process hears of the other's: the one that came last in the store stays open."""
    processes = [Process(store), Process(store)]
    left: list[int] = []
    for number, process in enumerate(processes):
        session = await process.session()
        session.hold()
        session.on_detach.append(lambda number=number: left.append(number))
    sessions = [process.sessions._open["an id"] for process in processes]
    assert await sessions[0]._attach(processes[0].shared) is False
    assert await sessions[1]._attach(processes[1].shared) is True
    await processes[0].hears(*processes[1].bus.said)
    await processes[1].hears(*processes[0].bus.said)
    assert left == [0]


async def test_what_was_missed_is_looked_up_when_the_store_is_back(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ekiden.server.legacy.sessions._AGAIN_SECONDS", 0.01)
    reader, other = Process(store), Process(store)
    session = await reader.session()
    session.hold()
    await other.shared.change("an id", "watch", "note://1")
    load, failures = reader.shared.load, 3

    async def failing(session_id: str) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("it is away")
        return await load(session_id)

    monkeypatch.setattr(reader.shared, "load", failing)
    await reader.hears(None)
    assert (list(session.watching._watched), failures) == (["note://1"], -1)


async def test_an_answer_of_which_nobody_told_is_found(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that took it was killed before it could tell: the call does not wait for ever."""
    monkeypatch.setattr(shared_module, "_LOOK_SECONDS", 0.01)
    asks, killed = Process(store), Process(store)
    answered: asyncio.Queue[bytes] = asyncio.Queue()
    await asks.shared.ask("an id", 1, seconds=600.0, hear=answered.put_nowait)
    assert await killed.shared.answer("an id", 1, b"yes")
    assert await soon(answered.get()) == b"yes"
    asks.shared.withdraw("an id", 1)
    await asks.shared.stop()
