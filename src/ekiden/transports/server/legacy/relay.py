"""Between the workers of one machine: a request of 2025 goes to the worker that has its session.

A session lives in one process, and its id begins with that process's name. Whichever worker the kernel
gave the connection to hands the request on over a unix socket, and the response back as it comes. The
sockets are in a folder that only the user who runs the workers can enter.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import httptools

from ekiden.errors import InternalError
from ekiden.transports.server.legacy.carrying import refuse
from ekiden.transports.server.listeners import listening_often
from ekiden.transports.server.proxies import RELAYED_FOR
from ekiden.transports.server.reply import JSON, Receive, Send, respond
from ekiden.wire import jsonrpc
from ekiden.wire.incoming import Incoming

__all__ = ["UnixRelay"]

_NAME: Final = re.compile(r"[0-9a-f]{8}")
_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"content-length", b"expect", b"keep-alive", b"transfer-encoding", b"upgrade"}
    | {RELAYED_FOR}
)
"""Headers that concern one connection, not the request."""
_MADE_ANEW: Final = frozenset({b"connection", b"date", b"keep-alive", b"transfer-encoding"})
"""Headers of a response that this connection has of its own."""
_CHUNK: Final = 64 * 1024
_BACKLOG: Final = 4096
"""Requests that may wait to be taken by a worker that is busy. Beyond it they are refused."""
_BUSY: Final = "The worker that has this session is busy: try again later"
_AGAIN: Final = (b"retry-after", b"1")


class Descriptors(Protocol):
    """Those that the process may have."""

    def hand_on(self, address: str | None, now: float) -> bool:
        """Take one to hand a request on to another worker; False if there is none."""
        ...

    def handed_on(self) -> None:
        """It is given back."""
        ...


class UnixRelay:
    """Implements `streamable.Relay` for the worker `name`, over sockets in `folder`."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self.name = name
        self.descriptors: Descriptors | None = None
        """Set by whoever serves, if they are counted."""

    @property
    def prefix(self) -> str:
        """What the ids of this worker's sessions begin with."""
        return f"{self.name}."

    async def listen(self, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Take the requests that other workers hand on."""
        path = self._folder / self.name
        loop: Any = asyncio.get_running_loop()
        create = functools.partial(loop.create_unix_server, protocol, backlog=_BACKLOG)
        return await listening_often(await create(str(path)), create)

    def owner(self, session_id: str) -> str | None:
        """The other worker that a session id names, if any."""
        name = session_id.partition(".")[0]
        return None if name == self.name or not _NAME.fullmatch(name) else name

    async def forward(self, owner: str, incoming: Incoming, receive: Receive, send: Send) -> bool:
        """Have the owner answer; False if it is not there any more, and nothing was sent."""
        now = asyncio.get_running_loop().time()
        if self.descriptors is not None and not self.descriptors.hand_on(incoming.address, now):
            await refuse(send, 503, _BUSY, _AGAIN)
            return True
        try:
            return await self._forward(owner, incoming, receive, send)
        finally:
            if self.descriptors is not None:
                self.descriptors.handed_on()

    async def _forward(self, owner: str, incoming: Incoming, receive: Receive, send: Send) -> bool:
        """A request that the owner had when it died gets an error. Where a session is not there, some clients
        begin anew by themselves, and send the request again, which may have been done.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._folder / owner))
        except (FileNotFoundError, ConnectionError):
            return False
        except OSError:
            await refuse(send, 503, _BUSY, _AGAIN)
            return True
        leaving = asyncio.get_running_loop().create_task(_until_gone(receive, writer))
        answer = _Answer(send)
        try:
            writer.write(_spelled(incoming))
            while not answer.complete and (data := await reader.read(_CHUNK)):
                await answer.take(data)
        except OSError:
            pass  # The owner has died, or the client has left.
        finally:
            leaving.cancel()
            writer.close()
            answer.stop_reading()
        if not await answer.finish():
            if (request_id := incoming.request_id()) is None:
                return False
            body = jsonrpc.error_response(request_id, InternalError(jsonrpc.PROCESS_ENDED))
            await respond(send, 200, body, JSON)
        return True


def _spelled(incoming: Incoming) -> bytes:
    sent = incoming.repeating or incoming.headers.items()
    kept = [pair for pair in sent if pair[0] not in _OF_THE_CONNECTION]
    own = [(b"content-length", b"%d" % len(incoming.body)), (b"connection", b"close")]
    if incoming.address is not None:
        own.append((RELAYED_FOR, incoming.address.encode("latin-1")))
    lines = b"".join(b"%b: %b\r\n" % pair for pair in (*kept, *own))
    target = f"{incoming.method} {quote(incoming.path)}".encode("latin-1")  # The path came unquoted.
    return b"%b HTTP/1.1\r\n%b\r\n%b" % (target, lines, incoming.body)


async def _until_gone(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """A client that leaves us leaves the owner."""
    while (await receive())["type"] != "http.disconnect":
        pass
    with contextlib.suppress(OSError):
        writer.close()


class _Answer:
    """The owner's response, passed on piece by piece."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._ready = False
        self._begun = False
        self._pieces: list[bytes] = []
        self.complete = False

    # What the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name.lower() not in _MADE_ANEW:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._ready = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """That was all."""
        self.complete = True

    # What the relay calls

    async def take(self, data: bytes) -> None:
        """Pass on what is in `data`."""
        self._parser.feed_data(data)
        if self._ready and not self._begun:
            self._begun = True
            status: int = self._parser.get_status_code()
            if (
                not self.complete
            ):  # An answer in pieces is framed anew: a length besides would be a second one.
                self._headers = [pair for pair in self._headers if pair[0] != b"content-length"]
            await self._send({"type": "http.response.start", "status": status, "headers": self._headers})
            if not self.complete:
                self._pieces.append(b"")  # The head of a stream goes at once.
        if self._begun and self._pieces and not self.complete:
            body, self._pieces = b"".join(self._pieces), []
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def stop_reading(self) -> None:
        """No more comes. The parser knows us: with it, nothing is freed until cycles are looked for."""
        self._parser = None

    async def finish(self) -> bool:
        """End the response, if it began."""
        if self._begun:
            await self._send({"type": "http.response.body", "body": b"".join(self._pieces)})
        return self._begun
