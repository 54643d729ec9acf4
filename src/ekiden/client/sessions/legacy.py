"""Sessions with servers of 2025: a handshake first, and the server sends its questions as requests.

The same callbacks answer them. An interim result, which did not exist then, is refused, except in the draft.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ekiden.client.answering import MOST_ASKS, Answerer, check_count
from ekiden.client.checking import LeftOut
from ekiden.client.sessions.session import ClientRequest, Era, Hooks, read_error
from ekiden.errors import (
    CannotAnswer,
    EkidenError,
    HttpRefused,
    InternalError,
    InvalidRequest,
    InvalidResult,
    MethodNotFound,
    ProtocolError,
    ServerError,
    TransportError,
    WrongAnswer,
)
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE
from ekiden.signals import EraChanged
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.complaints import Complaints
from ekiden.transports.client.link import Link, Outgoing
from ekiden.transports.client.streamable import StreamableLink
from ekiden.wire import jsonrpc, versions
from ekiden.wire.draft import is_incomplete, is_incomplete_unsaid
from ekiden.wire.json import JsonObject, encode, is_array, is_object
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.meta import PROGRESS_TOKEN
from ekiden.wire.printable import printable
from ekiden.wire.tasks import DRAFT_METHOD, LEGACY_METHODS, LIST_METHOD, RESULT_TYPE

__all__ = ["LegacySession"]

_log = logging.getLogger(__name__)

_URL_REQUIRED: Final = -32042
_URL_ROUNDS: Final = 10
_LOST: Final = frozenset({-32000, -32001, -32600})
"""Codes for a request whose session is gone. Any other refusal may come from a modern server."""
_NOT_FOUND: Final = 404
"""The HTTP status for a session that the server does not have."""
_UNAVAILABLE: Final = 503
_ANSWER_SECONDS: Final = 60.0
"""How long an answer is sent again to a server that cannot be reached."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_SESSION_LOST: Final = (
    "The server asked something and then did not know the session of the answer (HTTP status 404):"
    " it may run in several processes that do not share their sessions"
)
_REJECTED: Final = -1
"""The code for a question that the user does not answer (client: Sampling)."""
_FAILED: Final = "The client's callback failed"
_LEFT_OUT: Final = "The client leaves this question out"
_TOO_EARLY: Final = "A server must not ask before the handshake is complete"
_NOT_IN_ALL: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys((*LEGACY_METHODS, LIST_METHOD), versions.WITH_TASKS),
    DRAFT_METHOD: frozenset({versions.DRAFT}),
    "tasks/update": frozenset(),
    "subscriptions/listen": frozenset(),
    ELICIT: versions.WITH_ELICITATION,
}
"""Methods that some versions with a handshake do not have, and the versions that have them."""
_OF_ROUNDS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "tasks/result"})
"""Requests of the draft that may be answered with an interim result."""
_LAST_MESSAGE_SECONDS: Final = 2.0
"""How long the last message to a server may take: its answer is not needed."""


