"""What every store of sessions must do, as tests: inherit, say how it is opened, and let pytest collect it.

    class TestMyStore(SessionStoreContract):
        @asynccontextmanager
        async def opened(self):
            yield MyStore(...).sessions, MyStore(...).sessions

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

import abc
import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from ekiden.sessions.store import (
    ABANDONED_SECONDS,
    MOST_ENDED,
    Room,
    SessionRow,
    SessionStore,
    StreamPart,
    StreamView,
)

__all__ = ["SessionStoreContract"]

_NOW: Final = 1000.0
_LATER: Final = 5000.0
_ROOM: Final = Room(100, 10, _NOW - 60)


def _row(key: str = "one", **fields: Any) -> SessionRow:
    row = SessionRow(key=key, audience="a server", principal="", used=_NOW, expires=_LATER, data=b"its data")
    return msgspec.structs.replace(row, **fields)


def _part(*numbers: int, **fields: Any) -> StreamPart:
    events = [(number, b"event %d" % number) for number in numbers]
    part = StreamPart(
        number=7, owner="a process", leased_until=_NOW + 10, events=events, first=1, waiting=b"[1]"
    )
    return msgspec.structs.replace(part, **fields)


async def _view(store: SessionStore, number: int = 7, *, after: int = 0) -> StreamView:
    view = await store.read("one", number, after=after)
    assert view is not None
    return view


class SessionStoreContract(abc.ABC):
    """Every test opens an empty store, twice: as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[SessionStore, SessionStore]]:
        """Two ways into one empty store."""

    # Sessions

    async def test_a_session_is_found_by_the_other_process(self) -> None:
        """As it was added, whoever it belongs to."""
        async with self.opened() as (one, other):
            row = _row(principal="Zoë")
            assert await one.add(row, _ROOM) == []
            assert await other.load("one", now=_NOW) == row
            assert await other.load("another", now=_NOW) is None

    async def test_an_expired_session_is_not_found(self) -> None:
        """Unless it was used in time."""
        async with self.opened() as (one, other):
            await one.add(_row(expires=_NOW + 1), _ROOM)
            assert await other.load("one", now=_NOW + 1) is None
            await other.touch("one", used=_NOW, expires=_LATER)
            assert await one.load("one", now=_NOW + 1) == _row()

    async def test_changes_of_two_processes_do_not_undo_each_other(self) -> None:
        """A change is made to the data as it is then."""
        async with self.opened() as (one, other):
            await one.add(_row(data=b""), _ROOM)
            stores = [one, other] * 10
            made = await asyncio.gather(*(store.change("one", lambda data: data + b"x") for store in stores))
            assert made == [True] * 20
            found = await one.load("one", now=_NOW)
            assert found is not None
            assert found.data == b"x" * 20

    async def test_a_change_may_leave_the_data_as_it_is(self) -> None:
        """And one of a session that is not there is none."""
        async with self.opened() as (one, _):
            await one.add(_row(), _ROOM)
            assert await one.change("one", lambda data: None)
            assert not await one.change("another", lambda data: data)
            assert await one.load("one", now=_NOW) == _row()

    async def test_with_a_session_goes_all_that_belongs_to_it(self) -> None:
        """Its questions, its streams and their events."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.ask("one", 1, expires=_LATER)
            await one.append("one", _part(1))
            assert await other.remove("one")
            assert not await one.remove("one")
            assert await one.load("one", now=_NOW) is None
            assert not await other.answer("one", 1, b"yes")
            assert await one.read("one", 7, after=0) is None
            assert not await one.append("one", _part(2))

    # Their number

    async def test_the_session_unused_for_longest_makes_room(self) -> None:
        """But for a server of its own only."""
        async with self.opened() as (one, other):
            room = Room(2, 2, _NOW - 60)
            await one.add(_row("old", used=_NOW - 100), room)
            await one.add(_row("older", used=_NOW - 200), room)
            await one.add(_row("elsewhere", used=_NOW - 300, audience="another server"), room)
            assert await other.add(_row("new"), room) == ["older"]
            found = [await one.load(key, now=_NOW) is not None for key in ("old", "older", "elsewhere")]
            assert found == [True, False, True]

    async def test_a_session_that_is_in_use_does_not_make_room(self) -> None:
        """Then there is none."""
        async with self.opened() as (one, other):
            room = Room(2, 2, _NOW - 60)
            await one.add(_row("busy"), room)
            await one.add(_row("busy too"), room)
            assert await other.add(_row("new"), room) is None
            assert await one.load("new", now=_NOW) is None

    async def test_one_principal_does_not_take_the_room_of_another(self) -> None:
        """It has a limit of its own, and its own sessions are ended."""
        async with self.opened() as (one, other):
            room = Room(100, 1, _NOW - 60)
            await one.add(_row("hers", principal="she", used=_NOW - 200), room)
            await one.add(_row("his", principal="he", used=_NOW - 100), room)
            assert await other.add(_row("his new", principal="he"), room) == ["his"]
            assert await other.add(_row("one too many", principal="he"), room) is None
            assert await one.load("hers", now=_NOW) is not None

    # Questions

    async def test_an_answer_reaches_who_asked(self) -> None:
        """Once: a second answer is not taken."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.ask("one", 2**50, expires=_LATER)
            assert await one.take("one", [2**50]) == {}
            assert await other.answer("one", 2**50, b"yes")
            assert not await other.answer("one", 2**50, b"no")
            assert await one.take("one", [1, 2**50]) == {2**50: b"yes"}

    async def test_what_nobody_asks_is_not_kept(self) -> None:
        """Nor what is asked no longer."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            assert not await other.answer("one", 1, b"yes")
            await one.ask("one", 2, expires=_LATER)
            await one.withdraw("one", 2)
            assert not await other.answer("one", 2, b"yes")
            assert await one.take("one", [1, 2]) == {}

    # Streams

    async def test_events_are_read_in_order_from_any_on(self) -> None:
        """By any process."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            assert await one.append("one", _part(1, 2))
            assert await one.append("one", _part(3))
            view = await _view(other, after=1)
            assert view == StreamView(
                "a process", _NOW + 10, False, b"[1]", [(2, b"event 2"), (3, b"event 3")]
            )

    async def test_events_that_were_given_up_are_forgotten(self) -> None:
        """So a stream keeps no more than its owner does."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1, 2, 3))
            await one.append("one", _part(4, first=3))
            assert [number for number, _ in (await _view(other)).events] == [3, 4]

    async def test_what_has_ended_takes_no_more(self) -> None:
        """Nor does a stream take events of a process that does not own it."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1))
            assert not await other.append("one", _part(2, owner="another process"))
            assert await one.append("one", _part(2, expires=_LATER, waiting=b""))
            assert not await one.append("one", _part(3))
            view = await _view(other)
            assert (view.has_ended, view.waiting, len(view.events)) == (True, b"", 2)

    async def test_a_stream_ends_without_an_event(self) -> None:
        """Its owner has told all that it had to tell."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1))
            assert await one.append("one", _part(expires=_LATER, waiting=b""))
            view = await _view(other)
            assert (view.has_ended, [number for number, _ in view.events]) == (True, [1])

    async def test_few_ended_streams_are_kept(self) -> None:
        """The newest of them."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            for number in range(1, MOST_ENDED + 3):
                await one.append("one", _part(1, number=number, expires=_LATER + number))
            kept = [number for number in range(9) if await other.read("one", number, after=0) is not None]
            assert kept == list(range(3, MOST_ENDED + 3))

    async def test_a_stream_is_dropped_with_its_events(self) -> None:
        """And no other."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1, 2, expires=_LATER))
            await one.append("one", _part(1, number=8, expires=_LATER))
            await one.drop("one", 7)
            await one.drop("one", 99)
            assert await other.read("one", 7, after=0) is None
            assert len((await _view(other, 8)).events) == 1

    async def test_a_lease_is_extended_for_all_streams_of_a_process(self) -> None:
        """And for no other."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1))
            await one.append("one", _part(1, number=8))
            await one.append("one", _part(1, number=9, owner="another process"))
            await one.extend("a process", until=_LATER)
            leases = [(await _view(other, number)).leased_until for number in (7, 8, 9)]
            assert leases == [_LATER, _LATER, _NOW + 10]

    async def test_a_lost_stream_is_given_up_once(self) -> None:
        """And not if its owner came back meanwhile."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1))
            seen = await _view(other)
            await one.extend("a process", until=_LATER)
            assert not await other.give_up("one", 7, seen, [(2, b"lost")], expires=_LATER)
            seen = await _view(other)
            tries = [store.give_up("one", 7, seen, [(2, b"lost")], expires=_LATER) for store in (one, other)]
            assert sorted(await asyncio.gather(*tries)) == [False, True]
            view = await _view(one, after=1)
            assert (view.has_ended, view.waiting, view.events) == (True, b"", [(2, b"lost")])
            assert not await one.append("one", _part(3))

    async def test_what_has_expired_is_purged(self) -> None:
        """Sessions, questions and streams that have ended; nothing else."""
        async with self.opened() as (one, other):
            await one.add(_row("over", expires=_NOW), _ROOM)
            await one.add(_row(), _ROOM)
            await one.ask("one", 1, expires=_NOW)
            await one.ask("one", 2, expires=_LATER)
            await one.append("one", _part(1))
            await one.append("one", _part(1, number=8, expires=_NOW))
            await other.purge(now=_NOW)
            assert await one.load("over", now=0.0) is None
            assert await one.load("one", now=_NOW) == _row()
            assert [await one.answer("one", number, b"yes") for number in (1, 2)] == [False, True]
            assert [await one.read("one", number, after=0) is None for number in (7, 8)] == [False, True]

    async def test_the_streams_of_a_process_that_was_killed_are_purged_with_time(self) -> None:
        """Nobody ends them, and their session may go on for ever."""
        async with self.opened() as (one, other):
            await one.add(_row(), _ROOM)
            await one.append("one", _part(1))
            await one.append("one", _part(1, number=8))
            seen = await one.read("one", 7, after=0)
            assert seen is not None
            await other.purge(now=seen.leased_until + ABANDONED_SECONDS - 1)
            assert await one.read("one", 7, after=0) == seen
            await other.purge(now=seen.leased_until + ABANDONED_SECONDS)
            assert [await one.read("one", number, after=0) for number in (7, 8)] == [None, None]
