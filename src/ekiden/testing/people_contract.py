"""What every store of questions to people must do, as tests: inherit, say how it is opened, and run pytest.

    class TestMyStore(PeopleStoreContract):
        @asynccontextmanager
        async def opened(self):
            yield MyStore(...).people, MyStore(...).people

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

import abc
import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from ekiden.people.store import PeopleRow, PeopleStore

__all__ = ["PeopleStoreContract"]

_NOW: Final = 1000.0


def _row(row_id: str = "one", **fields: Any) -> PeopleRow:
    row = PeopleRow(id=row_id, call="a call", audience="a server", expires=_NOW + 100, data=b"\x00its data")
    return msgspec.structs.replace(row, **fields)


class PeopleStoreContract(abc.ABC):
    """Every test opens an empty store, twice: as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[PeopleStore, PeopleStore]]:
        """Two ways into one empty store."""

    async def test_a_row_is_there_for_both_as_it_was_kept(self) -> None:
        """All of it, also a time that is None."""
        async with self.opened() as (one, other):
            assert await one.add(_row(due=_NOW)) == _row(due=_NOW)
            await one.add(_row("two"))
            assert await other.load("one") == _row(due=_NOW)
            assert await other.load("two") == _row("two")
            assert await other.load("three") is None

    async def test_the_first_row_with_an_id_stays(self) -> None:
        """Whoever adds it again gets the one that is there."""
        async with self.opened() as (one, other):
            await one.add(_row())
            kept = await other.add(_row(data=b"other", call="another call"))
            assert kept == _row()

    async def test_of_many_that_add_the_same_row_at_once_one_is_first(self) -> None:
        """All get the same."""
        async with self.opened() as (one, other):
            adding = [store.add(_row(data=b"%d" % number)) for number in range(5) for store in (one, other)]
            kept = await asyncio.gather(*adding)
            assert len({row.data for row in kept}) == 1

    async def test_a_row_changes_only_from_the_version_that_was_read(self) -> None:
        """And the version grows."""
        async with self.opened() as (one, other):
            await one.add(_row())
            mine, theirs = await one.load("one"), await other.load("one")
            assert mine is not None
            assert theirs is not None
            mine.data, mine.due, mine.expires = b"mine", 5.0, _NOW + 200
            theirs.data = b"theirs"
            assert await one.replace(mine)
            assert mine.version == 2
            assert not await other.replace(theirs)
            changed = await other.load("one")
            assert changed == _row(data=b"mine", due=5.0, expires=_NOW + 200, version=2)

    async def test_of_many_changes_from_one_version_one_is_taken(self) -> None:
        """However they race."""
        async with self.opened() as (one, other):
            await one.add(_row())
            rows = [_row(data=b"%d" % number) for number in range(10)]
            taken = await asyncio.gather(
                *((one if number % 2 else other).replace(row) for number, row in enumerate(rows))
            )
            kept = await one.load("one")
            assert kept is not None
            assert taken.count(True) == 1
            assert (kept.data, kept.version) == (rows[taken.index(True)].data, 2)

    async def test_what_is_not_there_does_not_change(self) -> None:
        """It is not made, either."""
        async with self.opened() as (one, _):
            assert not await one.replace(_row())
            assert not await one.remove("one", 1)
            assert await one.load("one") is None

    async def test_a_row_is_removed_only_with_its_version(self) -> None:
        """A writer that is late removes nothing."""
        async with self.opened() as (one, other):
            await one.add(_row())
            assert await one.replace(_row())
            assert not await other.remove("one", 1)
            assert await other.remove("one", 2)
            assert await one.load("one") is None

    async def test_the_rows_of_a_call_are_found(self) -> None:
        """In the order of their ids."""
        async with self.opened() as (one, other):
            for row_id in ("b", "a", "B"):
                await one.add(_row(row_id))
            await one.add(_row("c", call="another call"))
            assert [row.id for row in await other.of_call("a call")] == ["B", "a", "b"]
            assert await other.of_call("no call") == []

    async def test_rows_that_are_due_are_found_the_oldest_first(self) -> None:
        """Those of one server only."""
        async with self.opened() as (one, other):
            for row_id, due in (("late", 990.0), ("later", 980.0), ("now", _NOW), ("soon", _NOW + 1)):
                await one.add(_row(row_id, due=due))
            await one.add(_row("never"))
            await one.add(_row("of another", due=1.0, audience="another server"))
            assert [row.id for row in await other.due("a server", now=_NOW, limit=10)] == [
                "later",
                "late",
                "now",
            ]
            assert [row.id for row in await other.due("a server", now=_NOW, limit=1)] == ["later"]

    async def test_what_has_expired_is_forgotten(self) -> None:
        """And nothing else."""
        async with self.opened() as (one, other):
            await one.add(_row("old", expires=_NOW))
            await one.add(_row("new", expires=_NOW + 1))
            await one.purge(now=_NOW)
            assert await other.load("old") is None
            assert await other.load("new") is not None
