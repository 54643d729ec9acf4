"""The changes that one client of 2025 is told of: lists, resources that it subscribed to, and its tasks."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import msgspec

from ekiden.errors import InternalError, InvalidParams
from ekiden.server.legacy.keeper import News
from ekiden.server.registration.registry import Registry
from ekiden.server.subscription_room import size_of
from ekiden.server.subscriptions import (
    LONGEST_URI,
    RESOURCE_UPDATED,
    Change,
    Filter,
    Subscription,
    is_too_long,
)
from ekiden.sessions.record import MOST_WATCHED, MOST_WATCHED_BYTES
from ekiden.signals import SessionsFull
from ekiden.wire.json import JsonObject
from ekiden.wire.principal import Principal, grants, require
from ekiden.wire.tasks import LEGACY_NOTIFICATION, NOTIFICATION

__all__ = ["Watching"]

_LISTS: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")


class Watching:
    """What a client wants to be told of, and what waits to be told."""

    def __init__(self, registry: Registry, client: str = "") -> None:
        self._registry = registry
        self._client = client
        self._watched: dict[str, None] = {}
        self._tasks: dict[str, tuple[News, Callable[[], None]]] = {}
        self._subscription: Subscription | None = None
        self._watches_since: int | None = None
        """The moment of its first subscription."""
        self.reader: Principal | None = None
        """Who reads the stream for changes."""

    def watch(self, uri: object, principal: Principal | None) -> str:
        """Send a notification when a resource changes that the caller may read. Returns its URI."""
        if type(uri) is not str:
            raise InvalidParams("Invalid params: `uri` is required and must be a string")
        if is_too_long(uri):
            raise InvalidParams(f"Invalid params: `uri` has more than {LONGEST_URI} bytes")
        if len(self._watched) >= MOST_WATCHED:
            raise InvalidParams(f"Invalid params: a session watches at most {MOST_WATCHED} resources")
        if uri not in self._watched and sum(map(len, self._watched)) + len(uri) > MOST_WATCHED_BYTES:
            raise InvalidParams(
                f"Invalid params: a session watches URIs of {MOST_WATCHED_BYTES} bytes at most"
            )
        require(principal, self._registry.scopes_of(uri))
        if uri not in self._watched:
            self._registry.hub.room.hold(self._client, size_of(uri))
        if not self._watched:
            self._watches_since = self._registry.hub.moment
        self._watched[uri] = None
        self._update_filter()
        return uri

    def watch_also(self, uri: str) -> None:
        """The same for a resource that another process has accepted."""
        self.watch_only([*self._watched, uri])

    def unwatch(self, uri: object) -> str:
        """Send no more notifications about a resource. Returns its URI."""
        if type(uri) is not str:
            raise InvalidParams("Invalid params: `uri` is required and must be a string")
        if uri in self._watched:
            del self._watched[uri]
            self._registry.hub.room.release(self._client, size_of(uri))
        self._update_filter()
        return uri

    def watch_only(self, uris: Iterable[str], *, keep: bool = False) -> None:
        """Send notifications about these resources and no others; with `keep`, also about those of before.

        Those that are new here may have changed since another process has accepted them: the client is told.
        """
        before = self._watched
        self._watched = {**(before if keep else {}), **dict.fromkeys(uris)}
        self._count_again(before)
        self._update_filter()
        self._offer_resources(uri for uri in self._watched if uri not in before)

    def _count_again(self, before: Iterable[str]) -> None:
        """Count what is watched in place of what was before. It is not refused: another process took it."""
        room = self._registry.hub.room
        room.release(self._client, sum(map(size_of, before)))
        room.count(self._client, sum(map(size_of, self._watched)))

    def _offer_resources(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self.offer(Change(RESOURCE_UPDATED, uri))

    def follow(self, task_id: str, news: News, stop: Callable[[], None]) -> None:
        """Send the changes of a task until `unfollow`, which calls `stop`.

        If there are too many, the oldest is unfollowed.
        """
        if len(self._tasks) >= MOST_WATCHED:
            self.unfollow(next(iter(self._tasks)))
        self._tasks[task_id] = (news, stop)
        self._update_filter()

    def unfollow(self, task_id: str) -> None:
        """Send the changes of a task no longer."""
        _, stop = self._tasks.pop(task_id, (None, None))
        if stop is not None:
            stop()
            self._update_filter()

    def offer(self, change: Change) -> None:
        """Queue a change, from any thread. Dropped if the client has never opened a stream for changes."""
        if self._subscription is not None:
            self._subscription.offer(change)

    def _update_filter(self) -> None:
        if self._subscription is not None:
            self._subscription.want(self._filter())
            self._registry.hub.watched_changed()

    def _filter(self) -> Filter:
        granted = self._registry.grant(Filter(_LISTS, tuple(self._watched)))
        return msgspec.structs.replace(granted, tasks=tuple(self._tasks))

    def offer_all(self) -> None:
        """Queue everything that is wanted, if the client has opened a stream for changes here."""
        if self._subscription is not None:
            self._subscription.offer_all()

    async def notifications(
        self, *, has_listened: bool, reader: Principal | None = None
    ) -> AsyncIterator[tuple[str, JsonObject]]:
        """What has changed, as it does: method and parameters of a notification.

        `has_listened`: the client may have missed changes before. `reader` is told what it may know.
        """
        self.reader = reader
        if self._subscription is None:
            try:
                self._subscription = self._registry.hub.open(self._filter(), self._client, held=True)
            except InternalError as error:
                raise SessionsFull(error.message) from None
            if has_listened:
                self._subscription.offer_all()  # What changed while no process listened is not known.
            else:  # It may have listed and subscribed before there was a stream to tell of changes.
                if self._watches_since is None or self._watches_since != self._registry.hub.moment:
                    self._offer_resources(self._watched)
                for change in tuple(self._registry.hub.changed_lists):
                    self.offer(change)
            for task_id in self._tasks:  # It may have changed before there was a stream to say so.
                self._subscription.offer(Change(NOTIFICATION, task_id))
        async for change in self._subscription:
            if (told := await self._told(change)) is not None:
                yield told

    async def _told(self, change: Change) -> tuple[str, JsonObject] | None:
        """A change as a notification; None if it is not one for who reads."""
        if change.method != NOTIFICATION:
            is_open = change.uri is None or grants(self.reader, self._registry.scopes_of(change.uri))
            return (change.method, change.params()) if is_open else None
        params = await self._news(change.uri or "")
        return None if params is None else (LEGACY_NOTIFICATION, params)

    async def _news(self, task_id: str) -> JsonObject | None:
        news, _ = self._tasks.get(task_id, (None, None))
        return None if news is None else await news()

    def forget(self) -> None:
        """Collect changes no longer; the next stream begins anew."""
        if self._subscription is not None:
            self._registry.hub.close(self._subscription)
            self._subscription = None

    def end(self) -> None:
        """The session has ended."""
        for task_id in tuple(self._tasks):
            self.unfollow(task_id)
        watched, self._watched = self._watched, {}
        self._count_again(watched)
        if self._subscription is not None:
            self._registry.hub.close(self._subscription)
            self._subscription.end()
