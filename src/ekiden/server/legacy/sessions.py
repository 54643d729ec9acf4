"""The sessions of a server, and the methods that only their clients may call.

A session lives in one process. It ends when its client ends it, when it was unused for too long, or with the
server. It belongs to the principal that opened it; other principals cannot find it.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from ekiden.errors import SessionsFull
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.legacy.keeper import Answering, SessionLimits
from ekiden.server.legacy.session import Session, SessionStream
from ekiden.server.registration.registry import Registry
from ekiden.transports.server.port import Stream
from ekiden.wire import tasks, versions
from ekiden.wire.draft import Draft
from ekiden.wire.handshake import Hello, negotiate, read_hello, request_meta
from ekiden.wire.headers import Headers
from ekiden.wire.json import JsonObject
from ekiden.wire.jsonrpc import Message
from ekiden.wire.legacy import Legacy
from ekiden.wire.modern import Request

__all__ = ["Session", "SessionLimits", "Sessions", "session_answers"]

_log = logging.getLogger(__name__)

_MODERN_ONLY: Final = frozenset({"server/discover", "subscriptions/listen", *tasks.METHODS})
_EVERYTHING: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
"""The capabilities of a client of the draft that has no session: it has no place to declare them."""


class Sessions:
    """Implements `ekiden.transports.server.legacy.port.SessionKeeper`."""

    def __init__(
        self,
        endpoint: Answering,
        registry: Registry,
        principal: Callable[[Request], str | None] | None,
        limits: SessionLimits,
        *,
        stateless: bool,
        draft: bool,
    ) -> None:
        self.endpoint = endpoint
        self.registry = registry
        self.limits = limits
        self.stateless = stateless
        self.spoken = (*versions.LEGACY, versions.DRAFT) if draft else versions.LEGACY
        self.prefix = ""
        self._principal = principal
        self._dialects: dict[str, Legacy] = {version: Legacy(version) for version in versions.LEGACY}
        if draft:
            self._dialects[versions.DRAFT] = Draft()
        for dialect in self._dialects.values():
            dialect.task_support = registry.task_support
        self._open: dict[str, Session] = {}
        self._per_principal: Counter[str] = Counter()
        """How many open sessions each principal has."""
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def new_id(self) -> str:
        """An id that nobody can guess."""
        return self.prefix + secrets.token_urlsafe(24)

    def offers(self, method: str, *, kept: bool) -> bool:
        """Whether a method is answered in a session. `kept` is False for a session of one request."""
        if method in session_answers:
            is_watching = method.startswith("resources/")
            return not is_watching or (kept and "resources/read" in self.registry.methods)
        return method in self.registry.methods and method not in _MODERN_ONLY

    def offers_tasks(self, method: str, version: str) -> bool:
        """Whether a `tasks/` method is answered in a session of that version."""
        if version not in versions.WITH_TASKS or not self.registry.has_tasks:
            return False
        if method == tasks.LIST_METHOD:
            return self._principal is not None  # Without principals it would list everybody's tasks.
        return method in tasks.LEGACY_METHODS or (method == tasks.DRAFT_METHOD and version == versions.DRAFT)

    def open(self, message: Message, headers: Headers | None) -> tuple[Session, bytes]:
        """Open a session for an `initialize` request; returns it and the response."""
        hello = read_hello(message.params)
        dialect = self._dialects[negotiate(hello.version, self.spoken)]
        assert message.id is not None
        keep, principal = not self.stateless or headers is None, self._principal_of(headers)
        if keep and headers is not None:
            self._make_room(principal)
        session_id = self.new_id() if keep else ""
        session = Session(self, dialect, hello, session_id=session_id, principal=principal, kept=keep)
        if keep and headers is not None:
            self._open[session.id] = session
            self._per_principal[principal] += 1
            session.used_at = asyncio.get_running_loop().time()
            self._watch_idle()
        response = dialect.welcome(
            message.id,
            self._capabilities(keep, dialect.version),
            self.registry.server_info,
            self.registry.instructions,
        )
        return session, response

    def _capabilities(self, keep: bool, version: str) -> JsonObject:
        """The capabilities to declare. Without a session the client cannot be notified of changes."""
        declared = self.registry.capabilities()
        if not keep:
            declared = {name: JsonObject() for name in declared}
        if self.offers_tasks("tasks/get", version):
            declared["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
            if self.offers_tasks(tasks.LIST_METHOD, version):
                declared["tasks"]["list"] = {}
        return declared

    def passing(self, version: str) -> Session:
        """A session for one request of a client of which only the version is known."""
        declared = _EVERYTHING if version == versions.DRAFT else {}
        return Session(self, self._dialects[version], Hello(version, declared, {}), kept=False)

    def find(self, session_id: str, headers: Headers) -> Session | None:
        """The session with that id, if it belongs to the principal of these headers."""
        session = self._open.get(session_id)
        if session is None or session.principal != self._principal_of(headers):
            return None
        return session

    def _principal_of(self, headers: Headers | None) -> str:
        if self._principal is None or headers is None:
            return ""  # Without HTTP each client has its own channel, and cannot name another's session.
        meta = request_meta({}, versions.LEGACY[0], {}, {}, None)
        return self._principal(Request(0, "initialize", {}, meta, None, headers)) or ""

    def forget(self, session_id: str, principal: str) -> None:
        """Forget a session that has ended."""
        if self._open.pop(session_id, None) is not None:
            self._per_principal[principal] -= 1
            if not self._per_principal[principal]:
                del self._per_principal[principal]

    def _make_room(self, principal: str) -> None:
        if principal and self._per_principal[principal] >= self.limits.per_principal:
            self._end_oldest([session for session in self._open.values() if session.principal == principal])
        if len(self._open) >= self.limits.sessions:
            self._end_oldest(self._open.values())

    def _end_oldest(self, sessions: Iterable[Session]) -> None:
        now = asyncio.get_running_loop().time()
        idle = [session for session in sessions if not session.in_use]
        oldest = min(idle, key=lambda session: session.used_at, default=None)
        if oldest is None or now - oldest.used_at < self.limits.busy_seconds:
            raise SessionsFull("Too many sessions are open; try again later")
        oldest.end()

    def _watch_idle(self) -> None:
        if self._sweep is None:
            seconds = max(1.0, self.limits.idle_seconds / 10)
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        limit = asyncio.get_running_loop().time() - self.limits.idle_seconds
        for session in tuple(self._open.values()):
            if not session.in_use and session.used_at <= limit:
                _log.debug("Session %s... is ended: it was unused for too long", session.id[:8])
                session.end()
        if self._open:
            self._watch_idle()

    def close(self) -> None:
        """End all sessions."""
        for session in tuple(self._open.values()):
            session.end()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None


async def _ping(request: Request, stream: Stream) -> Outcome:
    return Complete({})


async def _set_level(request: Request, stream: Stream) -> Outcome:
    _session(stream).set_level(request.params.get("level"))
    return Complete({})


async def _subscribe(request: Request, stream: Stream) -> Outcome:
    _session(stream).watch(request.params.get("uri"))
    return Complete({})


async def _unsubscribe(request: Request, stream: Stream) -> Outcome:
    _session(stream).unwatch(request.params.get("uri"))
    return Complete({})


def _session(stream: Stream) -> Session:
    assert isinstance(stream, SessionStream)
    return stream.session


session_answers: Final[dict[str, Callable[[Request, Stream], Coroutine[Any, Any, Outcome]]]] = {
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
"""The methods that only clients with a session may call. All other methods are the same for all clients."""
