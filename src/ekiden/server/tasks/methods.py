"""The `tasks/` methods (SEP-2663) for the tasks of one server, and how those change.

Clients with a handshake call methods of the same names: these are passed on to `legacy`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ekiden.errors import InvalidParams, UnknownTask
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.middleware import Run
from ekiden.server.registration.registry import Registry
from ekiden.server.tasks.legacy import LegacyTasks
from ekiden.server.tasks.news import NewsDesk, TaskNews
from ekiden.server.tasks.tasks import Listener, Tasks
from ekiden.server.tasks.turns import Turns
from ekiden.tasks.store import Glance
from ekiden.tasks.view import created_view, view
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.principal import grants, require
from ekiden.wire.tasks import RELATED, as_params

__all__ = ["TaskMethods"]

_AT_ONCE: Final = 10
"""Tasks of a subscription that are looked up before others have their turn: there may be a thousand."""

_MOST_TOLD: Final = 64 * 1024
"""Bytes of a result, an error or questions that a notification has. What is larger is fetched by `tasks/get`,
whose answers take turns: a thousand streams may be told at once, and perhaps nobody reads them."""


class TaskMethods:
    """Answers the `tasks/` methods. Implements `sources.TaskSource` and `sources.TaskFeed`."""

    def __init__(self, tasks: Tasks, registry: Registry) -> None:
        self._tasks = tasks
        self._registry = registry
        self._desk, self._turns = NewsDesk(self._look), Turns()
        self.legacy = LegacyTasks(tasks)
        """The same tasks, for clients with a handshake."""
        self._answers: dict[str, Run] = {
            "tasks/get": self.get,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
            "tasks/result": self.result,
            "tasks/list": self.list,
            "tasks/input_response": self.update,
        }

    async def get(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/get`."""
        seen = await self._mine(request)
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.get(seen.record)
        if seen.record.paged_questions():
            return Complete(self._registry.dialect.detailed_task(await self._tasks.shown(seen.record)))
        if seen.spelled is None:
            seen.spelled = self._registry.dialect.detailed_task(view(seen.record))
        return Complete(seen.spelled)

    async def update(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/update`; in the draft, `tasks/input_response`."""
        record = (await self._mine(request)).record
        responses = request.params.get("inputResponses")
        if not is_object(responses):
            raise InvalidParams("Invalid params: `inputResponses` is required and must be an object")
        if self._tasks.people is not None:
            responses = await self._tasks.people.without_pages(record, responses)
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.answer(record, responses)
        await self._tasks.answer_record(record, responses)
        return Complete({})

    async def cancel(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/cancel`."""
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.stopped(await self.legacy.cancel((await self._mine(request)).record))
        await self._tasks.cancel_record((await self._mine(request)).record)
        return Complete({})

    async def result(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/result`, for clients with a handshake."""
        # The record is not held while this waits: it may be large.
        return await self.legacy.result((await self._mine(request)).record.id, request, stream)

    async def list(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/list`, for clients with a handshake that have a principal."""
        return await self.legacy.list(request, request.params.get("cursor"))

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer any of the methods."""
        try:
            return await self._answers[request.method](request, stream)
        except UnknownTask as error:
            return Failed(error)

    async def _mine(self, request: Request) -> Glance:
        """The task that a request names, if it belongs to the request's principal, who may look at it."""
        seen = await self._tasks.visible(_task_id(request), self._tasks.principal_of(request))
        if seen is None:
            raise UnknownTask()
        require(request.principal, self._tasks.scopes_of(seen.record))
        return seen

    # Subscriptions

    async def feeds(self, request: Request, wanted: Sequence[str]) -> "Mapping[str, TaskMethods]":
        """Those of these tasks that the request's principal may look at, and who tells of them."""
        who, found = self._tasks.principal_of(request), dict[str, TaskMethods]()
        for number, task_id in enumerate(wanted, 1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            seen = await self._tasks.visible(task_id, who)
            if seen is not None and grants(request.principal, self._tasks.scopes_of(seen.record)):
                found[task_id] = self
        return found

    async def watch(self, task_id: str, listener: Listener, request: Request) -> Callable[[], None]:
        """Offer the changes of a task that was granted, until the returned function is called."""
        self._tasks.add_listener(task_id, listener)
        return lambda: self._tasks.remove_listener(task_id, listener)

    async def news(self, task_id: str) -> TaskNews | None:
        """The current state of a task; None if it is gone. All who ask at once share it."""
        found = await self._desk.of(task_id)
        await self._turns.take()
        return found

    async def _look(self, task_id: str) -> TaskNews | None:
        seen = await self._tasks.store.glance(task_id)
        if seen is None:
            return None
        record, shown = seen.record, await self._tasks.shown(seen.record)
        payload = record.result or record.error or encode(shown.input_requests)
        return TaskNews(as_params(shown if len(payload) <= _MOST_TOLD else created_view(record)))


def _task_id(request: Request) -> str:
    """The id of the task that a request names: in its parameters, or, in the draft, in its `_meta`."""
    if request.name is not None:
        return request.name
    task_id = request.params.get("taskId")
    if task_id is None and is_object(related := request.meta.fields.get(RELATED)):
        task_id = related.get("taskId")
    if type(task_id) is not str:
        raise InvalidParams("Invalid params: `taskId` is required and must be a string")
    return task_id
