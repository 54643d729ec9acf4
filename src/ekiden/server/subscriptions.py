"""`subscriptions/listen`: which clients get which changes (basic/patterns: Subscriptions).

A subscription remembers only *that* something changed, never how often: at most one notification
of each kind is pending, and one for each resource that was asked for. So a client that
does not read costs no more memory than one that does. Changes of other processes come over a bus, if there is
one; what was missed there counts as changed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from ekiden.bus.port import Bus, Hear
from ekiden.errors import InternalError, InvalidParams
from ekiden.server.subscription_room import SubscriptionRoom, size_of
from ekiden.wire.json import JsonObject, encode, is_array, is_object
from ekiden.wire.tasks import NOTIFICATION

__all__ = [
    "LONGEST_URI",
    "RESOURCE_UPDATED",
    "Change",
    "Filter",
    "Hub",
    "Subscription",
    "is_too_long",
    "read_filter",
]

_LIST_CHANGES: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
RESOURCE_UPDATED: Final = "notifications/resources/updated"
_MOST_RESOURCES: Final = 1000
"""Resources that one subscription may watch; the same for tasks."""
LONGEST_URI: Final = 2048
"""Bytes of a URI that may be subscribed to, as JSON: about as many as browsers accept, and few enough for any
bus."""
_MOST_BYTES: Final = 128 * 1024
"""Bytes of the URIs and ids of one subscription together."""


class Change(msgspec.Struct, frozen=True):
    """Something that changed: a list (`uri` None), one resource, or one task (`uri` is its id)."""

    method: str
    uri: str | None = None

    def params(self) -> JsonObject:
        """The notification's own parameters."""
        return {} if self.uri is None else {"uri": self.uri}


class _Told(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """A change as it is told to other processes."""

    audience: str
    """The server that it concerns: several may share one bus."""
    change: Change


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Told).decode


class Filter(msgspec.Struct, frozen=True):
    """What a client asked for, or what it is granted."""

    lists: tuple[str, ...]
    resources: tuple[str, ...]
    tasks: tuple[str, ...] = ()

    def changes(self) -> frozenset[Change]:
        """All changes that may be sent."""
        return frozenset(
            [Change(_LIST_CHANGES[name]) for name in self.lists]
            + [Change(RESOURCE_UPDATED, uri) for uri in self.resources]
            + [Change(NOTIFICATION, task_id) for task_id in self.tasks]
        )

    def size(self) -> int:
        """The bytes that it takes in memory, about."""
        return sum(size_of(name) for names in (self.resources, self.tasks) for name in names)

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
    if any(is_too_long(name) for name in names):
        raise InvalidParams(f"Invalid params: each of the {what} has at most {LONGEST_URI} bytes")
    if sum(map(len, names)) > _MOST_BYTES:
        raise InvalidParams(f"Invalid params: the {what} of a subscription have at most {_MOST_BYTES} bytes")
    return tuple(dict.fromkeys(names))


def is_too_long(uri: str) -> bool:
    """Whether a URI cannot be subscribed to."""
    return len(uri) > LONGEST_URI or len(encode(uri)) > LONGEST_URI + 2  # With its quotes.


class Subscription:
    """One open stream: iterate over it for the changes to send; it ends when the server drains."""

    def __init__(self, granted: Filter, owner: str, size: int) -> None:
        self.owner, self.size = owner, size
        """Who has opened it, as far as that is known, and the bytes that it takes."""
        self._wanted = granted.changes()
        self._pending: dict[Change, None] = {}
        self._ended = self._cut = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def want(self, granted: Filter) -> None:
        """Replace the changes that are sent from now on."""
        self._wanted = granted.changes()

    def resources(self) -> set[str]:
        """The resources that it watches."""
        return {change.uri for change in self._wanted if change.method == RESOURCE_UPDATED and change.uri}

    def offer(self, change: Change) -> None:
        """Queue a change, if it is wanted. Callable from any thread."""
        if change in self._wanted:
            self._loop.call_soon_threadsafe(self._take, change)

    def offer_all(self) -> None:
        """Queue everything that is wanted: what has changed is not known."""
        for change in self._wanted:
            self.offer(change)

    def end(self) -> None:
        """Let the iteration end after the pending changes. Callable from any thread."""
        self._loop.call_soon_threadsafe(self._finish)

    def cut(self) -> None:
        """Let the iteration end now: whoever listens may not be told any more. Call it in the loop."""
        self._cut = True
        self._pending.clear()
        self._finish()

    def _take(self, change: Change) -> None:
        if not self._cut:
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
                try:
                    yield change
                except GeneratorExit:  # Whoever was to send it has left: perhaps it was not sent.
                    self._take(change)
                    raise


