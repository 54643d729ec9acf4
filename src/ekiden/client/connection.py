"""A connection to one server: the link, the session in the server's era, and the cache of results.

Knows: when a request is sent again (the server has changed its era; the link dropped during a request that
changes nothing), and when it is not sent at all (its result is in the cache). Refuses to know: what requests
mean.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from ekiden.client.answering import Answerer
from ekiden.client.cache import ResultCache
from ekiden.client.extensions.enabled import EnabledExtensions
from ekiden.client.extensions.extension import SendRequest
from ekiden.client.sessions import eras
from ekiden.client.sessions.legacy import LegacySession
from ekiden.client.sessions.modern import ModernSession
from ekiden.client.sessions.session import ClientRequest, ClientSession
from ekiden.client.target import LinkOptions, Target, connect, connect_sse, is_command, is_url, origin_of
from ekiden.errors import HttpRefused, InvalidResult, TransportError, UsageError
from ekiden.signals import EraChanged
from ekiden.telemetry.calls import traced_request
from ekiden.telemetry.context import is_tracing
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.link import Link
from ekiden.wire.json import JsonObject
from ekiden.wire.tasks import RESULT_TYPE

__all__ = ["ServerConnection"]

_log = logging.getLogger(__name__)

_SAFE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/directory/read",
        "skills/get",
        "skills/list",
        "tasks/get",
    }
)
"""Requests that change nothing at the server: they are sent again when the connection drops."""

_NOT_ALLOWED: Final = frozenset({401, 403})
"""Refusals that say nothing about the transport."""

_OF_ROUNDS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "tasks/result"})
"""Requests that may be answered with `input_required`; the last exists only in the draft."""


class ServerConnection:
    """One server, from the first message to the last."""

    def __init__(
        self,
        target: Target,
        answerer: Answerer,
        *,
        info: Mapping[str, Any],
        mode: str,
        draft: bool,
        log_level: str | None,
        on_log: Callable[[JsonObject], None] | None,
        options: LinkOptions,
        extensions: EnabledExtensions,
    ) -> None:
        self._extensions = extensions
        self.request: SendRequest = extensions.around(self._request)
        """Sends a request; its result is from the cache, or from the server."""
        self._target = target
        self._answerer = answerer
        self._info = info
        self._mode = mode
        self._draft = draft
        self._log_level = log_level
        self._on_log = on_log
        self._options = options
        self._link: Link | None = None
        self._session: ClientSession | None = None
        self._finding = asyncio.Lock()
        self._ids = itertools.count(1)
        """Ids of requests. Both eras share them: a late answer must not fit another request."""
        self._cache = ResultCache()
        self.watchers: set[Callable[[JsonObject], None]] = (
            {extensions.notified} if extensions.listen else set()
        )
        """Called with every notification."""

    async def open(self) -> None:
        """Connect, and find out which era the server speaks."""
        self._link = await connect(self._target, self._options)
        try:
            self._session = await self._first_session(self._link)
        except BaseException as error:
            await self.close(hurry=isinstance(error, asyncio.CancelledError))
            raise

    async def _first_session(self, link: Link) -> ClientSession:
        """Find the era; a server that refuses POSTs may be one that has only the transport of 2024-11-05."""
        try:
            return await self._find_session(link)
        except HttpRefused as refused:
            may_be_older = 400 <= refused.status < 500 and refused.status not in _NOT_ALLOWED
            if self._mode == "modern" or not may_be_older or not is_url(self._target):
                raise
            older = await connect_sse(self._target, self._options)
            if older is None:
                raise
        self._link = older
        await link.close()
        session = self._legacy_session(older)
        try:
            await session.open()
        except EraChanged as changed:
            raise changed.refusal from None
        return session

    def _legacy_session(self, link: Link) -> LegacySession:
        return LegacySession(
            link,
            self._answerer,
            self._info,
            ids=self._ids,
            log_level=self._log_level,
            on_notification=self.notified,
            draft=self._draft,
            extensions=self._extensions.capabilities(handshake=True),
        )

    async def _find_session(self, link: Link) -> ClientSession:
        return await eras.find_session(
            lambda: ModernSession(
                link,
                {**self._answerer.capabilities, "extensions": self._extensions.capabilities()},
                self._info,
                ids=self._ids,
                log_level=self._log_level,
            ),
            lambda: self._legacy_session(link),
            origin=origin_of(self._target),
            mode=self._mode,
            patient=not is_command(self._target),
            draft=self._draft,
        )

    async def close(self, *, hurry: bool = False) -> None:
        """End the session, and disconnect."""
        session, link = self._session, self._link
        self._session = self._link = None
        try:
            if session is not None:
                await session.close()
        finally:
            if link is not None:
                await link.close(hurry=hurry)

    @property
    def session(self) -> ClientSession:
        """The open session."""
        if self._session is None:
            raise UsageError("the client is not connected: use it in `async with Client(...) as client`")
        return self._session

    @property
    def shares_channel(self) -> bool:
        """Whether all messages of the server come on one channel, where some do not name their request."""
        return isinstance(self._link, ChannelLink)

    @property
    def is_lost(self) -> bool:
        """Whether it is known that no request will be answered any more. Over HTTP that never is."""
        return isinstance(self._link, ChannelLink) and self._link.is_lost

    async def _request(self, request: ClientRequest) -> JsonObject:
        """The result of a request: from the cache, or from the server."""
        retried = "inputResponses" in request.params or "requestState" in request.params
        if not retried and (kept := self._cache.get(request.method, request.params)) is not None:
            return kept
        result = await self.exchange(request)
        if not retried and result.get("resultType", "complete") == "complete":
            self._cache.put(request.method, request.params, result)
        return result

    async def exchange(self, request: ClientRequest) -> JsonObject:
        """The result of a request from the server, which is not kept."""
        if request.hooks.notification is None:
            request.hooks.notification = self.notified
        result = await (self._send_traced(request) if is_tracing() else self._send(request))
        kind = result.get("resultType", "complete")
        knows = kind == "complete" or self._extensions.know(kind)
        if knows and (kind != RESULT_TYPE or request.method == "tools/call"):
            return result
        if kind != "input_required":
            raise InvalidResult(f"The server sent a result of an unknown type: {str(kind)[:100]!r}")
        if request.method not in _OF_ROUNDS:
            raise InvalidResult(
                f"The server must not answer {request.method} with an interim result, but did"
            )
        return result

    async def _send_traced(self, request: ClientRequest) -> JsonObject:
        """Send a request in a span of its own, and note the `traceparent` that it has taken along."""

        async def send(meta: JsonObject) -> JsonObject:
            sent = meta.get("traceparent")
            request.trace = sent if isinstance(sent, str) else None
            return await self._send(replace(request, params={**request.params, "_meta": meta}))

        given: JsonObject = request.params.get("_meta") or {}
        return await traced_request(request.method, request.name, self.session.version, given, send)

    async def _send(self, request: ClientRequest) -> JsonObject:
        session = self.session
        try:
            return await session.request(request)
        except EraChanged as changed:
            if not await self._has_changed_era(session) and not changed.was_lost:
                raise changed.refusal from None
        except TransportError as error:
            if request.method not in _SAFE or isinstance(error, HttpRefused):
                raise
            _log.debug("The connection dropped; %s is sent again", request.method)
        try:
            return await self.session.request(request)
        except EraChanged as changed:
            raise changed.refusal from None

    async def _has_changed_era(self, session: ClientSession) -> bool:
        """Find the era again, once for all waiting callers; True if it is not that of `session`."""
        async with self._finding:
            if self._session is session and self._link is not None:
                eras.forget(origin_of(self._target))
                await session.abandon()
                self._session = await self._find_session(self._link)
            return self.session.era != session.era

    def forget(self, uri: str) -> None:
        """Read a resource from the server the next time, and not from the cache."""
        self._cache.notified({"method": "notifications/resources/updated", "params": {"uri": uri}})

    def notified(self, message: JsonObject) -> None:
        """Take a notification, from whichever stream."""
        self._cache.notified(message)
        if message.get("method") == "notifications/message" and self._on_log is not None:
            self._on_log(message.get("params") or {})
        for watch in tuple(self.watchers):
            watch(message)
