"""The `tasks/` methods (SEP-2663), and the notifications of subscriptions to tasks.

Clients with a handshake call methods of the same names: these are passed on to `legacy`.
"""

import msgspec

from ekiden.errors import InvalidParams
from ekiden.rounds.journal import fingerprint
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.server.registration.registry import Registry
from ekiden.server.subscriptions import Change, Filter, Subscription
from ekiden.server.tasks.legacy import LegacyTasks
from ekiden.server.tasks.tasks import Tasks
from ekiden.tasks.store import Glance
from ekiden.tasks.view import view
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.principal import require
from ekiden.wire.tasks import (
    DRAFT_METHOD,
    EXTENSION,
    LIST_METHOD,
    NOTIFICATION,
    RELATED,
    RESULT_TYPE,
    as_dict,
)

__all__ = ["TaskMethods"]


class TaskMethods:
    """Answers the `tasks/` methods. Implements `ekiden.server.registration.extensions.Feed`, too."""

    def __init__(self, tasks: Tasks, registry: Registry) -> None:
        self._tasks = tasks
        self._registry = registry
        self.legacy = LegacyTasks(tasks)
        """The same tasks, for clients with a handshake."""
        self.extension = OfferedExtension(
            identifier=EXTENSION,
            methods={"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.cancel},
            methods_of_2025={
                "tasks/result": self.result,
                LIST_METHOD: self.list,
                DRAFT_METHOD: self.update,
            },
            sends=frozenset({NOTIFICATION}),
            result_types=frozenset({RESULT_TYPE}),
            feed=self,
            in_sessions=False,  # In 2025-11-25 and the draft, tasks are not an extension.
            is_offered=lambda: registry.has_tasks,
        )
        """Tasks as an extension of the protocol."""

    async def get(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/get`."""
        seen = await self._mine(request)
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.get(seen.record)
        if seen.spelled is None:
            seen.spelled = self._registry.dialect.detailed_task(view(seen.record))
        return Complete(seen.spelled)

    async def update(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/update`; in the draft, `tasks/input_response`."""
        record = (await self._mine(request)).record
        responses = request.params.get("inputResponses")
        if not is_object(responses):
            raise InvalidParams("Invalid params: `inputResponses` is required and must be an object")
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.answer(record, responses)
        await self._tasks.answer_record(record, responses)
        return Complete({})

    async def cancel(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/cancel`."""
        record = (await self._mine(request)).record
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.cancel(record)
        await self._tasks.cancel_record(record)
        return Complete({})

    async def result(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/result`, for clients with a handshake."""
        record = (await self._mine(request)).record
        return await self.legacy.result(record, request, stream)

    async def list(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/list`, for clients with a handshake that have a principal."""
        return await self.legacy.list(self._tasks.principal_of(request), request.params.get("cursor"))

    async def _mine(self, request: Request) -> Glance:
        """The task that a request names, if it belongs to the request's principal."""
        if request.meta.protocol_version == versions.MODERN:
            self.extension.require(request)
        seen = await self._tasks.visible(_task_id(request), self._tasks.principal_of(request))
        if seen is None:
            raise InvalidParams("Unknown task")
        tool = self._registry.tools.get(seen.record.tool)
        if tool is not None:
            require(request.principal, tool.handler.scopes)
        return seen

    # Subscriptions

    def is_wanted(self, wanted: Filter) -> bool:
        """Whether a subscription asks for tasks."""
        return bool(wanted.tasks)

    async def grant(self, request: Request, wanted: Filter, granted: Filter) -> Filter:
        """What is granted, with the tasks that belong to the request's principal."""
        self.extension.require(request)
        who = self._tasks.principal_of(request)
        seen = [task_id for task_id in wanted.tasks if await self._tasks.visible(task_id, who) is not None]
        return msgspec.structs.replace(granted, tasks=tuple(seen))

    async def follow(
        self, subscription: Subscription, granted: Filter, stream: Stream, acknowledged: JsonObject
    ) -> None:
        """Acknowledge a subscription, send the current state of its tasks, then send every change."""
        for task_id in granted.tasks:
            self._tasks.add_listener(task_id, subscription)
        tag = {"_meta": acknowledged["_meta"]}
        sent: dict[str, str] = {}
        try:
            await stream.notify("notifications/subscriptions/acknowledged", acknowledged)
            for task_id in granted.tasks:
                subscription.offer(Change(NOTIFICATION, task_id))
            async for change in subscription:
                if change.method != NOTIFICATION or change.uri is None:
                    await stream.notify(change.method, {**tag, **change.params()})
                elif (params := await self._news(change.uri, sent)) is not None:
                    await stream.notify(NOTIFICATION, {**tag, **params})
        finally:
            for task_id in granted.tasks:
                self._tasks.remove_listener(task_id, subscription)

    async def _news(self, task_id: str, sent: dict[str, str]) -> JsonObject | None:
        """The current state of a task; None if it is gone, or equal to what was sent last.

        Of what was sent a fingerprint is kept: results may be large, and there may be a thousand of them.
        """
        record = await self._tasks.store.load(task_id)
        if record is None:
            return None
        params = as_dict(view(record))
        mark = fingerprint(encode(params))
        if mark == sent.get(task_id):
            return None
        sent[task_id] = mark
        return params


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
