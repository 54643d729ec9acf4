"""Rows of many megabytes, which any number of requests may look at."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from ekiden.errors import StoreUnavailable
from ekiden.stores.large_rows import SMALL, LargeRows
from ekiden.tasks.moves import Ending
from ekiden.tasks.record import TaskRecord
from ekiden.testing.task_contract import new_record
from tests.stores.pairs import two_of_a_database, two_of_a_file, two_sealed


class Table:
    """Reads rows, and counts."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.is_away = False

    async def __call__(self, task_id: str) -> TaskRecord | None:
        self.read.append(task_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.is_away:
            raise StoreUnavailable("away")
        return None if task_id == "gone" else new_record(task_id)


async def test_a_large_row_is_read_once_for_all_who_look_and_one_row_at_a_time() -> None:
    table = Table()
    rows = LargeRows(table)
    wanted = [name for name in ("a", "b", "gone") for _ in range(50)]
    seen = await asyncio.gather(*(rows.look(name, 1) for name in wanted))
    assert (sorted(table.read), table.most_at_once) == (["a", "b", "gone"], 1)
    assert len({id(each) for each in seen[:50]}) == 1
    assert seen[100:] == [None] * 50
    assert await rows.look("a", 1) is seen[0]
    assert await rows.look("a", 2) is not seen[0], "it has changed"
    assert table.read.count("a") == 2


async def test_what_nobody_holds_any_more_is_not_kept() -> None:
    table = Table()
    rows = LargeRows(table)
    await rows.look("a", 1)
    await asyncio.sleep(0)
    gc.collect()
    await rows.look("a", 1)
    assert table.read == ["a", "a"]


async def test_who_leaves_takes_nobody_elses_look_and_an_error_is_not_remembered() -> None:
    table = Table()
    rows = LargeRows(table)
    leaves, stays = (asyncio.create_task(rows.look("a", 1)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    seen = await stays
    assert seen is not None
    table.is_away = True
    with pytest.raises(StoreUnavailable):
        await rows.look("b", 1)
    table.is_away = False
    assert await rows.look("b", 1) is not None


def test_the_event_loop_may_be_another_one_each_time() -> None:
    table = Table()
    rows = LargeRows(table)

    async def many() -> None:
        await asyncio.gather(*(rows.look(str(name), 1) for name in range(5)))

    for _ in range(2):
        asyncio.run(many())
    assert table.most_at_once == 1


@pytest.mark.parametrize("kind", ["sqlite", "sealed", "postgres"])
async def test_whoever_looks_at_one_large_result_shares_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its listing shows all of it."""
    if kind == "postgres":
        opened: Any = two_of_a_database(request.getfixturevalue("database"))
    else:
        opened = two_of_a_file(tmp_path) if kind == "sqlite" else two_sealed(tmp_path)
    async with opened as (one, _):
        store = one.tasks
        for name in ("small", "large"):
            await store.insert(new_record(name), {})
            held = await store.claim(name, now=1000.0, lease=10.0)
            assert held is not None
            result = b'"%s"' % (b"x" * (3 * SMALL if name == "large" else 3))
            await store.finish(name, held.fence, Ending(result=result), now=1001.0)
        first, second = await asyncio.gather(store.glance("large"), store.glance("large"))
        assert first is not None
        assert first is second
        assert first is await store.glance("large")
        loaded = await store.load("large")
        assert loaded is not None
        assert loaded.result == first.record.result
        assert loaded is not first.record, "who loads a row may change it"
        listed = {record.id: len(record.result or b"") for record in await store.listing()}
        assert listed == {"small": 5, "large": 3 * SMALL + 2}
