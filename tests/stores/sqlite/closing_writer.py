"""A process that runs rounds in a SQLite file, and closes the file again and again meanwhile."""

import asyncio
import random
import sys

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed, Recorded
from ekiden.stores.sqlite import SQLiteStore

BRANCHES, ROUNDS = 4, 30


async def run_round(store: SQLiteStore, round_id: str) -> None:
    """Claim, commit, release, claim again, finish, look: each must find what the one before it left."""
    times = {"now": 1.0, "lease": 10.0, "expires": 100.0}
    assert await store.claim(round_id, "h", **times) == Claimed(1, {})
    assert await store.commit(round_id, 1, {"s:1": Entry("step", "d", round_id)})
    await store.release(round_id, 1)
    again = await store.claim(round_id, "h", **times)
    assert again == Claimed(2, {"s:1": Entry("step", "d", round_id)}), again
    assert await store.finish(round_id, 2, b"end")
    assert await store.look(round_id, "h", now=1.0) == Recorded(b"end")


async def main(path: str, who: str) -> None:
    """Run the rounds of four branches."""
    store, rng = SQLiteStore(path, synchronous="NORMAL"), random.Random(who)

    async def branch(number: int) -> None:
        for n in range(ROUNDS):
            await run_round(store, f"{who} {number} {n}")

    async def close() -> None:
        while True:
            await asyncio.sleep(rng.random() * 0.004)
            await asyncio.gather(*(store.close() for _ in range(rng.choice((1, 1, 3)))))
            await store.tasks.listing()

    closing = asyncio.create_task(close())
    await asyncio.gather(*(branch(number) for number in range(BRANCHES)))
    closing.cancel()
    await asyncio.wait([closing])
    await store.close()
    print(f"{BRANCHES * ROUNDS} rounds")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
