"""The extensions that a server offers (SEP-2133): what each adds, and that no two add the same.

Tasks are registered here, and whatever authors bring: capabilities, methods, result types and notifications
come through this one door. A client that did not declare what a request needs is refused here, too. Nothing
in here runs for a request of another method.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

import msgspec

from ekiden.errors import MissingCapability, RegistrationError
from ekiden.rounds.asks import declares
from ekiden.rounds.outcome import Outcome
from ekiden.server.subscriptions import Filter, Subscription
from ekiden.transports.server.port import Stream
from ekiden.wire.extensions.names import (
    check_identifier,
    check_method,
    check_request,
    check_result_type,
    declaring,
)
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Request

__all__ = ["Answer", "Extensions", "Feed", "Follow", "Hear", "OfferedExtension"]

Answer: TypeAlias = Callable[[Request, Stream], Awaitable[Outcome]]
"""Answers the requests of one method."""
Hear: TypeAlias = Callable[[Request], Awaitable[None]]
"""Takes the notifications of one method."""
Follow: TypeAlias = Callable[[Subscription, Stream, JsonObject], Awaitable[None]]
"""Acknowledges a subscription with the last argument, and sends its notifications until it ends."""


class Feed(Protocol):
    """What an extension adds to `subscriptions/listen`."""

    def is_wanted(self, wanted: Filter) -> bool:
        """Whether a subscription asks for something of this extension."""
        ...

    async def grant(self, request: Request, wanted: Filter, granted: Filter) -> tuple[Filter, Follow]:
        """What is granted of the core, and with it of this extension; and what sends all of it."""
        ...


def _always() -> bool:
    return True


class OfferedExtension(msgspec.Struct, kw_only=True, eq=False):
    """One extension of one server."""

    identifier: str
    settings: JsonObject = msgspec.field(default_factory=JsonObject)
    """What the server declares under the identifier."""
    methods: Mapping[str, Answer] = msgspec.field(default_factory=dict[str, Answer])
    methods_of_2025: Mapping[str, Answer] = msgspec.field(default_factory=dict[str, Answer])
    """Methods that only clients with a handshake have. Their versions say which; see `Sessions`."""
    hears: Mapping[str, Hear] = msgspec.field(default_factory=dict[str, Hear])
    """The notifications that clients send."""
    sends: frozenset[str] = frozenset()
    """The notifications that the server sends."""
    result_types: frozenset[str] = frozenset()
    feed: Feed | None = None
    in_sessions: bool = True
    """Whether clients with a handshake are offered it, too."""
    is_offered: Callable[[], bool] = _always

    def __post_init__(self) -> None:
        check_identifier(self.identifier)
        for method in self.methods:
            check_request(self.identifier, method)
        for method in (*self.hears, *self.sends):
            check_method(self.identifier, method)
        for result_type in self.result_types:
            check_result_type(self.identifier, result_type)

    def names(self) -> list[str]:
        """What nothing else in the same server may have, in words."""
        names = [f"method {name!r}" for name in (*self.methods, *self.hears, *self.sends)]
        return names + [f"result type {name!r}" for name in self.result_types]

    def declared_by(self, request: Request) -> bool:
        """Whether the client declares the extension."""
        return declares(request.meta.capabilities, declaring(self.identifier))

    def require(self, request: Request) -> None:
        """Refuse a request of a client that does not declare the extension."""
        if not self.declared_by(request):
            raise MissingCapability(
                declaring(self.identifier), f"The client did not declare the extension {self.identifier}"
            )


class Extensions:
    """The extensions of one server, by identifier."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._offered: dict[str, OfferedExtension] = {}
        self._owners: dict[str, str] = {}
        """Which extension has a method, a notification or a result type."""
        self._hears: dict[str, Hear] = {}

    def __iter__(self) -> Iterator[OfferedExtension]:
        return iter(self._offered.values())

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._offered

    def add(self, extension: OfferedExtension) -> None:
        """Offer an extension. If a name of it is taken, nothing of it is."""
        self.check(extension)
        own = extension.identifier
        self._owners.update(dict.fromkeys(extension.names(), own))
        self._offered[own] = extension
        self._hears.update(extension.hears)
        self._on_change()

    def check(self, extension: OfferedExtension) -> None:
        """Refuse an extension of which a name is taken."""
        own = extension.identifier
        if own in self._offered:
            raise RegistrationError(f"extension {own!r} is registered already")
        for name in extension.names():
            if name in self._owners:
                raise RegistrationError(f"extension {own!r}: {self._owners[name]!r} has the {name} already")

    def declare(self, extension: OfferedExtension) -> None:
        """Declare an extension that adds nothing but its name: as long as any server here offers it."""
        known = self._offered.get(extension.identifier)
        if known is None:
            self.add(extension)
        else:
            before, more = known.is_offered, extension.is_offered
            known.is_offered = lambda: before() or more()

    def answers(self) -> dict[str, Answer]:
        """What answers the methods, those of earlier versions included."""
        answers: dict[str, Answer] = {}
        for extension in self:
            answers |= {**extension.methods_of_2025, **extension.methods}
        return answers

    def methods(self) -> list[str]:
        """The methods that are offered as of now."""
        return [method for extension in self if extension.is_offered() for method in extension.methods]

    def modern_only(self) -> frozenset[str]:
        """The methods that clients with a handshake may not call."""
        return frozenset(
            method for extension in self if not extension.in_sessions for method in extension.methods
        )

    def capabilities(self, *, in_sessions: bool = False) -> JsonObject:
        """What is declared as of now: settings by identifier."""
        return {
            extension.identifier: extension.settings
            for extension in self
            if extension.is_offered() and (extension.in_sessions or not in_sessions)
        }

    def feed_for(self, wanted: Filter) -> Feed | None:
        """What answers a subscription that asks for something of an extension; None for the core alone."""
        feeds = (extension.feed for extension in self)
        return next((feed for feed in feeds if feed is not None and feed.is_wanted(wanted)), None)

    @property
    def listen(self) -> bool:
        """Whether notifications of clients are listened to."""
        return bool(self._hears)

    def hearer(self, method: str) -> Hear | None:
        """What takes the notifications of a method; None if nothing does."""
        return self._hears.get(method)
