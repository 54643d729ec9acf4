"""`subscriptions/listen`: which clients get which changes (basic/patterns: Subscriptions).

A subscription remembers only *that* something changed, never how often: at most one notification
of each kind is pending, and one for each resource that was asked for. So a client that
does not read costs no more memory than one that does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from ekiden.errors import InternalError, InvalidParams
from ekiden.wire.json import JsonObject, is_array, is_object
from ekiden.wire.tasks import NOTIFICATION

__all__ = ["Change", "Filter", "Hub", "Subscription", "read_filter"]

_LIST_CHANGES: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_RESOURCE_UPDATED: Final = "notifications/resources/updated"
_MOST_RESOURCES: Final = 1000
"""Resources that one subscription may watch; the same for tasks."""
_MOST_SUBSCRIPTIONS: Final = 10_000
"""Open subscriptions of one process. Each is an idle stream of some 20 KB."""


class Change(msgspec.Struct, frozen=True):
    """Something that changed: a list (`uri` None), one resource, or one task (`uri` is its id)."""

    method: str
    uri: str | None = None

    def params(self) -> JsonObject:
        """The notification's own parameters."""
        return {} if self.uri is None else {"uri": self.uri}


class Filter(msgspec.Struct, frozen=True):
    """What a client asked for, or what it is granted."""

    lists: tuple[str, ...]
    resources: tuple[str, ...]
    tasks: tuple[str, ...] = ()

    def changes(self) -> frozenset[Change]:
        """All changes that may be sent."""
        return frozenset(
            [Change(_LIST_CHANGES[name]) for name in self.lists]
            + [Change(_RESOURCE_UPDATED, uri) for uri in self.resources]
            + [Change(NOTIFICATION, task_id) for task_id in self.tasks]
        )

    def acknowledged(self) -> JsonObject:
        """The filter as it is written in the acknowledgement."""
        fields: dict[str, Any] = dict.fromkeys(self.lists, True)
        if self.resources:
            fields["resourceSubscriptions"] = list(self.resources)
        if self.tasks:
            fields["taskIds"] = list(self.tasks)
        return fields


def read_filter(params: JsonObject) -> Filter:
    """The `notifications` filter of a listen request; unknown kinds are left out, malformed ones refused."""
    wanted = params.get("notifications")
    if not is_object(wanted):
        raise InvalidParams("Invalid params: `notifications` is required and must be an object")
    for name in _LIST_CHANGES:
        if type(wanted.get(name, False)) is not bool:
            raise InvalidParams(f"Invalid params: `notifications.{name}` must be a boolean")
    return Filter(
        tuple(name for name in _LIST_CHANGES if wanted.get(name)),
        _names(wanted, "resourceSubscriptions", "URIs", "resources"),
        _names(wanted, "taskIds", "task ids", "tasks"),
    )


def _names(wanted: JsonObject, field: str, what: str, things: str) -> tuple[str, ...]:
    names = wanted.get(field, [])
    if not is_array(names) or not all(type(name) is str for name in names):
        raise InvalidParams(f"Invalid params: `notifications.{field}` must be a list of {what}")
    if len(names) > _MOST_RESOURCES:
        raise InvalidParams(f"Invalid params: a subscription watches at most {_MOST_RESOURCES} {things}")
    return tuple(dict.fromkeys(names))


class Subscription:
    """One open stream: iterate over it for the changes to send; it ends when the server drains."""

    def __init__(self, granted: Filter) -> None:
        self._wanted = granted.changes()
        self._pending: dict[Change, None] = {}
        self._ended = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def want(self, granted: Filter) -> None:
        """Replace the changes that are sent from now on."""
        self._wanted = granted.changes()

    def offer(self, change: Change) -> None:
        """Queue a change, if it is wanted. Callable from any thread."""
        if change in self._wanted:
            self._loop.call_soon_threadsafe(self._take, change)

    def end(self) -> None:
        """Let the iteration end after the pending changes. Callable from any thread."""
        self._loop.call_soon_threadsafe(self._finish)

    def _take(self, change: Change) -> None:
        self._pending[change] = None
        self._wake.set()

    def _finish(self) -> None:
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while self._pending or not self._ended:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                change = next(iter(self._pending))
                del self._pending[change]
                yield change


class Hub:
    """The open subscriptions of this process."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()
        self._draining = False

    def open(self, granted: Filter) -> Subscription:
        """Open a subscription; `close` it when its stream ends."""
        if self._draining:
            raise InternalError("The server is shutting down")
        if len(self._open) >= _MOST_SUBSCRIPTIONS:
            raise InternalError("Too many subscriptions are open")
        subscription = Subscription(granted)
        self._open.add(subscription)
        return subscription

    def close(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._open.discard(subscription)

    def list_changed(self, kind: str) -> Callable[[], None]:
        """A function that publishes a change of the list `kind`."""
        change = Change(_LIST_CHANGES[kind])
        return lambda: self._publish(change)

    def resource_updated(self, uri: str) -> None:
        """Publish a change of the resource `uri`."""
        self._publish(Change(_RESOURCE_UPDATED, uri))

    def _publish(self, change: Change) -> None:
        for subscription in tuple(self._open):
            subscription.offer(change)

    def drain(self) -> None:
        """End all subscriptions gracefully, and take no new ones."""
        self._draining = True
        for subscription in tuple(self._open):
            subscription.end()

    def reopen(self) -> None:
        """Take subscriptions again, after a restart in the same process."""
        self._draining = False
