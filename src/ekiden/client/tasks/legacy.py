"""Handles for tasks of servers of 2025-11-25: the client asks for a task, polls it, and fetches its result.

`tasks/result` waits for the end of the task, and the server sends the task's questions while it waits. So
it is sent at once, and again if its connection is lost; polling with `tasks/get` goes on beside it, as
the spec wants. The client's callbacks answer the questions, as in every call of 2025.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ekiden.client.sessions.session import ClientSession
from ekiden.client.tasks.handle import AnswerAll, OnStatus, Overdue, TaskHandle, TaskSnapshot, poll_seconds
from ekiden.client.tools import KnownTools
from ekiden.errors import CallCancelled, InvalidParams, InvalidResult, ServerError, TransportError, UsageError
from ekiden.transports.client.complaints import Complaints
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.tasks import LEGACY_NOTIFICATION

__all__ = ["HandshakeTaskHandle", "LegacyTaskHandle", "offers_tasks", "read_legacy_snapshot", "wants_task"]

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 100
"""States that may wait to be looked at. Beyond it the oldest is dropped: only the newest counts."""


def offers_tasks(session: ClientSession) -> bool:
    """Whether tools of this server may be called as tasks of 2025-11-25 or of the draft."""
    found: Any = session.capabilities if session.version in versions.WITH_TASKS else None
    for name in ("tasks", "requests", "tools", "call"):
        found = found.get(name) if is_object(found) else None
    return is_object(found)


def wants_task(tools: KnownTools, name: str, *, optional: bool) -> bool:
    """Whether to call a tool as a task: if it requires that, or with `optional` if it allows it."""
    support = tools.task_support(name)
    return support == "required" or (optional and support == "optional")


def read_legacy_snapshot(fields: object) -> TaskSnapshot:
    """A task as 2025-11-25 spells it."""
    if not is_object(fields):
        raise InvalidResult("The server's task is malformed: it is not an object")
    names = {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"}
    spelled = {names.get(name, name): value for name, value in fields.items() if name != "_meta"}
    try:
        return msgspec.convert({"ttlMs": None, **spelled}, TaskSnapshot)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"The server's task is malformed: {error}") from None


class HandshakeTaskHandle(TaskHandle):
    """What tasks of 2025-11-25 and of the draft have in common."""

    async def cancel(self) -> None:
        """Ask the server to stop. A task that has ended stays as it is."""
        try:
            await self._send("tasks/cancel")
        except ServerError as error:
            if error.code != InvalidParams.default_code or not (await self.status()).ended:
                raise

    def _result_of(self, ended: TaskSnapshot) -> JsonObject:
        """In 2025 a result with `isError` makes its task fail, but it is still the result."""
        result = ended.result or {}
        if ended.status == "failed" and "content" in result:
            return result
        if ended.status == "failed" and ended.error is None:
            raise ServerError(ended.status_message or "The task failed", code=-32603)
        if ended.status == "cancelled":
            raise CallCancelled(f"Task {self.id} was cancelled: {ended.status_message or 'no reason given'}")
        return super()._result_of(ended)


class LegacyTaskHandle(HandshakeTaskHandle):
    """One task of a server of 2025-11-25."""

    async def status(self) -> TaskSnapshot:
        """The task as it is now."""
        return read_legacy_snapshot(await self._send("tasks/get"))

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Not possible with 2025: its servers ask the client, and the callbacks answer."""
        raise UsageError("a server of 2025 sends its questions to the client: the callbacks answer them")

    async def fetch(self) -> JsonObject:
        """Wait for the result of the task."""
        return await self._send("tasks/result")

    async def _until_ended(self, on_status: OnStatus | None, answer: AnswerAll | None) -> TaskSnapshot:
        notified = _Notified(self.id)
        self._client.watchers.add(notified.receive)
        overdue = Overdue(self.id, self._client.limits.stuck_seconds)
        fetch = _Fetch(self)
        try:
            snapshot = await self.status()
            while True:
                if on_status is not None:
                    on_status(snapshot)
                if snapshot.ended:
                    return await self._with_result(snapshot, fetch)
                overdue.check(snapshot, self._answered)
                fetch.start(snapshot)
                state = await notified.next(snapshot, fetch.waiting)
                snapshot = state or await self._look()
                if not snapshot.ended and fetch.is_over:
                    snapshot = fetch.final_status(snapshot)
                    if not snapshot.ended:
                        await asyncio.sleep(poll_seconds(snapshot))
        finally:
            self._client.watchers.discard(notified.receive)
            fetch.stop()

    async def _with_result(self, snapshot: TaskSnapshot, fetch: _Fetch) -> TaskSnapshot:
        if snapshot.status == "cancelled":
            return snapshot
        pause = 0.1
        while True:
            fetch.start(snapshot)
            try:
                snapshot.result = await fetch.result()
                return snapshot
            except ServerError as error:
                if snapshot.status != "failed":
                    raise
                snapshot.error = {"code": error.code, "message": str(error), "data": error.data}
                return snapshot
            except TransportError as error:
                if pause > 10.0:
                    raise
                _log.debug("The result of task %s is fetched again: %s", self.id, error)
            await asyncio.sleep(pause)
            pause *= 2


