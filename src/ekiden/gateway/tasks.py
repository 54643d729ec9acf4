"""The `tasks/` methods and notifications for tasks of an upstream of 2026."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from ekiden.client.sessions.session import Hooks
from ekiden.errors import EkidenError, UnknownTask
from ekiden.gateway.connector import Connector
from ekiden.gateway.forwarding import Forwarder
from ekiden.gateway.outgoing import request_of
from ekiden.gateway.task_ids import TaskIds
from ekiden.gateway.watched import Place, Places
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.subscriptions import Change
from ekiden.server.tasks.news import TaskNews
from ekiden.server.tasks.sources import TaskFeed
from ekiden.server.tasks.tasks import Listener
from ekiden.transports.server.port import Stream
from ekiden.transports.shares import Shares
from ekiden.transports.turns import weight_of
from ekiden.wire.json import JsonObject, encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.tasks import METHODS, NOTIFICATION

__all__ = ["SealedTasks"]

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
"""How long to wait before a lost subscription to a task is opened again."""
_MOST_WATCHED: Final = 1000
"""Tasks that are watched at once. Each is a stream of its own; clients of more tasks only poll. Principals
take turns: nobody is kept out by what another one watches."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the newest notifications of all of them, and a quarter more for principals with almost none. What
there is no room for, clients hear by polling."""


class SealedTasks:
    """The tasks of one upstream. Implements `ekiden.server.tasks.sources.TaskSource`."""

    def __init__(self, connector: Connector, forwarder: Forwarder, ids: TaskIds) -> None:
        self.connector = connector
        self._forwarder = forwarder
        self._ids = ids
        self.places = Places(_MOST_WATCHED)
        self.room = Shares(_MOST_BYTES)

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer `tasks/get`, `tasks/update` or `tasks/cancel`."""
        inner = None if request.name is None else self._ids.open(request.name, request)
        if request.method not in METHODS or inner is None:
            return Failed(UnknownTask())
        params: JsonObject = {"taskId": inner}
        if "inputResponses" in request.params:
            params["inputResponses"] = request.params["inputResponses"]
        result = await self._forwarder.pass_on(request, params)
        return Complete({**result, "taskId": request.name} if "taskId" in result else result)

    async def feeds(self, request: Request, wanted: Sequence[str]) -> Mapping[str, TaskFeed]:
        """Those of these tasks that belong to the sender, as far as there is room to watch them."""
        opened = {task_id: self._ids.open(task_id, request) for task_id in dict.fromkeys(wanted)}
        mine = {task_id: inner for task_id, inner in opened.items() if inner is not None}
        if not mine:
            return {}
        asked = msgspec.structs.replace(request, method="subscriptions/listen")
        request_of(asked, self.connector.upstream, {}, None)  # One that cannot be sent is refused now.
        feed = _Feed(self, self._ids.principal_of(request), asked, mine)
        return dict.fromkeys(islice(mine, self.places.room_for(feed.principal)), feed)


class _Feed:
    """The tasks that one subscription watches. Implements `ekiden.server.tasks.sources.TaskFeed`."""

    def __init__(self, of: SealedTasks, principal: str, asked: Request, inner: Mapping[str, str]) -> None:
        self.principal = principal
        self._of = of
        self._asked = asked
        self._inner = inner
        self._seen: dict[str, TaskNews] = {}
        """The newest notification of each task."""
        self._sizes: dict[str, int] = {}

    async def watch(self, task_id: str, listener: Listener, request: Request) -> Callable[[], None]:
        """Subscribe to a task at the upstream. Its notifications are offered to the listener."""
        watching: asyncio.Task[None] | None = None

        def heard(message: JsonObject) -> None:
            told = _told(message, self._inner[task_id])
            if told is not None and self._keep(task_id, {**told, "taskId": task_id}):
                listener.offer(Change(NOTIFICATION, task_id))

        def start() -> None:
            nonlocal watching
            watching = asyncio.get_running_loop().create_task(self._hold(self._inner[task_id], heard))

        def stop() -> None:
            if watching is not None:
                watching.cancel()

        def leave() -> None:
            self._of.places.leave(place)
            self._forget(task_id)

        place = Place(self.principal, start, stop)
        self._of.places.enter(place)
        return leave

    def _keep(self, task_id: str, told: JsonObject) -> bool:
        """Keep what is told of a task, in place of what was; False if there is no room for it."""
        size = weight_of(encode(told))
        self._forget(task_id)
        if not self._of.room.take(self.principal, size):
            return False
        self._seen[task_id], self._sizes[task_id] = TaskNews(told), size
        return True

    def _forget(self, task_id: str) -> None:
        self._seen.pop(task_id, None)
        self._of.room.give_back(self.principal, self._sizes.pop(task_id, 0))

    async def _hold(self, inner: str, heard: Callable[[JsonObject], None]) -> None:
        """Keep a subscription at the upstream open."""
        connector, params = self._of.connector, {"notifications": {"taskIds": [inner]}}
        while True:
            try:
                connection = await connector.reach()
                sent = request_of(self._asked, connector.upstream, params, None)
                sent.hooks = Hooks(notification=heard)
                await connection.exchange(sent)
            except EkidenError as error:
                _log.debug("The subscription to a task was lost: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def news(self, task_id: str) -> TaskNews | None:
        """What the upstream notified of last; None before that."""
        return self._seen.get(task_id)


def _told(message: JsonObject, inner: str) -> JsonObject | None:
    """What a message tells of a task; None if it is about something else."""
    params = message.get("params")
    if message.get("method") != NOTIFICATION or not is_object(params) or params.get("taskId") != inner:
        return None
    return {name: value for name, value in params.items() if name != "_meta"}
