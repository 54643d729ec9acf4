"""A SQLite file that is closed while it is in use."""

import asyncio
from pathlib import Path

from ekiden.rounds.ledger import Claimed
from ekiden.stores.sqlite import SQLiteStore


async def test_a_store_is_closed_while_others_write_to_it(tmp_path: Path) -> None:
    """Whoever comes too late opens it again."""
    store = SQLiteStore(tmp_path / "rounds.db", synchronous="NORMAL")
    for turn in range(40):
        writes = [
            asyncio.create_task(
                store.claim(f"{turn}.{n}", "history", now=1.0, lease=10.0, expires=100.0, instead_of=None)
            )
            for n in range(20)
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        late = [store.put_journal(f"{turn}.{n}", b"late", expires=100.0) for n in range(20)]
        await asyncio.gather(*writes, closing, *late)
        assert all(isinstance(write.result(), Claimed) for write in writes)
    assert await store.get_journal("39.19") == b"late"
    await store.close()
