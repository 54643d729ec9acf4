"""Streamable HTTP, client side: every message a POST, every answer JSON or a stream of its own.

In 2026-07-28 that is all. For servers of 2025 there is more: a session id that goes along, a stream
that the client GETs for what belongs to no request, and streams that can be resumed by the id of
their last event. The `Session` half of this class is only used with those.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import ProtocolError, TooMuch, TransportError
from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.decoding import SMALL, Decoding, Held
from ekiden.transports.client.http_port import HttpPort, Response, content_type
from ekiden.transports.client.link import Listener, Outgoing
from ekiden.transports.client.refusal import finish, refused
from ekiden.wire import sse
from ekiden.wire.jsonrpc import RequestId

__all__ = ["StreamableLink"]

_log = logging.getLogger(__name__)

_ACCEPT: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_RESUME_SECONDS: Final = 1.0
"""How long to wait before a lost stream is resumed, where the server did not say."""
_OPENING_SECONDS: Final = 1.0
"""How long to wait for the head of a stream that the server may open only with its first event."""
_RESUMPTIONS: Final = 5
"""How often one stream is resumed."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.1, 30.0
"""What a server may say about when to come back: neither at once for ever, nor never."""
_AT_ONCE: Final = 50
"""Events that are taken before others have their turn: thousands may have come in one piece."""
_LONGEST_ID: Final = 1024
"""Characters of an event's id: it goes back in a header."""
_ENDLESS: Final = "subscriptions/listen"
"""The request whose stream is meant to go on."""


class StreamableLink:
    """Implements `ekiden.transports.client.link.Link`."""

    def __init__(
        self,
        http: HttpPort,
        *,
        message_limit: int,
        stream_limit: int,
        arriving: Arriving | None = None,
        most_values: int | None = None,
    ) -> None:
        self._http = http
        self._arriving = arriving or Arriving()
        self._decoding = Decoding(self._arriving.server, most_values)
        self._limit = message_limit
        self._stream_limit = stream_limit
        self.session_headers: dict[str, str] = {}
        """What a server of 2025 wants on every request: its session id, and the version."""
        self._listening: asyncio.Task[None] | None = None

    async def request(self, outgoing: Outgoing, listener: Listener) -> dict[str, Any]:
        """POST a request and wait for its response."""
        headers = {**_ACCEPT, **self.session_headers, **outgoing.headers}
        response = await self._http.send("POST", headers, outgoing.body)
        if (
            session := response.headers.get("mcp-session-id")
        ) is not None and outgoing.method == "initialize":
            self.session_headers["Mcp-Session-Id"] = session
        kind = content_type(response)
        if kind == "text/event-stream":
            return await self._stream(response, outgoing, listener)
        try:
            body = await response.read()
        finally:
            await response.close()
        message: dict[str, Any] | None = None
        problem = f"its content type is {kind[:100]!r}"
        if response.status >= 400 or kind in ("", "application/json"):
            try:
                message = (
                    await self._whole(body, outgoing.held) if len(body) > SMALL else self._decoding.now(body)
                )
            except ProtocolError as error:
                problem = str(error)
        return _plain(response.status, kind, body, outgoing.id, message, problem)

    async def _whole(self, body: bytes, held: Held | None) -> dict[str, Any]:
        """The message in a large body, when its turn has come. Until then it counts as arriving."""
        part = self._arriving.part()
        try:
            part.has(len(body))
            return (await self._decoding.in_turn(body)).pass_to(held)
        finally:
            part.end()

    async def _stream(self, response: Response, outgoing: Outgoing, listener: Listener) -> dict[str, Any]:
        """Read a stream to the response; one that breaks off is resumed if the server gave it event ids."""
        place = _Place(None if outgoing.method == _ENDLESS else self._stream_limit)
        for resumed in range(_RESUMPTIONS + 1):
            try:
                answer = await self._read(response, outgoing.id, listener, place, outgoing.held)
            finally:
                await response.close()
            if answer is not None:
                return answer
            if place.last_id is None or resumed == _RESUMPTIONS:
                break
            await asyncio.sleep(place.wait_seconds)
            headers = {"Accept": "text/event-stream", **self.session_headers, "Last-Event-ID": place.last_id}
            response = await self._http.send("GET", headers, b"")
            if response.status != 200:
                await response.close()
                break
        raise TransportError("The stream ended before the response came")

    async def _read(
        self,
        response: Response,
        request_id: RequestId | None,
        listener: Listener,
        place: "_Place",
        held: Held | None = None,
    ) -> dict[str, Any] | None:
        decoder, part = sse.Decoder(self._limit), self._arriving.part()
        try:
            async for chunk in response.chunks():
                place.took(len(chunk))
                for number, event in enumerate(decoder.feed(chunk), 1):
                    if number % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                    place.note(event)
                    if not event.data:
                        continue
                    if len(event.data) <= SMALL:
                        message = self._event(event.data)
                    else:
                        part.has(len(event.data) + decoder.waiting)
                        message = await self._large_event(event.data, request_id, held)
                    if _answers(message, request_id):
                        return message
                    if (telling := _told(message, listener)) is not None:
                        await telling
                part.has(decoder.waiting)
        except TransportError as error:
            if place.last_id is None or isinstance(error, TooMuch):
                raise
        finally:
            part.end()
            decoder.clear()  # Whoever has failed may be known for long.
        return None

    def _event(self, data: bytes) -> dict[str, Any]:
        try:
            return self._decoding.now(data)
        except ProtocolError as error:
            raise _not_a_message(error) from None

    async def _large_event(
        self, data: bytes, request_id: RequestId | None, held: Held | None
    ) -> dict[str, Any]:
        """The message of a large event, when its turn has come. Only the response counts for longer."""
        try:
            decoded = await self._decoding.in_turn(data)
        except ProtocolError as error:
            raise _not_a_message(error) from None
        return decoded.pass_to(held if _answers(decoded.message, request_id) else None)

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        """POST a notification or a response."""
        every = {**_ACCEPT, **self.session_headers, **(headers or {})}
        await finish(await self._http.send("POST", every, message))

    # Only with servers of 2025

    async def listen(self, listener: Listener) -> None:
        """GET the stream of what belongs to no request, again and again, until the link is closed.

        Returns when the server has opened it, or offers none: what it asks before would be lost.
        """
        opened = asyncio.Event()
        self._listening = asyncio.get_running_loop().create_task(self._listen(listener, opened))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OPENING_SECONDS):
                await opened.wait()

    async def _listen(self, listener: Listener, opened: asyncio.Event) -> None:
        place = _Place()
        while True:
            headers = {"Accept": "text/event-stream", **self.session_headers}
            if place.last_id is not None:
                headers["Last-Event-ID"] = place.last_id
            try:
                try:
                    response = await self._http.send("GET", headers, b"")
                finally:
                    opened.set()
                if response.status != 200:
                    await response.close()
                    return  # The server offers none.
                try:
                    await self._read(response, None, listener, place)
                finally:
                    await response.close()
            except TransportError as error:
                _log.debug("The server's stream was lost: %s", error)
            except Exception:  # A callback of the user failed, and there is no call that could raise it.
                _log.exception("A callback failed to take what the server told")
            await asyncio.sleep(place.wait_seconds)

    def forget_session(self) -> None:
        """The session is gone: nothing of it goes along any more."""
        self.session_headers.clear()
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def end_session(self) -> None:
        """DELETE the session; a server that does not know how is left alone."""
        if "Mcp-Session-Id" in self.session_headers:
            with contextlib.suppress(TransportError):
                response = await self._http.send("DELETE", dict(self.session_headers), b"")
                await response.close()

    async def close(self, *, hurry: bool = False) -> None:
        """Close the connections, which takes no time."""
        if self._listening is not None:
            self._listening.cancel()
        await self._http.close()