class Hub:
    """The open subscriptions of this process, and its way to those of others."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()
        self.room = SubscriptionRoom()
        self._draining = False
        self._bus: Bus | None = None
        self._audience = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which changes are sent to other processes; None before the start."""
        self._listening: asyncio.Task[Callable[[], None]] | None = None
        self.changed_lists: set[Change] = set()
        """The lists that have changed since the start."""
        self._resources_changed = 0
        """How often resources have changed, as far as this process knows."""
        self.inner: list[Hub] = []
        """The hubs of servers that are mounted: what they hear of other processes is heard here."""
        self.outer: list[Callable[[Change, bool], None]] = []
        """Of servers around this one: called with every change, and whether another process told of it."""
        self.watched_outside: list[Callable[[], dict[str, set[str]]]] = []
        """The resources that each client of servers around this one watches."""
        self.on_watched: list[Callable[[], None]] = []
        """Called when other resources are watched than before."""

    # Other processes

    def connect(self, bus: Bus, audience: str) -> None:
        """Use a bus, unless there is one already. Call it before the start."""
        if self._bus is None:
            self._bus, self._audience = bus, audience

    async def ready(self) -> None:
        """Hear the changes of other processes from now on. Await it before `open`."""
        for hub in self.inner:
            await hub.ready()
        if self._bus is None:
            return
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(_listen(self._bus, self._hear))
        await asyncio.shield(self._listening)

    def _hear(self, message: bytes | None) -> None:
        if message is None:
            self._heard_of_all()
            return
        try:
            told = _decode(message)
        except msgspec.MsgspecError:
            return  # Not a change, or of another version.
        if told.audience == self._audience:
            self.heard(told.change)

    def _heard_of_all(self) -> None:
        """Other processes have told of something that did not arrive: everything may have changed."""
        for subscription in tuple(self._open):
            subscription.offer_all()
        if self.outer:
            changes = [Change(method) for method in _LIST_CHANGES.values()]
            changes += [Change(RESOURCE_UPDATED, uri) for uri in self.watched()]
            for tell in self.outer:
                for change in changes:
                    tell(change, True)

    def heard(self, change: Change) -> None:
        """Take a change that another process has told of."""
        self._offer(change)
        for tell in self.outer:
            tell(change, True)

    def _tell(self, change: Change) -> None:
        """Tell other processes. Callable from any thread."""
        if self._bus is None or self._loop is None:
            return  # What changes before the start is not a change to anybody.
        message = _encode(_Told(self._audience, change))
        if _running_loop() is self._loop:
            self._bus.publish(message)
        else:
            self._loop.call_soon_threadsafe(self._bus.publish, message)

    # Subscriptions

    def open(self, granted: Filter, owner: str = "", *, held: bool = False) -> Subscription:
        """Open a subscription; `close` it when its stream ends. `owner` is whose it is, if that is known.

        `held`: what it names is counted already, by `room.hold`.
        """
        if self._draining:
            raise InternalError("The server is shutting down")
        size = 0 if held else granted.size()
        self.room.enter(owner, size)
        subscription = Subscription(granted, owner, size)
        self._open.add(subscription)
        if granted.resources:
            self.watched_changed()
        return subscription

    def close(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        if subscription in self._open:
            self._open.discard(subscription)
            self.room.leave(subscription.owner, subscription.size)
            if subscription.resources():
                self.watched_changed()

    def watched(self) -> set[str]:
        """The resources that clients watch, of this server and of those around it."""
        return set[str]().union(*self.watched_by_each().values())

    def watched_by_each(self) -> dict[str, set[str]]:
        """The same, by client."""
        watched: dict[str, set[str]] = {}
        for subscription in self._open:
            if found := subscription.resources():
                watched.setdefault(subscription.owner, set()).update(found)
        for outside in self.watched_outside:
            for owner, found in outside().items():
                watched.setdefault(owner, set()).update(found)
        return watched

    def watched_changed(self) -> None:
        """Other resources may be watched now than before."""
        for tell in self.on_watched:
            tell()

    def list_publisher(self, kind: str) -> Callable[[], None]:
        """A function that publishes a change of the list `kind`."""
        change = Change(_LIST_CHANGES[kind])
        return lambda: self._publish(change)

    def resource_updated(self, uri: str) -> None:
        """Publish a change of the resource `uri`."""
        self._publish(Change(RESOURCE_UPDATED, uri))

    def _publish(self, change: Change) -> None:
        self._offer(change)
        self._tell(change)
        for tell in self.outer:
            tell(change, False)

    def _offer(self, change: Change) -> None:
        if change.uri is not None:
            self._resources_changed += 1
        elif self._loop is not None:
            self.changed_lists.add(change)
        for subscription in tuple(self._open):
            subscription.offer(change)

    @property
    def moment(self) -> int | None:
        """Equal to that of an earlier time if no resource has changed since; None if that cannot be known."""
        return self._resources_changed if self._bus is None and not self.inner else None

    def drain(self) -> None:
        """End all subscriptions gracefully, and take no new ones."""
        self._draining = True
        for subscription in tuple(self._open):
            subscription.end()

    def reopen(self) -> None:
        """Take subscriptions, at the start or after a restart in the same process."""
        self._draining = False
        self._loop = asyncio.get_running_loop()

    def forget(self) -> None:
        """Begin anew: the event loop of all subscriptions is closed."""
        self._open.clear()
        self.room = SubscriptionRoom()
        self._listening = None

    async def stop(self) -> None:
        """Part from other processes."""
        self._loop = None
        listening, self._listening = self._listening, None
        if listening is not None:
            (await listening)()


async def _listen(bus: Bus, hear: Hear) -> Callable[[], None]:
    return await bus.listen(hear)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
