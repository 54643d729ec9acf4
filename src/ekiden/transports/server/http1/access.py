"""The access log: one line for each response, at level INFO. Other connections do not know of it."""

import asyncio
import logging
from typing import Any, Final

from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.exchange import Exchange, method_and_name
from ekiden.transports.server.reply import Event
from ekiden.wire.printable import printable

__all__ = ["LoggedConnection"]

_log = logging.getLogger(__name__)

_MILLISECONDS: Final = 1000


class _LoggedExchange(Exchange):
    """Remembers what its response was, and when it began."""

    status: int | None = None
    began: float = 0.0

    def respond(self, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send a plain JSON response."""
        self.status = status
        super().respond(status, body, headers)

    def _write(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self.status = event["status"]
        super()._write(event)


class LoggedConnection(Connection):
    """Writes a line when it has answered a request, or when the client has left."""

    exchanges = _LoggedExchange

    def _begin(self, exchange: Exchange) -> None:
        assert isinstance(exchange, _LoggedExchange)
        exchange.began = self.loop.time()
        super()._begin(exchange)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        exchange = self._exchange
        assert isinstance(exchange, _LoggedExchange)
        super()._ended(task)
        took = (self.loop.time() - exchange.began) * _MILLISECONDS
        incoming = exchange.incoming
        # Without a status the client has left before there was a response.
        path = self._application.gate.loggable(incoming.path)
        words = [incoming.method, printable(path), str(exchange.status or "left")]
        if about := method_and_name(incoming):
            words.append(about)
        _log.info("%s %s %.0f ms", self._client(), " ".join(words), took)

    def _refuse(self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super()._refuse(status, reason, headers)
        _log.info("%s refused %d %s", self._client(), status, reason)

    def _client(self) -> str:
        peer: Any = self.transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "another worker"