class _Place:
    """Where in a resumable stream we are."""

    def __init__(self, limit: int | None = None) -> None:
        self._left = limit
        self._limit = limit
        self.last_id: str | None = None
        self.wait_seconds = _RESUME_SECONDS

    def took(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise TooMuch(f"The server's stream brought more than {self._limit} bytes without a response")

    def note(self, event: sse.Event) -> None:
        if event.id and len(event.id) <= _LONGEST_ID and event.id.isascii():
            self.last_id = event.id
        if event.retry_ms is not None:
            self.wait_seconds = min(max(event.retry_ms / 1000, _SHORTEST_WAIT), _LONGEST_WAIT)


def _plain(
    status: int, kind: str, body: bytes, request_id: RequestId, message: dict[str, Any] | None, problem: str
) -> dict[str, Any]:
    """The message of a response that is not a stream, if it has one that answers the request."""
    # A refusal belongs to the request whatever id it bears: some servers could not read one, or make one up.
    if (
        message is not None
        and "error" in message
        and (status >= 400 or message.get("id") in (request_id, None))
    ):
        return {**message, "status": status}
    if status >= 400:
        raise refused(status, kind, body)
    if message is None:
        raise TransportError(f"The server's response (HTTP status {status}) cannot be read: {problem}")
    if message.get("id") != request_id or "method" in message:
        raise TransportError(f"The server's response (HTTP status {status}) does not answer the request")
    return message


def _answers(message: dict[str, Any], request_id: RequestId | None) -> bool:
    return request_id is not None and "method" not in message and message.get("id") == request_id


def _told(message: dict[str, Any], listener: Listener) -> Coroutine[Any, Any, None] | None:
    """Tell the listener what is not a response; what is returned, if anything, is to be awaited."""
    if "method" not in message:
        return None
    if message.get("id") is not None:  # With null it could not be answered.
        return listener.on_request(message)
    listener.on_notification(message)
    return None


def _not_a_message(error: ProtocolError) -> TransportError:
    return TransportError(f"The server sent an event that is not a message: {error}")
