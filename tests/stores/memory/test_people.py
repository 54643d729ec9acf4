"""What memory keeps of questions to people is bounded."""

import pytest

from ekiden.errors import StoreUnavailable
from ekiden.people.store import PeopleRow
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory import people as memory


def _row(row_id: str) -> PeopleRow:
    return PeopleRow(id=row_id, call="a call", audience="a server", expires=100.0, data=b"its data")


async def test_memory_keeps_so_many_questions_and_those_that_wait_already_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_MOST", 2)
    people = MemoryStore().people
    for row_id in ("one", "two"):
        await people.add(_row(row_id))
    with pytest.raises(StoreUnavailable, match="2 questions wait for people already"):
        await people.add(_row("three"))
    assert await people.add(_row("one")) == _row("one"), "it is kept already, so it takes no more room"
