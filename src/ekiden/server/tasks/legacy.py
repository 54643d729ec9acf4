"""Tasks for clients with a handshake: the experimental ones of 2025-11-25, and the draft's.

The rows and the handlers are the same. What differs: the client decides that a call becomes a task, with
`task` in its call; it fetches the result with `tasks/result`, which waits; and a task asks in 2025-11-25 with
requests on the stream of `tasks/result`, in the draft with `inputRequests` in its result, which
`tasks/input_response` answers. A session of 2025-11-25 is notified of changes of the tasks that it created,
if it has a stream for notifications.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from typing import Final

from ekiden.errors import (
    CannotAsk,
    InvalidParams,
    MethodNotFound,
    StoreUnavailable,
)
from ekiden.rounds.asks import ELICIT
from ekiden.rounds.call_state import CallState
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.handlers import Handler
from ekiden.server.legacy.session import AskingStream, Session, SessionStream
from ekiden.server.subscriptions import Change
from ekiden.server.tasks.final import related
from ekiden.server.tasks.tasks import Tasks, wished_ttl
from ekiden.server.tasks.turns import Turns
from ekiden.server.tasks.waiting import Waiting
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import Place
from ekiden.tasks.view import created_view
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.draft import incomplete
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Request
from ekiden.wire.principal import grants
from ekiden.wire.tasks import NOTIFICATION, TaskView, legacy_task

__all__ = ["LegacyTasks"]

_STOP_SECONDS: Final = 10.0
"""How long `tasks/cancel` waits for a running handler to stop before it answers."""
_PAGE: Final = 100
"""Tasks in one answer to `tasks/list`."""


class LegacyTasks:
    """Answers the `tasks/` methods of clients with a handshake."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._store = tasks.store
        self._waiting = Waiting(tasks.store)
        self._turns = Turns()
        self._asking: set[tuple[str, str]] = set()
        """Questions that a `tasks/result` of this process is asking now, so that no other asks them too."""

    async def begin(
        self, request: Request, state: CallState, handler: Handler, stream: Stream
    ) -> Outcome | None:
        """Create a task, if the client asks for one; None if the call runs as a plain call."""
        if request.meta.protocol_version not in versions.WITH_TASKS:
            return None
        if request.params.get("task") is None:
            if handler.task == "required":
                raise MethodNotFound(f"Tool {request.name!r} must be called as a task")
            return None
        if handler.task == "never":
            raise MethodNotFound(f"Tool {request.name!r} cannot be called as a task")
        # Refuses an invalid `ttl` also where it is not used.
        wished_ttl(request, self._tasks.limits.ttl_seconds)
        if handler.task == "deferred" and request.meta.protocol_version == versions.DRAFT:
            return None  # It may ask by rounds first; `ctx.background` makes it a task.
        created = await self._tasks.create(request, state, {})
        if (
            isinstance(stream, SessionStream)
            and stream.session.kept
            and versions.LEGACY[0] == stream.session.version
        ):
            self._follow(stream.session, created.task)
        return created

    def _follow(self, session: Session, created: TaskView) -> None:
        """Notify a session of changes of its task (`notifications/tasks/status`), wherever the task runs."""
        task_id, sent = created.task_id, legacy_task(created)
        watching = session.watching

        async def news() -> JsonObject | None:
            nonlocal sent
            try:
                seen = await self._store.glance(task_id)
            except StoreUnavailable:
                return None  # The client polls as well.
            record = None if seen is None else seen.record
            if record is not None and not grants(watching.reader, self._tasks.scopes_of(record)):
                return None  # Another token of the same principal may look.
            if record is None or record.final:
                watching.unfollow(task_id)
            before, sent = sent, sent if record is None else _told(record)
            return None if sent == before else sent

        watching.follow(task_id, news, lambda: self._tasks.remove_listener(task_id, watching))
        self._tasks.add_listener(task_id, watching)
        watching.offer(Change(NOTIFICATION, task_id))  # It may have changed before the listener was added.

    # The methods

    async def get(self, record: TaskRecord) -> Outcome:
        """`tasks/get`."""
        shown = await self._tasks.shown(record, in_words=True)
        return Complete(legacy_task(shown, tool_failed=record.tool_failed))

    async def cancel(self, record: TaskRecord) -> str:
        """`tasks/cancel`: answered with what `stopped` returns for the id that this returns."""
        if record.final:
            raise InvalidParams(f"Cannot cancel a task that is {record.status}")
        await self._tasks.cancel_record(record)
        return record.id

    async def stopped(self, task_id: str) -> Outcome:
        """The final state of a task that was cancelled, when it has stopped."""
        async with self._waiting.for_task(task_id) as task:
            record = await task.after(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    while not record.final:
                        record = await task.after(record)
        return Complete(_told(record))

    async def list(self, request: Request, cursor: object) -> Outcome:
        """`tasks/list`: the tasks of a principal, page by page. The cursor is the id of the last task.

        Those of tools whose scopes the caller lacks are left out, so that a page may have fewer than others.
        A caller without a principal is shown none: those without one are of all such callers, and each of
        them is known by its id alone.
        """
        principal = self._tasks.principal_of(request)
        if not principal:
            return Complete({"tasks": []})
        after: Place | None = None
        if cursor is not None:
            last = await self._tasks.visible(cursor, principal) if type(cursor) is str else None
            if last is None:
                raise InvalidParams("Invalid params: unknown `cursor`; start again without one")
            after = last.record.created, last.record.id
        mine = await self._store.listing(
            audience=self._tasks.audience, principal=principal, after=after, limit=_PAGE + 1
        )
        shown = [each for each in mine[:_PAGE] if grants(request.principal, self._tasks.scopes_of(each))]
        page: JsonObject = {"tasks": [_told(record) for record in shown]}
        if len(mine) > _PAGE:
            page["nextCursor"] = mine[_PAGE - 1].id
        return Complete(page)

    async def answer(self, record: TaskRecord, responses: Mapping[str, object]) -> Outcome:
        """`tasks/input_response`, of the draft."""
        await self._tasks.answer_record(record, responses)
        return Complete({"_meta": related(record.id)})

    async def result(self, task_id: str, request: Request, stream: Stream) -> Outcome:
        """`tasks/result`: wait for the end of the task, and pass its questions on meanwhile."""
        pushes = request.meta.protocol_version != versions.DRAFT
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            async with self._waiting.for_task(task_id) as task:
                record = await task.after(None)
                while not record.final:
                    if pushes:
                        self._ask_new(record, stream, asking)
                    elif questions := record.open_questions():
                        asked = {key: question.request for key, question in questions.items()}
                        return Complete({**incomplete(asked), "_meta": related(record.id)})
                    record = await task.after(record)
                final = task.final(record)
        finally:
            for each in asking.values():
                each.cancel()
        await self._turns.take()
        return final.outcome()

    # Asking

    def _ask_new(self, record: TaskRecord, stream: Stream, asking: dict[str, asyncio.Task[None]]) -> None:
        for key, question in record.open_questions().items():
            if key not in asking and (record.id, key) not in self._asking:
                asking[key] = asyncio.create_task(self._ask(record, key, question, stream))

    async def _ask(self, record: TaskRecord, key: str, question: Question, stream: Stream) -> None:
        asker: AskingStream = stream  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  sessions give no other
        request = question.request
        params: JsonObject = {**(request.get("params") or {}), "_meta": related(record.id)}
        self._asking.add((record.id, key))
        try:
            answer = await asker.ask(request["method"], params, secrets.token_urlsafe(16))
        except CannotAsk as problem:
            if request["method"] != ELICIT:
                await self._store.cancel(
                    record.id, now=self._tasks.now(), tidy=True, message=f"Cancelled: {problem}"
                )
                return
            answer = {"action": "cancel"}
        finally:
            self._asking.discard((record.id, key))
        await self._tasks.answer_record(record, {key: answer})


def _told(record: TaskRecord) -> JsonObject:
    """A task as it is told of: without its content."""
    return legacy_task(created_view(record), tool_failed=record.tool_failed)
