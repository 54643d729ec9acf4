"""The store as one worker sees it: slow, away, failing, and silent for a worker that has died."""

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ekiden import StoreUnavailable
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from tests.simulation import databases
from tests.simulation.faults import HALFWAY, LATE_CLAIM, STALLS
from tests.simulation.sockets import SocketLoop

if TYPE_CHECKING:
    from tests.simulation.world import Worker

__all__ = ["FaultyStore", "leftovers", "new_store"]


class _Inline:
    """In place of the threads that write and read: their work is done in the loop."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        # In a context of nobody: what was handed to the disk is written, whoever dies meanwhile.
        future: Future[Any] = Future()
        context = contextvars.Context()
        asyncio.get_running_loop().call_soon(self._run, future, work, arguments, context=context)
        return future

    def _run(self, future: "Future[Any]", work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    def rest(self) -> None:
        pass


class _NoSockets:
    """In place of the word that processes give each other: there is one process here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


def new_store(kind: str, folder: Path | None = None) -> Any:
    """A store: in memory, in a file of this folder, or in the database that is in use."""
    if kind == "memory":
        return MemoryStore()
    if kind == "postgres":
        return PostgresStore(databases.current().url)
    assert folder is not None
    store: Any = SQLiteStore(folder / "store.db", synchronous="NORMAL")
    store._file._writes = store._file._scans = _Inline()
    store.tasks._wake = _NoSockets()
    return store


class FaultyStore:
    """Passes everything on to the store, or to its `tasks`, and lets it fail where the schedule says so."""

    def __init__(self, inner: Any, worker: "Worker") -> None:
        self._inner = inner
        self.worker = self._worker = worker
        self.another = (lambda: self) if worker.world.setting.has(*STALLS) else None
        """Opens the store for the thread that stands by. It is told apart by its context."""
        tasks = getattr(inner, "tasks", None)
        if tasks is not None:
            self.tasks = FaultyStore(tasks, worker)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found) or name in ("close", "purge", "check"):
            return found

        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await self._call(name, found, arguments, keywords)

        return call

    def watch(self, watcher: Callable[[Any], None], **options: Any) -> Any:
        """Signals of the store reach the living only, each as itself."""

        def tell(signal: Any) -> None:
            if not self._worker.dead:
                self._worker.context().run(watcher, signal)

        return self._inner.watch(tell, **options)

    async def _call(self, name: str, method: Any, arguments: Any, keywords: Any) -> Any:
        began = self._worker.world.loop.time()
        self._worker.asking += 1
        try:
            return await self._faulty(name, method, arguments, keywords)
        except StoreUnavailable:
            began = -9.0
            raise
        finally:
            self._worker.asking -= 1
            world = self._worker.world
            if name in ("renew", "extend") and world.loop.time() - began > 1:
                world.struggles(self._worker)

    async def _faulty(self, name: str, method: Any, arguments: Any, keywords: Any) -> Any:
        worker, world = self._worker, self._worker.world
        await worker.hang_if_dead()
        number = world.next_store_call()
        if world.setting.latency:
            await asyncio.sleep(world.setting.latency)
        if (fault := world.fault("store_slow", number)) is not None:
            await asyncio.sleep(fault.seconds)
        if (fault := world.fault("store_away", number)) is not None:
            world.store_away_until = world.loop.time() + fault.seconds
        if world.fault("crash_store_before", number):
            world.crash(worker)
        await worker.hang_if_dead()
        if name in ("renew", "extend") and world.fault("renewal", world.next_renewal()):
            raise StoreUnavailable(f"the store is away for a moment ({name})")
        await self._stall(number, is_reply=False)
        if world.fault("store_before", number) or world.loop.time() < world.store_away_until:
            raise StoreUnavailable(f"the store is away ({name})")
        self._break_halfway(number)
        result = await method(*arguments, **keywords)
        if result is not False and result is not None:
            self._note_records(arguments, is_round=name == "commit")
        if world.fault("crash_store_after", number):
            world.crash(worker)
        await self._answer(name, number)
        return result

    async def _answer(self, name: str, number: int) -> None:
        """The way back of what has taken effect."""
        worker, world = self._worker, self._worker.world
        is_claim = name in ("claim", "claim_all")
        if is_claim and (fault := world.fault(LATE_CLAIM, world.next_claim())) is not None:
            await asyncio.sleep(fault.seconds)
        await self._stall(number, is_reply=True)
        await worker.hang_if_dead()
        if world.fault("store_after", number):
            raise StoreUnavailable(f"the store is away, after all ({name})")

    async def _stall(self, number: int, *, is_reply: bool) -> None:
        """The worker stands still while a request is on its way there, or back."""
        world = self._worker.world
        for kind in ("blocked", "frozen"):
            if number % 2 == is_reply and (fault := world.fault(kind, number)) is not None:
                world.stall(self._worker, kind, fault.seconds)
                await asyncio.sleep(0)

    def _break_halfway(self, number: int) -> None:
        worker, loop = self._worker, self._worker.world.loop
        for kind in HALFWAY:
            fault = worker.world.fault(kind, number)
            if fault is not None and isinstance(loop, SocketLoop):
                act = worker.world.crash if kind == "crash_halfway" else loop.cut
                loop.after_answers(int(fault.seconds), functools.partial(act, worker))

    def _note_records(self, arguments: tuple[Any, ...], *, is_round: bool) -> None:
        for argument in arguments:
            if isinstance(argument, Mapping):
                for key in argument:
                    if str(key).startswith("s:"):
                        task = "" if is_round else getattr(arguments[0], "id", arguments[0])
                        self._worker.world.recorded(task, key[2:], self._worker)


def leftovers(store: Any, now: float) -> list[str]:
    """What is still in a store: claims that someone holds, and rows."""
    if isinstance(store, MemoryStore):
        held = [
            f"claim {key}"
            for key, kept in store._rounds.items()
            if kept.outcome is None and kept.leased_until > now
        ]
        rows = [f"round {key}" for key in store._rounds] + [f"journal {key}" for key in store._journals]
        return held + rows + [f"task {key}" for key in store.tasks._rows]
    if isinstance(store, PostgresStore):
        return databases.current().leftovers(now)
    connection = store._file._open.writer
    if connection is None:
        return []
    held = connection.execute("SELECT id FROM rounds WHERE outcome IS NULL AND leased_until > ?", (now,))
    found = [f"claim {row[0]}" for row in held]
    for table in ("rounds", "round_steps", "journals", "tasks", "task_entries"):
        found += [f"row of {table} {row[0]}" for row in connection.execute(f"SELECT * FROM {table}")]
    return found
