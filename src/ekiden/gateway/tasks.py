"""The `tasks/` methods and notifications for tasks of an upstream of 2026."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from ekiden.client.sessions.session import Hooks
from ekiden.errors import EkidenError, UnknownTask
from ekiden.gateway.connector import Connector
from ekiden.gateway.forwarding import Forwarder
from ekiden.gateway.outgoing import request_of
from ekiden.gateway.task_ids import TaskIds
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.subscriptions import Change
from ekiden.server.tasks.news import TaskNews
from ekiden.server.tasks.sources import TaskFeed
from ekiden.server.tasks.tasks import Listener
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.tasks import METHODS, NOTIFICATION

__all__ = ["SealedTasks"]

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
"""How long to wait before a lost subscription to a task is opened again."""
_MOST_WATCHED: Final = 1000
"""Tasks that are watched at once. Each is a stream of its own; clients of more tasks only poll."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the newest notifications of all of them. What there is no room for, clients hear by polling."""


class SealedTasks:
    """The tasks of one upstream. Implements `ekiden.server.tasks.sources.TaskSource` and `TaskFeed`."""

    def __init__(self, connector: Connector, forwarder: Forwarder, ids: TaskIds) -> None:
        self._connector = connector
        self._forwarder = forwarder
        self._open = ids.open
        self._seen: dict[str, TaskNews] = {}
        """The newest notification of each task that is watched."""
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._watching: set[asyncio.Task[None]] = set()

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer `tasks/get`, `tasks/update` or `tasks/cancel`."""
        inner = None if request.name is None else self._open(request.name, request)
        if request.method not in METHODS or inner is None:
            return Failed(UnknownTask())
        params: JsonObject = {"taskId": inner}
        if "inputResponses" in request.params:
            params["inputResponses"] = request.params["inputResponses"]
        result = await self._forwarder.pass_on(request, params)
        return Complete({**result, "taskId": request.name} if "taskId" in result else result)

    # Notifications

    async def feeds(self, request: Request, wanted: Sequence[str]) -> Mapping[str, TaskFeed]:
        """Those of these tasks that belong to the sender."""
        return {task_id: self for task_id in wanted if self._open(task_id, request) is not None}

    async def watch(self, task_id: str, listener: Listener, request: Request) -> Callable[[], None]:
        """Subscribe to a task at the upstream. Its notifications are offered to the listener."""
        inner = self._open(task_id, request)

        def heard(message: JsonObject) -> None:
            params = message.get("params")
            if message.get("method") == NOTIFICATION and is_object(params) and params.get("taskId") == inner:
                told = {name: value for name, value in params.items() if name != "_meta"}
                if self._keep(task_id, {**told, "taskId": task_id}):
                    listener.offer(Change(NOTIFICATION, task_id))

        if len(self._watching) >= _MOST_WATCHED:
            return _nothing
        watching = asyncio.get_running_loop().create_task(self._hold(request, inner, heard))

        self._watching.add(watching)

        def stop() -> None:
            watching.cancel()
            self._watching.discard(watching)
            self._forget(task_id)

        return stop

    def _keep(self, task_id: str, told: JsonObject) -> bool:
        """Keep what is told of a task, in place of what was; False if there is no room for it."""
        size = len(encode(told))
        self._forget(task_id)
        if self._bytes + size > _MOST_BYTES:
            return False
        self._seen[task_id], self._sizes[task_id] = TaskNews(told), size
        self._bytes += size
        return True

    def _forget(self, task_id: str) -> None:
        self._seen.pop(task_id, None)
        self._bytes -= self._sizes.pop(task_id, 0)

    async def _hold(self, request: Request, inner: str | None, heard: Callable[[JsonObject], None]) -> None:
        """Keep a subscription at the upstream open."""
        params: JsonObject = {"notifications": {"taskIds": [inner]}}
        asked = msgspec.structs.replace(request, method="subscriptions/listen")
        while True:
            try:
                connection = await self._connector.reach()
                sent = request_of(asked, self._connector.upstream, params, None)
                sent.hooks = Hooks(notification=heard)
                await connection.exchange(sent)
            except EkidenError as error:
                _log.debug("The subscription to a task was lost: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def news(self, task_id: str) -> TaskNews | None:
        """What the upstream notified of last; None before that."""
        return self._seen.get(task_id)


def _nothing() -> None:
    """Nothing is watched, so that nothing has to be stopped."""