class _Fetch:
    """The `tasks/result` request, which waits for the end of the task."""

    def __init__(self, handle: LegacyTaskHandle) -> None:
        self._handle = handle
        self._patient = True
        """Whether the server keeps the request waiting, as the spec wants."""
        self._request: asyncio.Task[JsonObject] | None = None

    def start(self, snapshot: TaskSnapshot) -> None:
        """Send it if it is not under way. If the server does not let it wait, not while it is `working`."""
        if self._request is None and (self._patient or snapshot.status != "working"):
            self._request = asyncio.create_task(self._handle.fetch())

    @property
    def waiting(self) -> asyncio.Task[JsonObject] | None:
        """The request that is under way."""
        return self._request

    @property
    def is_over(self) -> bool:
        """Whether it was answered."""
        return self._request is not None and self._request.done()

    def final_status(self, snapshot: TaskSnapshot) -> TaskSnapshot:
        """`tasks/result` returned before `tasks/get` showed the end: derive the final status."""
        assert self._request is not None
        failure = self._request.exception()
        if failure is None:
            return msgspec.structs.replace(snapshot, status="completed")  # There is a result only then.
        self._patient = isinstance(failure, TransportError)
        self._request = None
        return snapshot

    async def result(self) -> JsonObject:
        """The result. After a failure, `start` sends the request again."""
        assert self._request is not None
        request, self._request = self._request, None
        try:
            return await request
        except asyncio.CancelledError:
            request.cancel()
            raise

    def stop(self) -> None:
        """Cancel the request if it is under way."""
        if self._request is not None and not self._request.cancel() and not self._request.cancelled():
            self._request.exception()  # Taken, so that asyncio does not log it as lost.


class _Notified:
    """States that the server notifies of (`notifications/tasks/status`); it does not have to."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._queue: asyncio.Queue[TaskSnapshot] = asyncio.Queue(_MOST_WAITING)
        self._complain = Complaints(_log)

    def receive(self, message: JsonObject) -> None:
        params = message.get("params")
        if message.get("method") != LEGACY_NOTIFICATION or not is_object(params):
            return
        if params.get("taskId") == self._task_id:
            try:
                snapshot = read_legacy_snapshot(params)
                if self._queue.full():
                    self._queue.get_nowait()
                self._queue.put_nowait(snapshot)
            except InvalidResult as problem:
                self._complain("A notification is dropped: %s", problem)

    async def next(
        self, snapshot: TaskSnapshot, result: asyncio.Task[JsonObject] | None
    ) -> TaskSnapshot | None:
        """The next notified state; None when the result is here or it is time for `tasks/get`."""
        getting = asyncio.create_task(self._queue.get())
        waiting = {getting} if result is None else {getting, result}
        try:
            await asyncio.wait(waiting, timeout=poll_seconds(snapshot), return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
