"""The sessions of a server, and the methods that only their clients may call.

A session lives in one process, or in a store that several share. It ends when its client ends it, when it was
unused for too long, or with the server. It belongs to the principal that opened it; other principals cannot
find it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from ekiden.errors import InternalError, StatusError, StoreUnavailable
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.legacy.keeper import Answering, SessionLimits
from ekiden.server.legacy.methods import session_answers
from ekiden.server.legacy.room import SessionRoom
from ekiden.server.legacy.session import FIRST_LEVEL, Session
from ekiden.server.registration.registry import Registry
from ekiden.sessions.logs import StreamLogs
from ekiden.sessions.messages import Cancelled, Changed, Ended, News
from ekiden.sessions.record import SessionRecord
from ekiden.sessions.shared import SharedSessions, key_of
from ekiden.signals import SessionsFull
from ekiden.transports.server.port import Stream
from ekiden.transports.server.shares import client_of
from ekiden.wire import tasks, versions
from ekiden.wire.draft import Draft
from ekiden.wire.handshake import Hello, negotiate, read_hello, request_meta
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import JsonObject, decode, encode
from ekiden.wire.jsonrpc import Message, RequestId, error_response, result_response
from ekiden.wire.legacy import Legacy
from ekiden.wire.meta import RequestMeta
from ekiden.wire.modern import Request

__all__ = ["Session", "SessionLimits", "Sessions"]

_log = logging.getLogger(__name__)

_MODERN_ONLY: Final = frozenset({"server/discover", "subscriptions/listen"})
_FRESH_SECONDS: Final = 5.0
"""A session that was seen in the store so short a time ago is not looked up again: changes are told."""
_SHORTEST_SWEEP: Final = 1.0
"""How often sessions are looked at, at most."""
_AGAIN_SECONDS: Final = 1.0
"""How long to wait for a store that is away."""
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
        shared: SharedSessions | None = None,
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
            dialect.most_bytes = registry.dialect.most_bytes
        self._open: dict[str, Session] = {}
        self._room = SessionRoom(limits)
        self._shared = shared
        self.logs = None if shared is None else StreamLogs(shared)
        """The events of streams that several processes share."""
        self._by_key: dict[str, Session] = {}
        """The sessions by what other processes call them."""
        if shared is not None:
            shared.hearing.append(self)
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def new_id(self) -> str:
        """An id that nobody can guess."""
        return ("" if self._shared is not None else self.prefix) + secrets.token_urlsafe(24)

    def offers(self, method: str, *, kept: bool) -> bool:
        """Whether a method is answered in a session. `kept` is False for a session of one request."""
        if method in session_answers:
            is_watching = method.startswith("resources/")
            return not is_watching or (kept and "resources/read" in self.registry.methods)
        return method in self.registry.methods_of_sessions and method not in _MODERN_ONLY

    def offers_tasks(self, method: str, version: str) -> bool:
        """Whether a `tasks/` method is answered in a session of that version."""
        if version not in versions.WITH_TASKS or not self.registry.has_tasks_of_2025:
            return False
        if method == tasks.LIST_METHOD:
            return self._principal is not None  # Without principals it would list everybody's tasks.
        return method in tasks.LEGACY_METHODS or (method == tasks.DRAFT_METHOD and version == versions.DRAFT)

    async def open(self, message: Message, incoming: Incoming | None) -> tuple[Session, bytes]:
        """Open a session for an `initialize` request; returns it and the response."""
        hello = read_hello(message.params)
        dialect = self._dialects[negotiate(hello.version, self.spoken)]
        assert message.id is not None
        keep, principal = not self.stateless or incoming is None, self._principal_of(incoming)
        session_id = self.new_id() if keep else ""
        if keep and incoming is not None:
            client = principal or client_of(incoming)
            session = await self._add(session_id, principal, client, hello, dialect)
        else:
            session = Session(self, dialect, hello, session_id=session_id, principal=principal, kept=keep)
        response = dialect.welcome(
            message.id,
            self._capabilities(keep, dialect.version),
            self.registry.server_info,
            self.registry.instructions,
        )
        return session, response

    async def welcome(self, message: Message, incoming: Incoming | None) -> tuple[Session | None, bytes]:
        """`open`, if middleware lets it pass. If not there is no session, and the response is an error."""
        if not self.endpoint.is_watched and not self.endpoint.outlet.used:
            return await self.open(message, incoming)
        assert message.id is not None
        wished: object = message.params.get("protocolVersion")
        version = wished if isinstance(wished, str) and wished in self.spoken else versions.LEGACY[0]
        meta = request_meta(message.params, version, {}, {}, None)
        request = _opening_request(message.id, message.params, meta, incoming)
        opening = _Opening(self, message.id, incoming)
        outcome = await self.endpoint.admit_opening(request, opening.answer)
        if incoming is not None and isinstance(outcome, Failed) and isinstance(outcome.error, StatusError):
            raise outcome.error  # Over HTTP it has a status and headers of its own.
        session, response = await opening.conclude(outcome)
        if session is not None:
            request.session = session.id or None
        if self.endpoint.outlet.used:
            response = await self.endpoint.outlet.response(response, request)
        return session, response

    async def _add(
        self, session_id: str, principal: str, client: str, hello: Hello, dialect: Legacy
    ) -> Session:
        """A new session, in the store if there is one for sessions."""
        if self._shared is None:
            for unneeded in self._room.to_end(self._open, principal, client):
                unneeded.end()
            return self._enter(
                Session(self, dialect, hello, session_id=session_id, principal=principal, client=client)
            )
        record = SessionRecord(dialect.version, hello.capabilities, hello.client_info, FIRST_LEVEL)
        await self._store(self._shared, session_id, principal, client, record)
        return self._adopt(self._shared, session_id, principal, client, record)

    async def _store(
        self, shared: SharedSessions, session_id: str, principal: str, client: str, record: SessionRecord
    ) -> None:
        """Keep a new session in the store, which does not know clients without a principal apart."""
        more = self._room.more_for(client)
        alone = not principal and self._room.is_greedy(client)
        try:
            await shared.add(session_id, principal, record, more=more, ends_others=not alone)
        except SessionsFull:
            mine = self._room.unused_of(client, self._open) if alone else None
            if mine is None:
                raise
            await mine.delete()
            await shared.add(session_id, principal, record, more=more, ends_others=False)

    def _adopt(
        self, shared: SharedSessions, session_id: str, principal: str, client: str, record: SessionRecord
    ) -> Session:
        """A session that lies in the store, as this process has it."""
        full = len(self._open) >= self.limits.sessions
        if full and (unused := self._room.unused(self._open.values())) is not None:
            unused.end()
        session = Session(
            self,
            self._dialects[record.version],
            Hello(record.version, record.capabilities, record.client_info),
            session_id=session_id,
            principal=principal,
            client=client,
            shared=shared,
        )
        session.take_over(record)
        session.verified_at = session.touched_at = asyncio.get_running_loop().time()
        self._by_key[key_of(session_id)] = session
        return self._enter(session)

    def _enter(self, session: Session) -> Session:
        self._open[session.id] = session
        self._room.enter(session)
        session.used_at = asyncio.get_running_loop().time()
        self._watch_idle()
        return session

    def _capabilities(self, keep: bool, version: str) -> JsonObject:
        """The capabilities to declare. Without a session the client cannot be notified of changes."""
        declared = self.registry.capabilities(in_sessions=True)
        if not keep:
            declared = {name: declared[name] if name == "extensions" else JsonObject() for name in declared}
        if self.offers_tasks("tasks/get", version):
            declared["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
            if self.offers_tasks(tasks.LIST_METHOD, version):
                declared["tasks"]["list"] = {}
        return declared

    def passing(self, version: str) -> Session:
        """A session for one request of a client of which only the version is known."""
        declared = _EVERYTHING if version == versions.DRAFT else {}
        return Session(self, self._dialects[version], Hello(version, declared, {}), kept=False)

    async def find(self, session_id: str, incoming: Incoming) -> Session | None:
        """The session with that id, if it belongs to the principal of the request."""
        session = self._open.get(session_id)
        if self._shared is not None:
            session = await self._current(self._shared, session_id, session, client_of(incoming))
        if session is None or session.principal != self._principal_of(incoming):
            return None
        return session

    async def _current(
        self, shared: SharedSessions, session_id: str, session: Session | None, client: str = ""
    ) -> Session | None:
        """A session as it is in the store. `client` asks for it."""
        now = asyncio.get_running_loop().time()
        if session is None or now - session.verified_at > _FRESH_SECONDS or session.told > session.revision:
            found = await shared.load(session_id)
            session = self._open.get(session_id)
            if found is None or found[1].version not in self._dialects:
                if session is not None:
                    session.end()
                return None
            if session is None:
                session = self._adopt(shared, session_id, found[0], found[0] or client, found[1])
            session.take_over(found[1])
            session.verified_at = now
        self._touch(shared, session, now)
        return session

    def _touch(self, shared: SharedSessions, session: Session, now: float) -> None:
        if now - session.touched_at > min(self.limits.busy_seconds / 2, self.limits.idle_seconds / 10):
            session.touched_at = now
            shared.soon(shared.touch(session.id))

    def heard(self, news: News | None) -> None:
        """Something happened to a session at another process; None if it is not known what."""
        if news is None:
            for known in self._by_key.values():
                known.verified_at = float("-inf")
                if known.in_use and self._shared is not None:
                    self._shared.soon(self._catch_up(self._shared, known))
            return
        session = self._by_key.get(news.session)
        if session is None:
            return
        if isinstance(news, Changed):
            self._changed(session, news)
        elif isinstance(news, Ended):
            session.end()
        elif isinstance(news, Cancelled):
            session.cancel(news.request)

    def _changed(self, session: Session, news: Changed) -> None:
        """A session was changed at another process: the row says how."""
        if news.revision <= max(session.revision, session.told):
            return
        session.told = news.revision
        if news.what == "watch":
            session.watching.watch_also(news.value)  # At once: too much is told rather than too little.
        if session.in_use and self._shared is not None:
            self._shared.soon(self._look_again(self._shared, session))

    async def _look_again(self, shared: SharedSessions, session: Session) -> Session | None:
        """A session as it is in the store now; waits for a store that is away."""
        while self._open.get(session.id) is session:
            session.verified_at = float("-inf")
            try:
                return await self._current(shared, session.id, session, session.client)
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def _catch_up(self, shared: SharedSessions, session: Session) -> None:
        if await self._look_again(shared, session) is not None:
            session.watching.offer_all()

    def _principal_of(self, incoming: Incoming | None) -> str:
        if self._principal is None or incoming is None:
            return ""  # Without HTTP each client has its own channel, and cannot name another's session.
        meta = request_meta({}, versions.LEGACY[0], {}, {}, None)
        return self._principal(_opening_request(0, {}, meta, incoming)) or ""

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._by_key.pop(key_of(session_id), None)
        if (ended := self._open.pop(session_id, None)) is not None:
            self._room.leave(ended)

    def _watch_idle(self) -> None:
        if self._sweep is None:
            seconds = self.limits.idle_seconds / 10
            if self._shared is not None:  # Others must not take one for idle that is in use here.
                seconds = min(seconds, self.limits.busy_seconds / 4)
            seconds = max(_SHORTEST_SWEEP, seconds)
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        limit = asyncio.get_running_loop().time() - self.limits.idle_seconds
        now = asyncio.get_running_loop().time()
        for session in tuple(self._open.values()):
            if session.in_use and self._shared is not None:
                self._touch(self._shared, session, now)
            if not session.in_use and session.used_at <= limit:
                _log.debug("Session %s... is ended: it was unused for too long", session.id[:8])
                session.end()
        if self._open:
            self._watch_idle()

    def close(self) -> None:
        """End all sessions; those in a store go on in other processes."""
        for session in tuple(self._open.values()):
            session.end()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def forget_loop(self) -> None:
        """Begin anew: the event loop is closed in which idle sessions were looked for."""
        self._sweep = None

    async def stop(self) -> None:
        """Write what other processes need, and part from them."""
        if self._shared is not None and self.logs is not None:
            await self.logs.stop()
            await self._shared.stop()


def _opening_request(
    request_id: RequestId, params: JsonObject, meta: RequestMeta, incoming: Incoming | None
) -> Request:
    """The `initialize` request that middleware and the author's `principal` function see."""
    headers, principal = (None, None) if incoming is None else (incoming.headers, incoming.principal)
    request = Request(request_id, "initialize", params, meta, None, headers)
    request.http, request.principal = incoming, principal
    return request


class _Opening:
    """An `initialize` behind the middleware."""

    def __init__(self, sessions: Sessions, request_id: RequestId, incoming: Incoming | None) -> None:
        self._sessions = sessions
        self._id = request_id
        self._incoming = incoming
        self._session: Session | None = None
        self._refused: SessionsFull | StoreUnavailable | None = None

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Open the session; its outcome is the welcome."""
        message = Message(self._id, "initialize", request.params)
        try:
            self._session, response = await self._sessions.open(message, self._incoming)
        except (SessionsFull, StoreUnavailable) as refused:
            self._refused = refused
            return Failed(InternalError(str(refused)))
        return Complete(decode(response)["result"])

    async def conclude(self, outcome: Outcome) -> tuple[Session | None, bytes]:
        """The session and the response, after the middleware; a session that was refused is ended."""
        if self._refused is not None:
            raise self._refused
        if isinstance(outcome, Complete) and self._session is not None:
            return self._session, result_response(self._id, encode(outcome.as_dict()))
        if self._session is not None:
            await self._session.delete()
        refusal = outcome.error if isinstance(outcome, Failed) else InternalError("Internal error")
        return None, error_response(self._id, refusal)
