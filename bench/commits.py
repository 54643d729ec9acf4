"""What one committed step costs, against a raw commit of the same bytes. Prints JSON: seconds of each."""

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import median

from bench.disk import passing_folder
from bench.raw_commits import VALUE, raw
from ekiden.rounds.journal import Entry
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing.task_contract import new_record


async def ours(folder: Path, count: int) -> float:
    store = SQLiteStore(folder / "ours.db")
    await store.tasks.insert(new_record(), {})
    held = await store.tasks.claim("task", now=1000.0, lease=1e9)
    assert held is not None
    taken: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await store.tasks.append("task", held.fence, {f"s:{number}": Entry("step", "digest", VALUE, 0)})
        taken.append(time.perf_counter() - began)
    await store.close()
    return median(taken)


def main() -> None:
    pairs: list[tuple[float, float]] = []
    for _ in range(int(sys.argv[1])):
        with passing_folder() as folder:
            pairs.append((asyncio.run(ours(folder, 300)), median(raw(folder, 300))))
    print(json.dumps({"ours": [one for one, _ in pairs], "raw": [other for _, other in pairs]}))


if __name__ == "__main__":
    main()
