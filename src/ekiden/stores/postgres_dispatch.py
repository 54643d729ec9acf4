"""How Postgres tells workers that there is work, and everybody that something changed.

That a task is due is a job of procrastinate, deferred in the transaction that made it due: one worker
gets it, and looks. That a task changed is a NOTIFY, which all hear. Both are hints. Jobs bear no
locks: one that is scheduled would block an earlier one with the same lock. Jobs whose worker died are
cleared away here; nothing is lost with them, because the row is the truth and every worker sweeps.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status
from procrastinate.worker import Worker

from ekiden.errors import StoreUnavailable
from ekiden.stores.postgres_database import Connection, PostgresDatabase
from ekiden.stores.watching import Watchers
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Signal, Watcher

__all__ = ["PostgresDispatch"]

_log = logging.getLogger("ekiden.tasks")

_QUEUE: Final = "ekiden"
_WAKE: Final = "ekiden.wake"
_CHANNEL: Final = "ekiden_tasks"
_AGAIN_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 60.0
_GOODBYE_SECONDS: Final = 3.0
_NAG_SECONDS: Final = 1.0
_GOODBYES: Final = 3
_HINTS: Final = 20
"""Jobs that a worker handles at once; each only makes it look."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Signal).decode


class PostgresDispatch:
    """Both ways, for one process."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._watchers = Watchers()
        self._workers = 0
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector())
        self._app.task(name=_WAKE, queue=_QUEUE)(self._wake)
        self._opened: Any = None
        self._listening: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    # Telling

    async def announce(self, connection: Connection, record: TaskRecord) -> None:
        """Tell of a change, in its own transaction."""
        await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, _encode([record.id, None]).decode()))
        if record.due is not None and record.state in ("queued", "waiting", "tidying"):
            await self._open()
            # What is due now bears no time: the clock of the database may be a little behind ours.
            when = None if record.due <= time.time() else datetime.fromtimestamp(record.due, UTC)
            job = self._app.configure_task(
                _WAKE, queue=_QUEUE, schedule_at=when, connection=connection, allow_unknown=False
            )
            await job.defer_async(task_id=record.id, due=record.due)

    def tell(self, record: TaskRecord) -> None:
        """Tell those in this process, when the transaction is done."""
        self._watchers.tell(Signal(record.id, record.due))

    async def _wake(self, task_id: str, due: float) -> None:
        """The job of a worker: look at a task."""
        self._watchers.tell(Signal(task_id, due))

    async def _open(self) -> None:
        pool = await self._database.pool()
        if self._opened is not pool:
            await self._app.open_async(pool)
            self._opened = pool

    # Hearing

    def watch(self, watcher: Watcher, *, works: bool) -> Callable[[], None]:
        """Be told of changes; who works is given the jobs, too."""
        remove = self._watchers.add(watcher)
        self._workers += works
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._keep_on(self._listen))
        if works and (self._working is None or self._working.done()):
            self._working = asyncio.create_task(self._keep_on(self._work))

        def end() -> None:
            remove()
            self._workers -= works
            if not self._workers and self._working is not None:
                self._end(self._working)
                self._working = None
            if not self._watchers and self._listening is not None:
                self._end(self._listening)
                self._listening = None

        return end

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Cancel a task until it has heard it: what it waits for may swallow a cancellation."""
        if task.done():
            return
        if task not in self._ending:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        task.cancel()
        task.get_loop().call_later(_NAG_SECONDS, self._end, task)

    async def _keep_on(self, work: Callable[[], Any]) -> None:
        """Begin again whenever the database has been away."""
        while True:
            try:
                await work()
            except (StoreUnavailable, ConnectorException, psycopg.Error, OSError) as error:
                _log.debug("The database does not tell of tasks right now: %s", error)
            except Exception:
                _log.exception("Hearing of tasks failed; it begins again")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        connection = await psycopg.AsyncConnection.connect(self._database.url, autocommit=True)
        async with connection:
            await connection.execute("LISTEN ekiden_tasks")
            async for notification in connection.notifies():
                with contextlib.suppress(msgspec.MsgspecError):
                    self._watchers.tell(_decode(notification.payload))

    async def _work(self) -> None:
        await self._open()
        worker: Any = Worker(
            app=self._app,
            queues=[_QUEUE],
            concurrency=_HINTS,
            install_signal_handlers=False,
            delete_jobs="always",
            shutdown_graceful_timeout=1.0,
        )
        running = asyncio.create_task(worker.run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # A worker may overhear that it is cancelled, but not that it is to stop.
            for _ in range(_GOODBYES):
                worker.stop()
                await asyncio.wait({running}, timeout=_NAG_SECONDS / (_GOODBYES + 1))
                if running.done():
                    break
                running.cancel()
            raise

    async def clear(self) -> None:
        """Remove jobs whose worker died."""
        await self._open()
        try:
            stalled = await self._app.job_manager.get_stalled_jobs(
                queue=_QUEUE, seconds_since_heartbeat=_STALLED_SECONDS
            )
            for job in stalled:
                await self._app.job_manager.finish_job(job, Status.FAILED, delete_job=True)
        except ConnectorException as error:
            raise StoreUnavailable(f"the database cannot be reached: {error}") from error

    async def close(self) -> None:
        """Hear nothing any more."""
        for task in (self._listening, self._working):
            if task is not None:
                self._end(task)
        self._listening = self._working = None
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=2 * _GOODBYE_SECONDS)
