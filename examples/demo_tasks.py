"""A refund: two questions by rounds, then a task with a question in it, and its worker is killed on the way.

One process serves `examples/returns.py`, three run its tasks: on one SQLite file, and then on a Postgres that
is started for it. The worker that pays the money back is killed with -9.
"""

import asyncio
import os
import random
import re
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, PendingCall, TaskHandle, TaskSnapshot
from ekiden.server.sealing.keys import new_key

ROOT = Path(__file__).parent.parent
SERVER = Path(__file__).parent / "returns.py"
ANSWERS: dict[str, Any] = {"Refund": True, "Why": "late", "boss": True}
PATIENCE = 60

_DOES = re.compile(r"process (\d+): (.*)")


class Group:
    """The processes of one demo, and what they say."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._processes: list[asyncio.subprocess.Process] = []
        self.killed = 0

    async def start(self, *command: str, until: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ekiden.cli", *command),
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(process, until, ready))
        async with asyncio.timeout(PATIENCE):
            await ready.wait()

    async def _read(self, process: asyncio.subprocess.Process, until: str, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode().rstrip()
            if until in text:
                ready.set()
            if (does := _DOES.search(text)) is not None:
                print(f"  process {does[1]}: {does[2]}")
                if does[2].startswith("pay back") and not self.killed:
                    self.killed = int(does[1])
                    os.kill(self.killed, signal.SIGKILL)
                    print(f"  kill -9 {does[1]}: in the middle of the payment")

    async def stop(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        for process in self._processes:
            await process.wait()


@asynccontextmanager
async def group(store: str) -> AsyncGenerator[tuple[Group, str], None]:
    made = Group({**os.environ, "EKIDEN_KEYS": new_key(), "EKIDEN_STORE": store, "PYTHONUNBUFFERED": "1"})
    port = free_port()
    try:
        print("$ ekiden run examples/returns.py --no-tasks")
        await made.start("run", str(SERVER), "--no-tasks", "--port", str(port), until="is served at")
        for _ in range(3):
            print("$ ekiden worker examples/returns.py")
            await made.start("worker", str(SERVER), until="are run by process")
        yield made, f"http://127.0.0.1:{port}/mcp"
    finally:
        await made.stop()


async def answer(params: ElicitRequestFormParams) -> ElicitResult:
    value = next(value for words, value in ANSWERS.items() if words in params.message)
    print(f"  {params.message} {value}")
    return ElicitResult(action="accept", content={"value": value})


def show(snapshot: TaskSnapshot) -> None:
    told = f": {snapshot.status_message}" if snapshot.status_message else ""
    print(f"  task {snapshot.status}{told}")


async def refund(url: str, made: Group) -> None:
    async with Client(url, elicit=answer) as client:
        ended: Any = await client.start_tool("refund", {"order_id": "42"})
        while isinstance(ended, PendingCall):
            ended = await client.resume(ended)
        assert isinstance(ended, TaskHandle), ended
        written = ended.to_json()
        print(f"  the call is a task now: {written}")
    # Another client, as after a restart, takes the task up.
    async with Client(url, elicit=answer) as client:
        result = await client.task(written).wait(timeout=PATIENCE, on_status=show)
    (block,) = result.content
    print(f"  {block.text}")  # type: ignore[union-attr]
    assert made.killed, "no worker was killed"
    assert block.text == "Refunded 59.9 to Ada (late)."  # type: ignore[union-attr]


async def demo(title: str, store: str) -> None:
    print(f"\n{title}\n")
    async with group(store) as (made, url):
        await refund(url, made)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await demo("SQLite, four processes on one file", f"sqlite:///{folder}/returns.db")
    sys.path.insert(0, str(ROOT))
    from scripts.postgres import running_postgres

    async with AsyncExitStack() as stack:
        url = stack.enter_context(running_postgres()).new_database()
        print("\n$ ekiden store migrate postgresql://...")
        migrating = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ekiden.cli", "store", "migrate", url)
        )
        assert await migrating.wait() == 0
        await demo("Postgres", url)


def free_port() -> int:
    for port in random.sample(range(19_000, 20_000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit("no free port")


if __name__ == "__main__":
    asyncio.run(main())
