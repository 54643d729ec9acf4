"""A claim that waited for a locked file takes nothing over: meanwhile no owner could renew its lease."""

import asyncio
import contextlib
import functools
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ekiden import StoreUnavailable
from ekiden.rounds.ledger import Busy, Claimed
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing.task_contract import new_record

LEASE = 0.4
LONG = 60.0
"""A claim with such a lease is not late on a machine that is busy."""


@contextmanager
def locked(path: Path) -> Generator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def test_a_round_is_not_taken_over_by_a_claim_that_waited_for_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    now = time.time()
    claim = functools.partial(store.claim, "flow.1", "history", lease=LEASE, expires=now + 100)
    assert isinstance(await claim(now=now), Claimed)
    owner, later = Busy(1, now + LEASE), now + 2 * LEASE
    with locked(tmp_path / "rounds.db"):
        taking = asyncio.create_task(claim(now=later, instead_of=owner))
        await asyncio.sleep(LEASE)
    assert await taking == owner
    taken = await claim(now=later, instead_of=owner, lease=LONG)
    assert isinstance(taken, Claimed), "a claim that does not wait takes over an owner that is silent"
    await store.close()


async def test_a_task_is_not_taken_over_by_a_claim_that_waited_for_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    now = time.time()
    for task_id in ("held", "free"):
        await store.tasks.insert(new_record(task_id), {})
    assert await store.tasks.claim("held", now=now, lease=LEASE) is not None
    later = now + 2 * LEASE
    with locked(tmp_path / "tasks.db"):
        taking = asyncio.create_task(store.tasks.claim_all(("held",), now=later, lease=LEASE))
        starting = asyncio.create_task(store.tasks.claim_all(("free",), now=later, lease=LEASE))
        await asyncio.sleep(LEASE)
    with pytest.raises(StoreUnavailable, match="was locked"):
        await taking
    assert len(await starting) == 1, "nobody holds it"
    assert len(await store.tasks.claim_all(("held",), now=later, lease=LONG)) == 1
    await store.close()
