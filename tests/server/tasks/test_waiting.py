"""Requests that wait for one task share what is known of it."""

import asyncio
from typing import Any

import pytest

from ekiden.errors import InvalidParams, StoreUnavailable
from ekiden.server.tasks.waiting import Awaited, Waiting
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory.tasks import MemoryTasks
from ekiden.tasks.record import TaskRecord
from tests.serving import soon


class Counting(MemoryTasks):
    """Counts how often a task is loaded; can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.is_away = False

    async def load(self, task_id: str) -> TaskRecord | None:
        self.loads += 1
        await asyncio.sleep(0.01)
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().load(task_id)


def _task(**fields: Any) -> TaskRecord:
    known: dict[str, Any] = {
        "id": "t",
        "flow": "f",
        "answers": "",
        "audience": "s",
        "tool": "job",
        "principal": "",
        "arguments": {"text": "x" * 1_000_000},
        "meta": {},
        "started": 0.0,
        "created": 0.0,
        "updated": 0.0,
        "ttl": None,
        "poll": 1.0,
    }
    return TaskRecord(**{**known, **fields})


async def _until_cancelled(waiting: Waiting) -> TaskRecord:
    async with waiting.for_task("t") as task:
        record = await task.after(None)
        while not record.final:
            record = await task.after(record)
        return record


async def test_a_thousand_requests_load_a_task_once_and_hold_nothing_of_its_arguments() -> None:
    store = Counting()
    await store.insert(_task(), {})
    waiting = Waiting(store)
    requests = [asyncio.create_task(_until_cancelled(waiting)) for _ in range(1000)]
    await asyncio.sleep(0.3)
    assert store.loads <= 3
    await store.cancel("t", now=1.0, tidy=False)
    ended = await soon(asyncio.gather(*requests))
    assert store.loads <= 6
    assert len({id(each) for each in ended}) == 1
    assert (ended[0].status, ended[0].arguments) == ("cancelled", {})
    assert len(waiting) == 0


async def test_a_task_that_is_not_there_is_unknown_to_all() -> None:
    waiting = Waiting(Counting())
    ended = await soon(asyncio.gather(*(_until_cancelled(waiting) for _ in range(3)), return_exceptions=True))
    assert [(type(each), str(each)) for each in ended] == [(InvalidParams, "Unknown task")] * 3
    assert len(waiting) == 0


async def test_a_store_that_is_away_ends_the_wait_but_not_the_next_one() -> None:
    store = Counting()
    await store.insert(_task(), {})
    store.is_away = True
    waiting = Waiting(store)

    async def twice() -> Awaited:
        async with waiting.for_task("t") as first:
            with pytest.raises(StoreUnavailable):
                await soon(first.after(None))
            store.is_away = False
            async with waiting.for_task("t") as second:
                assert (await soon(second.after(None))).id == "t"
                return second

    assert (await twice()).users == 0
    assert len(waiting) == 0


async def test_a_request_that_leaves_does_not_end_the_wait_of_others() -> None:
    store = MemoryStore().tasks
    await store.insert(_task(), {})
    waiting = Waiting(store)
    leaving, staying = (asyncio.create_task(_until_cancelled(waiting)) for _ in range(2))
    await asyncio.sleep(0.05)
    leaving.cancel()
    await asyncio.wait({leaving})
    await store.cancel("t", now=1.0, tidy=False)
    assert (await soon(staying)).status == "cancelled"
