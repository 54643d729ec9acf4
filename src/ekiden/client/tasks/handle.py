"""Tasks, from the client's side: look after one until it ends, and answer what it asks (SEP-2663).

A handle is its task's id and nothing more: written down, it can be taken up again after a restart, by
`client.task(id)`. Each question is answered once, however often it is seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from ekiden.client.answering import Answerer
from ekiden.client.sessions.session import ClientRequest, Hooks, read_error
from ekiden.errors import (
    CallCancelled,
    CallTimeout,
    CannotAnswer,
    InvalidResult,
    ParseError,
    ServerError,
    TransportError,
    UsageError,
)
from ekiden.wire.json import JsonObject, decode, encode
from ekiden.wire.tasks import EXTENSION, NOTIFICATION

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = [
    "AnswerAll",
    "OnStatus",
    "Overdue",
    "TaskClient",
    "TaskHandle",
    "TaskSnapshot",
    "poll_seconds",
    "read_handle",
    "read_snapshot",
    "with_tasks",
]

_log = logging.getLogger(__name__)

_USUAL_POLL: Final = 1.0
"""Seconds between two looks where the server does not say."""
_BACKSTOP: Final = 5.0
"""Seconds between two looks where the server tells of changes: a subscription can die unseen."""
_UNREACHABLE_SECONDS: Final = 60.0
"""How long a server may be away, for a restart, before waiting for it is given up."""
_GOODBYE_SECONDS: Final = 5.0
_MOST_TOLD: Final = 16
"""States that wait for who looks after the task, while somebody is asked. The newest ones count."""


class TaskSnapshot(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A task as it was at one moment."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    input_requests: dict[str, JsonObject] = msgspec.field(default_factory=dict[str, JsonObject])
    result: JsonObject | None = None
    error: JsonObject | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self.status in ("completed", "failed", "cancelled")


def read_snapshot(fields: Mapping[str, Any]) -> TaskSnapshot:
    """A task out of a result or a notification."""
    try:
        return msgspec.convert(fields, TaskSnapshot)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"The server's task is malformed: {error}") from None


def with_tasks(capabilities: Mapping[str, Any]) -> JsonObject:
    """The capabilities of a client that can be given tasks."""
    return {**capabilities, "extensions": {EXTENSION: {}}}


OnStatus: TypeAlias = Callable[[TaskSnapshot], None]
T = TypeVar("T")
AnswerAll: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[JsonObject]]


class TaskClient(msgspec.Struct):
    """What a handle needs of its client."""

    request: Callable[[ClientRequest], Awaitable[JsonObject]]
    answerer: Answerer
    finish: Callable[[str | None, JsonObject], CallToolResult]
    """Reads the final result of a tool."""
    stuck_seconds: float
    """How long a task may go on asking for what was answered, or outlive its time."""
    watchers: set[Callable[[JsonObject], None]]
    """Who is told of every notification."""


class TaskHandle:
    """One task of a server."""

    def __init__(self, client: TaskClient, task_id: str, tool: str | None = None) -> None:
        self.id = task_id
        self.tool = tool
        """The tool that became the task, where that is known."""
        self._client = client
        self._answered: set[str] = set()

    async def status(self) -> TaskSnapshot:
        """The task as it is now."""
        return read_snapshot(await self._send("tasks/get"))

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Answer questions of the task by hand, by their keys."""
        self._answered.update(responses)
        await self._send("tasks/update", inputResponses=dict(responses))

    async def cancel(self) -> None:
        """Ask the server to stop. It acknowledges that; `status` tells what came of it."""
        await self._send("tasks/cancel")

    def to_json(self) -> str:
        """The handle as text, for `client.task`."""
        return encode({"taskId": self.id, "tool": self.tool}).decode()

    async def wait(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  a deadline for the whole task, not for one await
        on_status: OnStatus | None = None,
        answer: AnswerAll | None = None,
    ) -> CallToolResult:
        """The final result, once it is there; meanwhile what the task asks is answered by the callbacks.

        `answer` answers instead of the callbacks: it gets the new questions by key (servers of 2025 ask the
        callbacks all the same). A task that fails is a `ServerError`, one that is cancelled a
        `CallCancelled`. If this times out or is cancelled, the task goes on.
        """
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                ended = await self._until_ended(on_status, answer)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise CallTimeout(f"Task {self.id} did not end within {timeout} seconds; it goes on") from None
        return self._client.finish(self.tool, self._result_of(ended))

    async def drive(self, on_status: OnStatus | None) -> JsonObject:
        """The result for a caller who knows of no task: if he leaves, so must the task."""
        try:
            ended = await self._until_ended(on_status, None)
        except CannotAnswer:
            raise  # It is cancelled already.
        except (asyncio.CancelledError, Exception):  # A callback that fails leaves nobody to answer, too.
            await asyncio.shield(self.leave())
            raise
        return self._result_of(ended)

    async def leave(self) -> None:
        """Cancel the task if that can be done soon: nobody waits for it any more."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self.cancel()
        except (TimeoutError, ServerError, TransportError) as error:
            _log.debug("Task %s could not be cancelled: %s", self.id, error)

    async def _until_ended(self, on_status: OnStatus | None, answer: AnswerAll | None) -> TaskSnapshot:
        snapshot = await self.status()
        watch = _Watch(self._client, self.id)
        overdue = Overdue(self.id, self._client.stuck_seconds)
        try:
            while True:
                if on_status is not None:
                    on_status(snapshot)
                if snapshot.ended:
                    return snapshot
                overdue.check(snapshot, self._answered)
                if not await self._answer_new(snapshot, answer or self._client.answerer.answer_all):
                    watch.start()
                    snapshot = await watch.next(snapshot) or await self._look()
                else:
                    snapshot = await self._look()
        finally:
            watch.stop()

    async def _answer_new(self, snapshot: TaskSnapshot, answer: AnswerAll) -> bool:
        """Answer what was not answered before; whether there was anything."""
        new = {key: ask for key, ask in snapshot.input_requests.items() if key not in self._answered}
        if not new:
            return False
        try:
            responses = await answer(new)
        except CannotAnswer:
            await self.leave()  # Nobody else will answer it: it would wait for ever.
            raise
        await self._patiently(lambda: self.answer(responses))  # To answer twice does no harm.
        return True

    async def _look(self) -> TaskSnapshot:
        return await self._patiently(self.status)

    async def _patiently(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request; a server that is away for a moment is waited for."""
        pause, since = 0.1, time.monotonic()
        while True:
            try:
                return await send()
            except TransportError as error:
                if time.monotonic() - since > _UNREACHABLE_SECONDS:
                    raise
                _log.debug("The server of task %s is away: %s", self.id, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _send(self, method: str, **params: Any) -> JsonObject:
        return await self._client.request(ClientRequest(method, {"taskId": self.id, **params}, self.id))

    def _result_of(self, ended: TaskSnapshot) -> JsonObject:
        """What a caller gets of a task that has ended."""
        if ended.status == "failed":
            raise read_error({"error": ended.error})
        if ended.status == "cancelled":
            raise CallCancelled(
                f"Task {ended.task_id} was cancelled: {ended.status_message or 'no reason given'}"
            )
        if ended.result is None:
            raise InvalidResult("The server's task has completed without a result")
        return ended.result


def poll_seconds(snapshot: TaskSnapshot) -> float:
    """How long to wait before the next look."""
    poll = snapshot.poll_interval_ms
    return _USUAL_POLL if poll is None else max(poll / 1000, 0.01)


class Overdue:
    """Notices a task that will never end."""

    def __init__(self, task_id: str, patience: float) -> None:
        self._task_id = task_id
        self._patience = patience
        self._began = time.monotonic()
        self._stuck_since: float | None = None

    def check(self, snapshot: TaskSnapshot, answered: set[str]) -> None:
        """Raise if the task should have ended, or moved on, long ago."""
        now = time.monotonic()
        if snapshot.ttl_ms is not None and now - self._began > snapshot.ttl_ms / 1000 + self._patience:
            raise InvalidResult(f"Task {self._task_id} has not ended although its time is over")
        asked = set(snapshot.input_requests)
        if not asked or not asked <= answered:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self._patience:
            raise InvalidResult(
                f"Task {self._task_id} is stuck: it asks for what was answered ({', '.join(sorted(asked))})"
            )


class _Watch:
    """Waits for the next state of a task: told by the server where it tells, else for the next look."""

    def __init__(self, client: TaskClient, task_id: str) -> None:
        self._client = client
        self._task_id = task_id
        self._told: asyncio.Queue[TaskSnapshot] = asyncio.Queue(_MOST_TOLD)
        self._granted = False
        self._holding: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._holding is None:
            self._holding = asyncio.create_task(self._hold())

    def stop(self) -> None:
        if self._holding is not None:
            self._holding.cancel()

    async def _hold(self) -> None:
        request = ClientRequest(
            "subscriptions/listen",
            {"notifications": {"taskIds": [self._task_id]}},
            hooks=Hooks(notification=self._hear),
        )
        try:
            await self._client.request(request)
        except (ServerError, TransportError, InvalidResult) as error:
            _log.debug("Task %s is looked at, not listened to: %s", self._task_id, error)
        finally:
            self._granted = False

    def _hear(self, message: JsonObject) -> None:
        params: JsonObject = message.get("params") or {}
        if message.get("method") == NOTIFICATION and params.get("taskId") == self._task_id:
            if self._told.full():
                self._told.get_nowait()
            self._told.put_nowait(read_snapshot(params))
        elif message.get("method") == "notifications/subscriptions/acknowledged":
            granted: JsonObject = params.get("notifications") or {}
            self._granted = self._task_id in (granted.get("taskIds") or ())

    async def next(self, snapshot: TaskSnapshot) -> TaskSnapshot | None:
        """The next state, if the server tells it before it is time to look."""
        seconds = poll_seconds(snapshot)
        try:
            async with asyncio.timeout(max(seconds, _BACKSTOP) if self._granted else seconds):
                return await self._told.get()
        except TimeoutError:
            return None


def read_handle(text: str) -> tuple[str, str | None]:
    """The id and the tool of a handle that `to_json` wrote; any other text is an id itself."""
    if not text.startswith("{"):
        return text, None
    try:
        fields = decode(text.encode())
        tool = fields.get("tool")
        return str(fields["taskId"]), None if tool is None else str(tool)
    except (ParseError, KeyError) as error:
        raise UsageError(f"this is no task handle: {error}") from None
