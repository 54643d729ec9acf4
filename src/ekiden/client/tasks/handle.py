"""Handles for tasks of a server: watch one until it ends, and answer what it asks (SEP-2663).

A handle is only the id of its task (and the tool, if known): after a restart, `client.task(id)` gives it
again. Each question is answered once, however often it is seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from ekiden.client.answering import Answerer
from ekiden.client.checking import check_responses
from ekiden.client.sessions.session import ClientRequest, Hooks, read_error
from ekiden.client.target import ClientLimits
from ekiden.errors import (
    CallCancelled,
    CallTimeout,
    CannotAnswer,
    InvalidResult,
    ParseError,
    ServerError,
    TooManyRounds,
    TransportError,
    UsageError,
)
from ekiden.wire.json import JsonObject, decode, encode
from ekiden.wire.tasks import NOTIFICATION

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = [
    "AnswerAll",
    "OnStatus",
    "Overdue",
    "TaskClient",
    "TaskHandle",
    "TaskSnapshot",
    "Watch",
    "poll_seconds",
    "read_handle",
    "read_snapshot",
]

_log = logging.getLogger(__name__)

_USUAL_POLL: Final = 1.0
"""Seconds between two `tasks/get` if the server does not say."""
_BACKSTOP: Final = 5.0
"""Seconds between two `tasks/get` with a subscription: it can break without notice."""
_UNREACHABLE_SECONDS: Final = 60.0
"""How long a server may be unreachable, as in a restart, before the error is raised."""
_CANCEL_SECONDS: Final = 5.0
_MOST_WAITING: Final = 16
"""Notified states that may wait while the user is asked. Beyond it the oldest is dropped."""


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
        """Whether the task has ended."""
        return self.status in ("completed", "failed", "cancelled")

    @property
    def is_whole(self) -> bool:
        """Whether it has what belongs to its status. A notification may leave that out."""
        payload = {"completed": self.result, "failed": self.error, "input_required": self.input_requests}
        return payload.get(self.status, True) not in (None, {})


def read_snapshot(fields: Mapping[str, Any]) -> TaskSnapshot:
    """The task in a result or a notification."""
    try:
        return msgspec.convert(fields, TaskSnapshot)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"The server's task is malformed: {error}") from None


OnStatus: TypeAlias = Callable[[TaskSnapshot], None]
T = TypeVar("T")
AnswerAll: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class TaskClient(msgspec.Struct):
    """The parts of a client that a handle uses."""

    request: Callable[[ClientRequest], Awaitable[JsonObject]]
    answerer: Answerer
    finish: Callable[[str | None, JsonObject], CallToolResult]
    """Reads the final result of a tool."""
    limits: ClientLimits
    watchers: set[Callable[[JsonObject], None]]
    """Called with every notification."""


class TaskHandle:
    """One task of a server."""

    def __init__(self, client: TaskClient, task_id: str, tool: str | None = None) -> None:
        self.id = task_id
        self.tool = tool
        """The tool that became the task, if known."""
        self._client = client
        self._asked: Mapping[str, JsonObject] = {}
        """What the task asked when it was last seen."""
        self._answered: set[str] = set()
        self._left: set[str] = set()
        """Questions that are left out: they are not brought up again."""

    async def status(self) -> TaskSnapshot:
        """The task as it is now."""
        snapshot = read_snapshot(await self._send("tasks/get"))
        self._asked = snapshot.input_requests
        return snapshot

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Answer questions of the task by hand, by their keys. The others stay open.

        Each is checked before it is sent (`WrongAnswer`).
        """
        if not self._asked.keys() >= responses.keys():
            await self.status()
        asked = {key: ask for key, ask in self._asked.items() if key in responses}
        await self._send_answers(check_responses(asked, responses))

    async def _send_answers(self, responses: Mapping[str, Any]) -> None:
        await self._send("tasks/update", inputResponses=dict(responses))
        self._answered.update(responses)  # Not before: whoever waits again after a failure must answer again.

    async def cancel(self) -> None:
        """Ask the server to stop the task. Returns when that is acknowledged; `status` shows the result."""
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
        """Wait for the final result; meanwhile the callbacks answer what the task asks.

        `answer` is called instead of the callbacks, with the new questions by key (with servers of 2025 it is
        the callbacks all the same). It returns a response for each, or `LeftOut()` for one that stays open.
        Raises `ServerError` if the task fails and `CallCancelled` if it is cancelled. If this times out or is
        cancelled, the task goes on. One that asks more than `ClientLimits.task_questions` is cancelled, with
        `TooManyRounds`.
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
        """The result for `call_tool`. Its caller has no handle: if this ends early, the task is cancelled."""
        try:
            ended = await self._until_ended(on_status, None)
        except (CannotAnswer, TooManyRounds):
            raise  # It is cancelled already.
        except (asyncio.CancelledError, Exception):  # A failed callback, too: it would answer no more.
            await asyncio.shield(self.try_cancel())
            raise
        return self._result_of(ended)

    async def try_cancel(self) -> None:
        """Cancel the task, but give up after a few seconds: its caller is gone."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.cancel()
        except (TimeoutError, ServerError, TransportError) as error:
            _log.debug("Task %s could not be cancelled: %s", self.id, error)

    async def _until_ended(self, on_status: OnStatus | None, answer: AnswerAll | None) -> TaskSnapshot:
        snapshot = await self.status()
        answering = self._client.answerer.answer_all if answer is None else _checked(answer)
        watch = self._watch()
        overdue = Overdue(self.id, self._client.limits.stuck_seconds)
        try:
            while True:
                if on_status is not None:
                    on_status(snapshot)
                if snapshot.ended:
                    return snapshot
                overdue.check(snapshot, self._answered)
                if not await self._answer_new(snapshot, answering):
                    watch.start()
                    snapshot = await watch.next(snapshot) or await self._look()
                else:
                    snapshot = await self._look()
        finally:
            watch.stop()

    def _watch(self) -> Watch:
        return _Watch(self._client, self.id)

    async def _answer_new(self, snapshot: TaskSnapshot, answer: AnswerAll) -> bool:
        """Answer new questions; True if there were any."""
        known = self._answered | self._left
        new = {key: ask for key, ask in snapshot.input_requests.items() if key not in known}
        if not new:
            return False
        try:
            if len(known) + len(new) > (most := self._client.limits.task_questions):
                raise TooManyRounds(f"Task {self.id} asks more than {most} questions")
            responses = await answer(new)
        except (CannotAnswer, TooManyRounds):
            await self.try_cancel()  # It would wait for ever.
            raise
        self._left.update(new.keys() - responses.keys())
        if responses:
            await self._patiently(lambda: self._send_answers(responses))  # Answering twice is harmless.
        return bool(responses)

    async def _look(self) -> TaskSnapshot:
        return await self._patiently(self.status)

    async def _patiently(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request; while the server is unreachable, try again for a time."""
        pause, since = 0.1, time.monotonic()
        while True:
            try:
                return await send()
            except TransportError as error:
                if time.monotonic() - since > _UNREACHABLE_SECONDS:
                    raise
                _log.debug("The server of task %s is unreachable: %s", self.id, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _send(self, method: str, **params: Any) -> JsonObject:
        return await self._client.request(ClientRequest(method, {"taskId": self.id, **params}, self.id))

    def _result_of(self, ended: TaskSnapshot) -> JsonObject:
        """The result of a task that has ended, or the exception for it."""
        if ended.status == "failed":
            raise read_error({"error": ended.error})
        if ended.status == "cancelled":
            raise CallCancelled(
                f"Task {ended.task_id} was cancelled: {ended.status_message or 'no reason given'}"
            )
        if ended.result is None:
            raise InvalidResult("The server's task has completed without a result")
        return ended.result


def _checked(answer: AnswerAll) -> AnswerAll:
    async def answer_all(requests: Mapping[str, Any]) -> JsonObject:
        return check_responses(requests, await answer(requests))

    return answer_all


def poll_seconds(snapshot: TaskSnapshot) -> float:
    """Seconds to wait before the next `tasks/get`."""
    poll = snapshot.poll_interval_ms
    return _USUAL_POLL if poll is None else max(poll / 1000, 0.01)


class Overdue:
    """Raises if a task will never end."""

    def __init__(self, task_id: str, patience: float) -> None:
        self._task_id = task_id
        self._patience = patience
        self._began = time.monotonic()
        self._stuck_since: float | None = None

    def check(self, snapshot: TaskSnapshot, answered: set[str]) -> None:
        """Raise if the task should have ended or changed long ago."""
        now = time.monotonic()
        if snapshot.ttl_ms is not None and now - self._began > snapshot.ttl_ms / 1000 + self._patience:
            raise InvalidResult(f"Task {self._task_id} has not ended although its ttl is over")
        asked = set(snapshot.input_requests)
        if not asked or not asked <= answered:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self._patience:
            raise InvalidResult(
                f"Task {self._task_id} is stuck: it asks again what was answered ({', '.join(sorted(asked))})"
            )


class Watch(Protocol):
    """Waits for the next state of a task."""

    def start(self) -> None:
        """Begin to watch, if that has not begun."""
        ...

    def stop(self) -> None:
        """Watch no more."""
        ...

    async def next(self, snapshot: TaskSnapshot) -> TaskSnapshot | None:
        """The next state, or None when it is time for `tasks/get`."""
        ...


class _Watch:
    """A subscription if the server has them, else the clock."""

    def __init__(self, client: TaskClient, task_id: str) -> None:
        self._client = client
        self._task_id = task_id
        self._received: asyncio.Queue[TaskSnapshot] = asyncio.Queue(_MOST_WAITING)
        self._granted = False
        self._subscription: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._subscription is None:
            self._subscription = asyncio.create_task(self._subscribe())

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()

    async def _subscribe(self) -> None:
        request = ClientRequest(
            "subscriptions/listen",
            {"notifications": {"taskIds": [self._task_id]}},
            hooks=Hooks(notification=self._receive),
        )
        try:
            await self._client.request(request)
        except (ServerError, TransportError, InvalidResult) as error:
            _log.debug("Task %s is polled, there is no subscription: %s", self._task_id, error)
        finally:
            self._granted = False

    def _receive(self, message: JsonObject) -> None:
        params: JsonObject = message.get("params") or {}
        if message.get("method") == NOTIFICATION and params.get("taskId") == self._task_id:
            if self._received.full():
                self._received.get_nowait()
            self._received.put_nowait(read_snapshot(params))
        elif message.get("method") == "notifications/subscriptions/acknowledged":
            granted: JsonObject = params.get("notifications") or {}
            self._granted = self._task_id in (granted.get("taskIds") or ())

    async def next(self, snapshot: TaskSnapshot) -> TaskSnapshot | None:
        """The next notified state, or None when it is time for `tasks/get`."""
        seconds = poll_seconds(snapshot)
        try:
            async with asyncio.timeout(max(seconds, _BACKSTOP) if self._granted else seconds):
                told = await self._received.get()
        except TimeoutError:
            return None
        return told if told.is_whole else None


def read_handle(text: str) -> tuple[str, str | None]:
    """The id and the tool of a handle that `to_json` wrote; any other text is an id itself."""
    if not text.startswith("{"):
        return text, None
    try:
        fields = decode(text.encode())
        tool = fields.get("tool")
        return str(fields["taskId"]), None if tool is None else str(tool)
    except (ParseError, KeyError) as error:
        raise UsageError(f"this is not a task handle: {error}") from None
