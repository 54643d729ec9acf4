"""Requests as they come in on one connection: heads, bodies, and where either is too large."""

import abc
import asyncio
import logging
from typing import Any, Final

import httptools

from ekiden.signals import HttpRequestRefused
from ekiden.transports.server.budget import PER_HEADER, head_weight
from ekiden.transports.server.http1.heads import without_upgrade
from ekiden.transports.server.shares import Shares
from ekiden.wire.incoming import Incoming, Refusal

__all__ = ["SHORT_HEAD", "STOPS", "RequestReader"]

_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 64 * 1024
"""Headers and trailers. A token of 64 KiB travels in the body, so nothing of ours comes near this."""
SHORT_HEAD: Final = _HEAD_BYTES // (1 + PER_HEADER // 4)
"""A head in so few bytes cannot be too long: a header has at least four of them."""

_UNCOUNTED: Final = 64 * 1024
"""Bytes of a body that take nothing of the budget: most requests have less."""
_TINY: Final = 4 * 1024
"""Bytes of a request that take nothing of it while it waits for its turn."""
_TOO_MUCH: Final = Refusal(503, "Too many large bodies are on their way", ((b"retry-after", b"5"),))
_VERSIONS: Final = ("1.1", "1.0")
STOPS: Final = (httptools.HttpParserUpgrade, httptools.HttpParserError)
"""What the parser raises when it reads no further."""


