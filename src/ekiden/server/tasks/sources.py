"""Whose tasks they are: those of a server, and those of the servers behind it.

All of them are one extension of the protocol (SEP-2663). Which server has a task is found out by asking each.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import msgspec

from ekiden.errors import UnknownTask
from ekiden.rounds.outcome import Failed, Outcome
from ekiden.server.registration.extensions import Follow, OfferedExtension
from ekiden.server.registration.registry import Registry
from ekiden.server.subscriptions import Change, Filter, Subscription
from ekiden.server.tasks.methods import TaskMethods
from ekiden.server.tasks.news import TaskNews
from ekiden.server.tasks.tasks import Listener
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Request
from ekiden.wire.tasks import (
    DRAFT_METHOD,
    EXTENSION,
    LEGACY_METHODS,
    LIST_METHOD,
    METHODS,
    NOTIFICATION,
    RESULT_TYPE,
)

__all__ = ["TaskFeed", "TaskMap", "TaskSource"]


class TaskFeed(Protocol):
    """Tells how tasks change."""

    async def watch(self, task_id: str, listener: Listener, request: Request) -> Callable[[], None]:
        """Offer the changes of a task that was granted, until the returned function is called."""
        ...

    async def news(self, task_id: str) -> TaskNews | None:
        """The current state of a task, as a notification has it; None if it is gone."""
        ...


class TaskSource(Protocol):
    """The tasks of one server: this one, or one behind it."""

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer a `tasks/` method; `Failed` with `UnknownTask` if the task is not one of these."""
        ...

    async def feeds(self, request: Request, wanted: Sequence[str]) -> Mapping[str, TaskFeed]:
        """Those of these tasks that the sender of a request may watch, and who tells of them."""
        ...


class TaskMap:
    """The tasks of a server and of those behind it. Implements `registration.extensions.Feed`, too."""

    def __init__(self, own: TaskMethods | None, registry: Registry) -> None:
        self.sources: list[TaskSource] = [] if own is None else [own]
        self.extension = OfferedExtension(
            identifier=EXTENSION,
            methods=dict.fromkeys(METHODS, self.answer),
            methods_of_2025=dict.fromkeys((*LEGACY_METHODS, LIST_METHOD, DRAFT_METHOD), self.answer),
            sends=frozenset({NOTIFICATION}),
            result_types=frozenset({RESULT_TYPE}),
            feed=self,
            in_sessions=False,  # In 2025-11-25 and the draft, tasks are not an extension.
            is_offered=lambda: registry.serves_tasks,
        )
        """Tasks as an extension of the protocol."""

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer a `tasks/` method: the first source that knows the task does."""
        if request.meta.protocol_version == versions.MODERN:
            self.extension.require(request)
        for source in self.sources:
            outcome = await source.answer(request, stream)
            if not (isinstance(outcome, Failed) and isinstance(outcome.error, UnknownTask)):
                return outcome
        return Failed(UnknownTask())

    async def feeds(self, request: Request, wanted: Sequence[str]) -> Mapping[str, TaskFeed]:
        """Those of these tasks that the sender of a request may watch, and who tells of them."""
        found: dict[str, TaskFeed] = {}
        for source in self.sources:
            if left := [task_id for task_id in wanted if task_id not in found]:
                found.update(await source.feeds(request, left))
        return {task_id: found[task_id] for task_id in wanted if task_id in found}

    # Subscriptions

    def is_wanted(self, wanted: Filter) -> bool:
        """Whether a subscription asks for tasks."""
        return bool(wanted.tasks)

    async def grant(self, request: Request, wanted: Filter, granted: Filter) -> tuple[Filter, Follow]:
        """What is granted, with the tasks that the sender may watch, and what sends all of it."""
        self.extension.require(request)
        feeds = await self.feeds(request, wanted.tasks)
        return msgspec.structs.replace(granted, tasks=tuple(feeds)), partial(_follow, feeds, request)


async def _follow(
    feeds: Mapping[str, TaskFeed],
    request: Request,
    subscription: Subscription,
    stream: Stream,
    acknowledged: JsonObject,
) -> None:
    """Acknowledge a subscription, send the current state of its tasks, then send every change."""
    tag, sent = {"_meta": acknowledged["_meta"]}, dict[str, str]()
    with ExitStack() as stack:
        for task_id, feed in feeds.items():
            stack.callback(await feed.watch(task_id, subscription, request))
        await stream.notify("notifications/subscriptions/acknowledged", acknowledged)
        for task_id in feeds:
            subscription.offer(Change(NOTIFICATION, task_id))
        async for change in subscription:
            if change.method != NOTIFICATION or change.uri is None:
                await stream.notify(change.method, {**tag, **change.params()})
                continue
            news = await feeds[change.uri].news(change.uri)
            # Of what was sent a mark is kept: results may be large, and there may be a thousand of them.
            if news is not None and news.mark != sent.get(change.uri):
                sent[change.uri] = news.mark
                await stream.notify(NOTIFICATION, {**tag, **news.params})
