"""Requests to one client of 2025: each goes out on the stream of a request of its own, and is answered by a
message.

If several processes share the session, the answer may reach another one than that which sent the request.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from ekiden.errors import CannotAsk
from ekiden.sessions.shared import SharedSessions
from ekiden.transports.server.legacy.port import Line
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import Response
from ekiden.wire.json import JsonObject

__all__ = ["ClientRequests"]

_log = logging.getLogger(__name__)

_IDS_END: Final = 2**53
"""All ids are below: JSON has 53 bits for them. A client may send more, which not every store can look up."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Response).decode


class ClientRequests:
    """Sends requests, and waits for the answers."""

    def __init__(self, session_id: str, shared: SharedSessions | None) -> None:
        self._session_id = session_id
        self._shared = shared
        self._open: dict[int, asyncio.Future[Response]] = {}
        # Processes that share a session must not use the same ids.
        self._ids = itertools.count(1 if shared is None else secrets.randbits(32) << 16)
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, line: Line, method: str, params: JsonObject, seconds: float) -> object:
        """The result of a request, which takes at most `seconds`. Raises `CannotAsk` if it is an error."""
        number = next(self._ids)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            await self._expect(number, seconds)
            await line.send(jsonrpc.request(number, method, params))
            response = await answer
        except asyncio.CancelledError:
            reason = "the answer is not needed any more, or did not come in time"
            self.send_later(line, "notifications/cancelled", {"requestId": number, "reason": reason})
            raise
        finally:
            del self._open[number]
            if self._shared is not None:
                self._shared.withdraw(self._session_id, number)
        if response.error is not None:
            raise CannotAsk(f"The client could not answer {method}: {_reason(response.error)}")
        return response.result

    async def _expect(self, number: int, seconds: float) -> None:
        """Hear of an answer that reaches another process."""
        if self._shared is not None:
            await self._shared.ask(
                self._session_id,
                number,
                seconds=seconds,
                hear=lambda data: self._settle(number, _decode(data)),
            )

    def send_later(self, line: Line, method: str, params: JsonObject) -> None:
        """Send a notification, or a request whose answer does not matter, without waiting for it."""
        is_notification = method.startswith("notifications/")
        message = (
            jsonrpc.notification(method, params)
            if is_notification
            else jsonrpc.request(next(self._ids), method, params)
        )
        task = asyncio.get_running_loop().create_task(_send(line, message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def answered(self, response: Response) -> bool:
        """Take an answer; False if it belongs to no open request of this process."""
        return isinstance(response.id, int) and self._settle(response.id, response)

    async def pass_on(self, response: Response) -> None:
        """Hand an answer to the process that asked. It is dropped if none did."""
        assert self._shared is not None
        number = response.id
        if (
            not isinstance(number, int)
            or not 0 < number < _IDS_END
            or not await self._shared.answer(self._session_id, number, _encode(response))
        ):
            _log.debug("The client answered %r, which is not an open question", response.id)

    def _settle(self, number: int, response: Response) -> bool:
        asked = self._open.get(number)
        if asked is None or asked.done():
            return False
        asked.set_result(response)
        return True


async def _send(line: Line, message: bytes) -> None:
    try:
        await line.send(message)
    except (OSError, CannotAsk) as error:
        _log.debug("A message could not be sent to the client: %s", error)


def _reason(error: Mapping[str, object]) -> str:
    return str(error.get("message") or error.get("code") or "it gave no reason")[:1000]