class RequestReader(abc.ABC):
    """Feeds the parser, and takes its calls. What becomes of a request is for the connection to say."""

    def __init__(self, body_limit: int, budget: Shares, loop: asyncio.AbstractEventLoop) -> None:
        self._body_limit = body_limit
        self._budget = budget
        self.network: str | None = None
        """Whose connection it is, by address."""
        self._held = 0
        """Bytes that the request has taken of the budget."""
        self._holder = ""
        """In whose name it has. Remembered, because a sender may be known only later."""
        self.loop = loop
        self._since = loop.time()
        """When the connection fell silent, or a request began that is not whole yet."""
        self._parser: Any = httptools.HttpRequestParser(self)
        self._reading = False
        """Whether a request has begun that is not whole yet."""
        self._refused: Refusal | None = None
        """Why nothing more is read: the last response, after those to all that came before."""
        self._stopped: Refusal | None = None
        """The same, as soon as a callback of the parser knows it."""
        self._url = b""
        self._in_head = False
        """Whether the headers of a request are being read."""
        self._headers: dict[bytes, bytes] = {}
        """Those of the head that is being read."""
        self._repeated: list[tuple[bytes, bytes]] = []
        """The headers after which another one of the same name has come."""
        self._body = b""
        self._pieces: bytearray | None = None
        self._unsliced = b""
        """What has come in and is read when fewer requests wait for their turn."""
        self._keeper = ""
        """In whose name that is counted."""
        self._size = self._unread = self._fed = 0
        """Bytes of the body; bytes that have neither ended the head nor brought any body; and bytes that have
        come since no request was being read, so at least all of this one."""

    @abc.abstractmethod
    def _refuse(self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Read nothing more, and say why."""

    @abc.abstractmethod
    def _sender(self) -> str:
        """Whose request is being read, or else answered: a principal if that is known, else an address."""

    def _read_on(self, data: bytes | memoryview, error: Exception) -> None:
        """The parser has stopped in the midst of `data`: refuse it, or read the rest."""
        rest = self._stumbled(data, error)
        while rest is not None:
            rest = self._feed(rest)

    def _count_unread(self, size: int) -> None:
        """Refuse a head that does not end."""
        self._unread += size
        count = len(self._headers) + len(self._repeated)
        if self._unread + PER_HEADER * count > _HEAD_BYTES:
            self._refuse(431, "The request's headers are too long")

    def stop_reading(self) -> None:
        """Let go of all that was read: a collector may come much later for a connection that is closed."""
        self._parser = None
        self._drop_request()
        self._take_kept()

    def _feed(self, data: bytes | memoryview) -> memoryview | None:
        """Have the parser read; the rest if it stopped at an offer to upgrade the connection."""
        try:
            self._parser.feed_data(data)
        except STOPS as error:
            return self._stumbled(data, error)
        return None

    def _stumbled(self, data: bytes | memoryview, error: Exception) -> memoryview | None:
        """Refuse what the parser does not read, or return what is left to be read."""
        if isinstance(error, httptools.HttpParserUpgrade):
            return self._decline(memoryview(data)[error.args[0] :])
        if not isinstance(error, httptools.HttpParserCallbackError):
            self._refuse(400, "Not HTTP/1.1")
        elif self._stopped is not None:
            self._refuse(*self._stopped)
        else:
            _log.error("A request could not be taken", exc_info=error.__context__)
            self._refuse(500, "Internal error")
        return None

    def _decline(self, rest: memoryview) -> memoryview | None:
        """Read the request as if it had not offered an upgrade, as Java's client always does.

        The parser has stopped before the body, so a new one gets the head again. Returns what is left.
        """
        method: bytes = self._parser.get_method()
        if method == b"CONNECT":  # An upgrade by its method, however often it is read.
            self._refuse(501, "Not implemented: this is not a proxy")
            return None
        version, keep_alive = self._parser.get_http_version(), self._parser.should_keep_alive()
        sent = (*self._repeated, *self._headers.items())
        head = without_upgrade(method, self._url, version, sent, keep_alive=keep_alive)
        self._parser = httptools.HttpRequestParser(self)
        self._feed(head)
        return None if self._refused else rest

    def _stop(
        self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> HttpRequestRefused:
        """What a callback raises to stop the parser, which does not always pass it on: so it is kept, too."""
        self._stopped = Refusal(status, reason, headers)
        return HttpRequestRefused(status, reason, headers)

    def _drop_request(self) -> None:
        """What was read of a request is not wanted any more. The connection may be open for long."""
        self._url, self._headers, self._repeated = b"", {}, []
        self._take_body()
        self._budget.give_back(self._holder, self._held)
        self._held = 0

    def _take(self, size: int) -> None:
        """Take of the budget for the request that is being read. Stops if there is not so much left."""
        if not self._held:
            self._holder = self._sender()
        if not self._budget.take(self._holder, size):
            raise self._stop(*_TOO_MUCH)
        self._held += size

    def _count_waiting(self, incoming: Incoming) -> None:
        """Count a request that waits for its turn, which may be long, with its head. Tiny ones are free."""
        weight = head_weight(incoming) + len(incoming.body)
        if weight > _TINY and weight > self._held:
            self._take(weight - self._held)

    def _keep(self, data: bytes) -> None:
        """Keep what came in for later. It counts, because a transport may deliver 256 KB at once."""
        if not self._unsliced:
            self._keeper = self._sender()
        if self._budget.take(self._keeper, len(data)):
            self._unsliced += data
        else:
            self._refuse(*_TOO_MUCH)

    def _take_kept(self) -> bytes:
        """What was kept, which is then forgotten here."""
        data, self._unsliced = self._unsliced, b""
        self._budget.give_back(self._keeper, len(data))
        return data

    def _take_body(self) -> bytes:
        """The body, which is then forgotten here."""
        body = self._body if self._pieces is None else bytes(self._pieces)
        self._body, self._pieces = b"", None
        return body

    def _check_head(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]] | None:
        """Stop at a head that is too long, or that names transfer codings twice. Else all headers as they
        were sent, if one was sent twice."""
        repeated = self._repeated
        if any(name == b"transfer-encoding" for name, _ in repeated):  # Together they are one list.
            raise self._stop(501, "Not implemented: the only transfer coding is chunked")
        if repeated or self._fed + PER_HEADER * len(headers) > _HEAD_BYTES:
            sent = [*repeated, *headers.items()]
            if sum(len(name) + len(value) + PER_HEADER for name, value in sent) > _HEAD_BYTES:
                raise self._stop(431, "The request's headers are too long")
            return sent if repeated else None
        return None

    def _keeps_alive(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the connection stays open after the response. Stops at versions that are not served."""
        keep_alive: bool = self._parser.should_keep_alive()
        if keep_alive and b"connection" not in headers:
            return True  # Only HTTP/1.1 does so without a header.
        version = self._parser.get_http_version()
        if version not in _VERSIONS:
            raise self._stop(505, "Only HTTP/1.1 and HTTP/1.0 are served here")
        # HTTP/1.0 keeps a connection only by a header, which our responses do not have.
        return keep_alive and version == "1.1"

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = {}
        if self._repeated:
            self._repeated = []
        self._unread = self._size = 0
        self._reading = self._in_head = True
        self._since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url
        if len(self._url) > _HEAD_BYTES:
            raise self._stop(414, "The request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers, which come after the body, are not for us: nothing of them is kept."""
        if not self._in_head:
            return
        name, headers = name.lower(), self._headers
        if name in headers:
            self._repeated.append((name, headers[name]))
        headers[name] = value

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._size += len(body)
        if self._size > self._body_limit:
            raise self._stop(413, f"Body too large: the limit is {self._body_limit} bytes")
        if not self._body:
            self._body = body
        elif self._pieces is None:
            self._pieces = bytearray(self._body + body)
        else:
            self._pieces += body  # Not a list of them: a piece of two bytes would take as much as fifty.
            grown = len(self._pieces) - self._held
            if grown > _UNCOUNTED:
                self._take(grown)