class LegacySession:
    """Implements `ekiden.client.sessions.session.ClientSession`."""

    era: Era = "legacy"

    def __init__(
        self,
        link: Link,
        answerer: Answerer,
        client_info: Mapping[str, Any],
        *,
        ids: Iterator[int],
        log_level: str | None = None,
        on_notification: Callable[[JsonObject], None] | None = None,
        draft: bool = False,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self._link = link
        self._answerer = answerer
        self._declared = answerer.capabilities | ({"extensions": dict(extensions)} if extensions else {})
        self._client_info = dict(client_info)
        self._log_level = log_level
        self._on_notification = on_notification
        self._ids = ids
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._complain = Complaints(_log)
        self._closing = False
        self._begun = False
        """Whether the handshake is complete: the server may ask from then on."""
        self.version = versions.DRAFT if draft else versions.LEGACY[0]
        self._spoken = (*versions.LEGACY, versions.DRAFT) if draft else versions.LEGACY
        self.server_info: JsonObject = {}
        self.capabilities: JsonObject = {}
        self.instructions: str | None = None

    async def open(self) -> None:
        """Make the handshake."""
        await self.greet()
        await self.begin()

    async def greet(self) -> None:
        """Send `initialize`, and learn who the server is."""
        result = await self._exchange(
            "initialize",
            {
                "protocolVersion": self.version,
                "capabilities": self._declared,
                "clientInfo": self._client_info,
            },
            Hooks(),
        )
        self.version = str(result.get("protocolVersion"))
        if self.version not in self._spoken:
            raise InvalidResult(f"The server speaks version {self.version!r}, which this client does not")
        info, capabilities, instructions = (
            result.get(name) for name in ("serverInfo", "capabilities", "instructions")
        )
        self.server_info = info if is_object(info) else {}
        self.capabilities = capabilities if is_object(capabilities) else {}
        self.instructions = instructions if isinstance(instructions, str) else None

    async def begin(self) -> None:
        """Tell the server that the handshake is complete, and listen to what it says by itself."""
        if isinstance(self._link, StreamableLink) and self.version not in versions.WITHOUT_HEADER:
            self._link.session_headers["MCP-Protocol-Version"] = self.version
        self._begun = True
        if isinstance(self._link, ChannelLink):
            self._link.listener = _Listener(self, Hooks())  # Before the server may ask, which is at once.
        await self._link.send(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        if isinstance(self._link, StreamableLink):
            await self._link.listen(_Listener(self, Hooks()))
        if self._log_level is not None and "logging" in self.capabilities:
            await self._exchange("logging/setLevel", {"level": self._log_level}, Hooks())

    async def request(self, request: ClientRequest) -> JsonObject:
        """Send a request; if the user must visit a page first (-32042), ask for that and send it again.

        One that the session's version does not have is refused here, as the server would refuse it.
        """
        if not self._has(request.method):
            raise ServerError(
                f"Version {self.version} has no {request.method}", code=MethodNotFound.default_code
            )
        for _ in range(_URL_ROUNDS):
            try:
                result = await self._exchange(request.method, request.params, request.hooks)
            except ServerError as error:
                if error.code != _URL_REQUIRED or not await self._visit(error, request.hooks):
                    raise
                continue
            if self.version == versions.DRAFT and _is_interim(request.method, result):
                return {**result, "resultType": "input_required"}
            if is_incomplete(result) or result.get("resultType") == "input_required":
                raise InvalidResult(f"A server of {self.version} must not send interim results, but did")
            if result.get("resultType") == RESULT_TYPE and "task" not in result:
                raise InvalidResult(f"A server of {self.version} must not send tasks of 2026, but did")
            return result
        raise InvalidResult(f"The server wanted a page visited {_URL_ROUNDS} times")

    def _has(self, method: str) -> bool:
        """Whether the session's version has a method."""
        having = _NOT_IN_ALL.get(method)
        return having is None or self.version in having

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        await self._link.send(jsonrpc.notification(method, params))

    async def _exchange(self, method: str, params: Mapping[str, Any], hooks: Hooks) -> JsonObject:
        request_id = next(self._ids)
        sent = dict(params)
        if hooks.progress is not None:
            sent["_meta"] = {**(sent.get("_meta") or {}), PROGRESS_TOKEN: request_id}
        outgoing = Outgoing(request_id, method, jsonrpc.request(request_id, method, sent), held=hooks.held)
        try:
            message = await self._response(outgoing, hooks)
        except HttpRefused as refused:
            if refused.status in (400, 404):
                raise EraChanged(refused, was_lost=True) from None
            raise
        except asyncio.CancelledError:
            if isinstance(self._link, StreamableLink) and method != "initialize":
                await self._cancel(self._link, request_id)
            raise
        if "error" in message:
            error = read_error(message)
            if message.get("status") in (400, 404):
                raise EraChanged(error, was_lost=error.code in _LOST)
            raise error
        result = message.get("result")
        if not is_object(result):
            raise InvalidResult("The server's result is not an object")
        return result

    async def _response(self, outgoing: Outgoing, hooks: Hooks) -> dict[str, Any]:
        """The response to a request; an error as soon as an answer shows that the session is lost."""
        lost = asyncio.timeout(None)
        try:
            async with lost:
                return await self._link.request(outgoing, _Listener(self, hooks, lost))
        except TimeoutError:
            if not lost.expired():
                raise
            raise TransportError(_SESSION_LOST) from None

    async def _cancel(self, link: StreamableLink, request_id: int) -> None:
        """Tell the server: in 2025, closing a stream does not cancel its request."""
        try:
            async with asyncio.timeout(_LAST_MESSAGE_SECONDS):
                await link.send(jsonrpc.notification("notifications/cancelled", {"requestId": request_id}))
        except (TransportError, TimeoutError):
            _log.debug("The server could not be told that request %r is cancelled", request_id)

    async def _visit(self, error: ServerError, hooks: Hooks) -> bool:
        """Ask the user to open the pages that an error names; True if the user agreed to all."""
        pages: Any = error.data.get("elicitations") if is_object(error.data) else None
        if not is_array(pages) or not pages:
            return False
        check_count(pages)
        ask = hooks.question or self._answerer.answer
        for number, page in enumerate(pages):
            answer = await ask(f"page {number + 1}", {"method": ELICIT, "params": page})
            if isinstance(answer, LeftOut) or answer.get("action") != "accept":
                return False
        return True

    def notified(self, message: JsonObject) -> None:
        """Take a notification that belongs to no request."""
        if self._on_notification is not None:
            self._on_notification(message)

    def answer(self, message: JsonObject, lost: asyncio.Timeout | None, hooks: Hooks) -> None:
        """Answer a request of the server in a task of its own. `lost` ends the request that it belongs to."""
        request_id = message["id"]
        if request_id in self._answering:
            return  # A resumed stream may repeat it.
        if len(self._answering) >= MOST_ASKS:
            self._complain(
                "The server asks more than %d things at once; %s is dropped", MOST_ASKS, request_id
            )
            return
        task = asyncio.get_running_loop().create_task(self._answer(message, lost, hooks))
        self._answering[request_id] = task
        task.add_done_callback(lambda _: self._answering.pop(request_id, None))

    def drop(self, params: Mapping[str, Any]) -> None:
        """Stop answering a request that the server has cancelled."""
        request_id = params.get("requestId")
        if isinstance(request_id, int | str) and request_id in self._answering:
            self._answering[request_id].cancel()

    async def _answer(self, message: JsonObject, lost: asyncio.Timeout | None, hooks: Hooks) -> None:
        request_id, method = message["id"], message["method"]
        try:
            reply = await self._reply(message, hooks)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closing and task is not None and task.cancelling():
                raise  # The server has taken its question back, or the session is given up.
            # A callback may raise it too, for a form that was closed: the server still waits for an answer.
            text = "The client is closing" if self._closing else _FAILED
            reply = jsonrpc.error_response(request_id, InternalError(text))
        except CannotAnswer as error:
            reply = jsonrpc.error_response(request_id, MethodNotFound(str(error)))
        except Exception as error:
            _log.exception("A callback failed to answer %s", printable(method))
            # What is wrong with an answer may be what the user has typed.
            telling = isinstance(error, EkidenError) and not isinstance(error, WrongAnswer)
            text = str(error) if telling else _FAILED
            reply = jsonrpc.error_response(request_id, InternalError(text))
        try:
            await self._send_reply(reply)
        except TransportError as error:
            self._complain("The answer to %s could not be sent: %s", method, error)
            if lost is not None and isinstance(error, HttpRefused) and error.status == _NOT_FOUND:
                with contextlib.suppress(RuntimeError):  # The request has ended meanwhile.
                    lost.reschedule(asyncio.get_running_loop().time())

    async def _reply(self, message: JsonObject, hooks: Hooks) -> bytes:
        request_id, method = message["id"], message["method"]
        if method == "ping":
            return jsonrpc.result_response(request_id, b"{}")
        if not self._begun:
            return jsonrpc.error_response(request_id, InvalidRequest(_TOO_EARLY))
        if method not in (ELICIT, SAMPLE, LIST_ROOTS) or not self._has(method):
            return jsonrpc.error_response(request_id, MethodNotFound(f"Method not found: {method}"))
        result = await (hooks.question or self._answerer.answer)(str(request_id), message)
        if isinstance(result, LeftOut):
            return jsonrpc.error_response(request_id, ProtocolError(_LEFT_OUT, code=_REJECTED))
        return jsonrpc.result_response(request_id, encode(result))

    async def _send_reply(self, reply: bytes) -> None:
        """Send an answer. While the server is unreachable, try again: the call would wait for it in vain.

        An answer that came although its delivery seemed to fail is ignored by the server the second time.
        """
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        deadline = loop.time() + _ANSWER_SECONDS
        while True:
            try:
                return await self._link.send(reply)
            except TransportError as error:
                is_final = isinstance(error, HttpRefused) and error.status != _UNAVAILABLE
                if is_final or self._closing or not isinstance(self._link, StreamableLink):
                    raise
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def close(self) -> None:
        """End the session. What the server asks is refused: it may not end before it has an answer."""
        self._closing = True
        if left := tuple(self._answering.values()):
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_LAST_MESSAGE_SECONDS)
        if isinstance(self._link, StreamableLink):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_MESSAGE_SECONDS):
                    await self._link.end_session()

    async def abandon(self) -> None:
        """Forget the session, and stop answering its requests."""
        for task in self._answering.values():
            task.cancel()
        if isinstance(self._link, StreamableLink):
            self._link.forget_session()


def _is_interim(method: str, result: JsonObject) -> bool:
    """Whether a result of the draft is an interim one."""
    return is_incomplete(result) or (method in _OF_ROUNDS and is_incomplete_unsaid(result))


class _Listener:
    def __init__(self, session: LegacySession, hooks: Hooks, lost: asyncio.Timeout | None = None) -> None:
        self._session = session
        self._hooks = hooks
        self._lost = lost

    def on_notification(self, message: JsonObject) -> None:
        if message["method"] == "notifications/cancelled":
            self._session.drop(message.get("params") or {})
        elif message["method"] == "notifications/progress" and self._hooks.progress is not None:
            self._hooks.progress(message.get("params") or {})
        elif self._hooks.notification is not None:
            self._hooks.notification(message)
        else:
            self._session.notified(message)

    async def on_request(self, message: JsonObject) -> None:
        self._session.answer(message, self._lost, self._hooks)
