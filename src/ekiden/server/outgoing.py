"""What the server sends, shown to the author's functions before it leaves: they may drop, count or change it.

Responses, notifications, and requests to clients of 2025, on every transport. Nothing of this runs where no
such function is registered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from ekiden.errors import CannotAsk, InternalError, ProtocolError, StatusError
from ekiden.rounds.outcome import Complete, Dialect, Failed, Interim, Outcome
from ekiden.server.cancellation import ends_more_than_a_call
from ekiden.server.questions.gate import check_question, through_the_gate
from ekiden.transports.server.legacy.port import Line
from ekiden.transports.server.port import Stream
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, Raw, copied, decode, encode, is_object
from ekiden.wire.jsonrpc import RequestId, error_response
from ekiden.wire.modern import Request

__all__ = ["Outgoing", "OutgoingMiddleware", "Outlet", "SendOn"]

_log = logging.getLogger(__name__)


class Outgoing(msgspec.Struct):
    """A message that is about to be sent."""

    body: JsonObject
    """The JSON-RPC message. It may be changed, or replaced; its `id` must stay."""
    session: str | None
    """The session it goes to: of a client of 2025, or of a connection over stdio or memory. None for clients
    of 2026 over HTTP, which have none."""
    request: Request | None
    """The request that it answers or belongs to; None for a notification outside of requests."""

    @property
    def method(self) -> str:
        """Its own method; of a response, that of the request it answers."""
        own: str | None = self.body.get("method")
        return own or ("" if self.request is None else self.request.method)

    @property
    def is_response(self) -> bool:
        """Whether it is a result or an error."""
        return "method" not in self.body


SendOn: TypeAlias = Callable[[Outgoing], Awaitable[None]]
OutgoingMiddleware: TypeAlias = Callable[[Outgoing, SendOn], Awaitable[None]]
"""Called with every message that is sent: pass it on, changed or not, or drop it by not passing it on."""


class Outlet:
    """The functions that see what is sent. The first added sees a message last, as middleware does."""

    def __init__(self) -> None:
        self._layers: list[OutgoingMiddleware] = []

    @property
    def used(self) -> bool:
        """Whether there are any."""
        return bool(self._layers)

    def add(self, function: OutgoingMiddleware) -> None:
        """Add a function."""
        self._layers.append(function)

    async def passed(self, message: Outgoing) -> JsonObject | None:
        """The message as it is to be sent; None if it was dropped. `InternalError` if a function raised, or
        made something of it that cannot be sent."""
        method, has_id, own_id = message.method, "id" in message.body, message.body.get("id")
        sent: list[JsonObject] = []

        async def last(passed: Outgoing) -> None:
            sent.append(passed.body)

        send: SendOn = last
        for layer in self._layers:  # The first is next to the wire, as the first middleware is.
            send = _before(layer, send)
        try:
            await send(message)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if ends_more_than_a_call(error):
                raise
            _log.exception("An outgoing middleware raised on %s", method)
            raise InternalError("Internal error") from None
        if not sent:
            return None
        if (problem := _spoiled(sent[0], has_id, own_id)) is not None:
            _log.error("An outgoing middleware spoiled %s: %s", method, problem)
            raise InternalError("Internal error")
        return sent[0]

    # Where messages leave

    async def outcome(self, outcome: Outcome, request: Request, dialect: Dialect) -> Outcome:
        """A response to a client of 2026."""
        spelled = outcome.render(dialect, request.id)
        body = await self._response(spelled, request)
        if body is None:
            return _Spelled(b"")
        if (error := body.get("error")) is not None:
            return Failed(ProtocolError(error["message"], code=error["code"], data=error.get("data")))
        return _Spelled(encode(body))

    async def response(self, spelled: bytes, request: Request) -> bytes:
        """A response to a client of 2025; empty if it is not to be sent."""
        body = await self._response(spelled, request)
        return b"" if body is None else encode(body)

    async def _response(self, spelled: bytes, request: Request) -> JsonObject | None:
        method, capabilities, request_id = request.method, copied(request.meta.capabilities), request.id
        try:
            body = await self.passed(Outgoing(decode(spelled), request.session, request))
        except InternalError as error:  # Without a response its client would wait for ever.
            return _error(request_id, error)
        finally:
            request.id = request_id  # The transport spells errors with it.
        if body is not None and is_object(result := body.get("result")):
            held_back = _held_back(method, capabilities, result, request_id)
            return body if held_back is None else held_back
        return body

    async def notification(
        self, method: str, params: JsonObject, session: str | None, request: Request | None
    ) -> JsonObject | None:
        """A notification as it is to be sent; None if it is not."""
        if any(isinstance(value, Raw) for value in params.values()):
            params = copied(params)  # The state of a task, which others are sent, too.
        body: JsonObject = {"jsonrpc": "2.0", "method": method, "params": params}
        try:
            return await self.passed(Outgoing(body, session, request))
        except InternalError:
            return None

    def stream(self, stream: Stream, request: Request) -> Stream:
        """The way back to a client of 2026, past the functions."""
        return _Stream(stream, self, request)

    def line(self, line: Line, request: Request) -> Line:
        """The way back to a client of 2025, past the functions."""
        return _Line(line, self, request)


def _before(layer: OutgoingMiddleware, send: SendOn) -> SendOn:
    async def sending(message: Outgoing) -> None:
        await layer(message, send)

    return sending


def _held_back(
    method: str, capabilities: JsonObject, result: JsonObject, request_id: RequestId
) -> JsonObject | None:
    """The error in place of an interim result that must not leave; None if the result may."""
    if result.get("resultType") != "input_required":
        return None
    interim = Interim(result.get("inputRequests") or {}, result.get("requestState"))
    outcome = through_the_gate(method, capabilities, interim)
    if not isinstance(outcome, Failed):
        return None
    return _error(request_id, outcome.error)


def _error(request_id: RequestId, error: ProtocolError) -> JsonObject:
    spelled: JsonObject = decode(error_response(request_id, error))
    return spelled


def _spoiled(body: Any, has_id: bool, own_id: object) -> str | None:
    """Why a message cannot be sent; None if it can."""
    if not is_object(body):
        return "it is not an object"
    if ("id" in body) != has_id or body.get("id") != own_id:
        return "its `id` must stay"
    if "error" in body:
        error = body["error"]
        if (
            not is_object(error)
            or type(error.get("code")) is not int
            or type(error.get("message")) is not str
        ):
            return "its `error` must have a `code` and a `message`"
    elif type(body.get("method")) is not str and not (has_id and is_object(body.get("result"))):
        return "it has neither a `method` nor a result"
    try:
        encode(body)
    except ENCODE_ERRORS as error:
        return f"it is not JSON: {error}"
    return None


class _Spelled(Complete):
    """A response that is bytes already; empty if nothing is to be sent."""

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        assert isinstance(self.result, bytes)
        return self.result


class _Stream:
    """Implements `ekiden.transports.server.port.Stream`."""

    def __init__(self, stream: Stream, outlet: Outlet, request: Request) -> None:
        self._stream = stream
        self._outlet = outlet
        self._request = request

    @property
    def can_notify(self) -> bool:
        return self._stream.can_notify

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        request = self._request
        body = await self._outlet.notification(method, params, request.session, request)
        if body is None:
            await asyncio.sleep(0)
        else:
            await self._stream.notify(body["method"], body.get("params") or {})


class _Line:
    """Implements `ekiden.transports.server.legacy.port.Line`."""

    def __init__(self, line: Line, outlet: Outlet, request: Request) -> None:
        self._line = line
        self._outlet = outlet
        self._request = request
        self._declared: JsonObject = copied(request.meta.capabilities)

    @property
    def can_stream(self) -> bool:
        return self._line.can_stream

    async def send(self, message: bytes) -> None:
        request = self._request
        original: JsonObject = decode(message)
        is_question = "id" in original
        try:
            body = await self._outlet.passed(Outgoing(original, request.session, request))
        except InternalError:
            body = None
        if body is not None and is_question:
            check_question(body, self._declared)
        if body is not None:
            await self._line.send(encode(body))
        elif is_question:
            raise CannotAsk("The question was held back by the server")
        else:
            await asyncio.sleep(0)

    def fail(self, error: StatusError) -> None:
        """Passed on."""
        self._line.fail(error)

    def hang_up(self) -> None:
        self._line.hang_up()
