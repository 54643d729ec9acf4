"""DBOS: workflows of one step, run in this process on a Postgres or a SQLite file, so many at a time.

    python -m bench.clients.dbos_workflows DATABASE_URL COUNT ATONCE

Prints JSON: workflows per second. There is no HTTP in it: a workflow is called and awaited. The settings are
those of DBOS itself. Larger and smaller pools, more threads, uvloop and workflows that are not async were
tried: none of them was clearly faster.
"""

import asyncio
import json
import sys
import time
from typing import Any, Final

from dbos import DBOS, DBOSConfig


async def _step(number: int) -> int:
    return number


async def _workflow(number: int) -> Any:
    return await step(number)


step: Final = DBOS.step()(_step)
workflow: Final = DBOS.workflow()(_workflow)


async def run(count: int, at_once: int) -> float:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            if await workflow(number) != number:
                raise SystemExit("a workflow gave a wrong result")

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return count / (time.perf_counter() - began)


async def measure(count: int, at_once: int) -> dict[str, Any]:
    await run(at_once, at_once)  # Warm.
    return {"per_second": await run(count, at_once)}


def main() -> None:
    url, count, at_once = sys.argv[1:]
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    try:
        found = asyncio.run(measure(int(count), int(at_once)))
    finally:
        DBOS.destroy()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
