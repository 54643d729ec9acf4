"""Connections that shake hands for TLS: they count from the moment they are accepted.

A server of the event loop tells of a connection when its handshake is done: one that is never made would
count for no cap. So connections are accepted here, and until its handshake is done each is a guest of the
crowd that waits for its client, like one that is idle.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from ekiden.transports.server.http1.crowd import Crowd
from ekiden.transports.server.proxies import network_of

__all__ = ["TlsListener"]

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 5.0
"""How long a handshake may take."""
_AT_ONCE: Final = 16
"""Connections that are accepted before others are looked after. Those that leave for them have a file
descriptor until then."""
_PAUSE_SECONDS: Final = 0.1
"""How long nothing is accepted after that has failed, mostly because there are no file descriptors."""


class TlsListener:
    """What listens for clients of TLS; to uvicorn it is a server of the event loop."""

    def __init__(
        self,
        server: asyncio.Server,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        crowd: Crowd,
        backlog: int,
    ) -> None:
        """`server` has sockets, but does not serve. `make` makes the protocols of who has shaken hands."""
        self.sockets = server.sockets
        self._server = server
        self._make = make
        self._context = context
        self._crowd = crowd
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], _Handshake] = {}
        listening = [each.dup() for each in self.sockets]
        for each in listening:
            each.listen(backlog)
            each.setblocking(False)
        self._accepting = [self._loop.create_task(self._accept(each)) for each in listening]

    def close(self) -> None:
        """Accept no more. Handshakes that are not done by now are not waited for."""
        self._server.close()
        for task in self._accepting:
            task.cancel()
        for handshake in self._handshakes.values():
            handshake.make_room()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.wait(self._accepting)
        await self._server.wait_closed()

    async def _accept(self, listening: socket.socket) -> None:
        with listening:
            while True:
                try:
                    for _ in range(_AT_ONCE):
                        self._begin(*await self._loop.sock_accept(listening))
                    await asyncio.sleep(0)
                except OSError as error:
                    _log.warning("A connection cannot be accepted: %s", error)
                    await asyncio.sleep(_PAUSE_SECONDS)

    def _begin(self, sock: socket.socket, peer: Any) -> None:
        handshake = _Handshake(sock, peer, self._crowd, self._make, self._loop)
        task = self._loop.create_task(handshake.run(self._context))
        self._handshakes[task] = handshake
        task.add_done_callback(self._handshakes.pop)


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is done."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Any,
        crowd: Crowd,
        make: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.network = network_of(peer[0]) if peer.__class__ is tuple else None
        self.waits_since: float | None = loop.time()
        self._sock = sock
        self._crowd = crowd
        self._make = make
        self._loop = loop
        self._is_over = False
        crowd.add(self, loop)

    async def run(self, context: ssl.SSLContext) -> None:
        """Shake hands. Those that fail are not worth a line: anybody can have any number of them."""
        try:
            if self._is_over:  # Its descriptor is needed now, and a transport would keep it for a while.
                self._sock.close()
                return
            await self._loop.connect_accepted_socket(
                lambda: self, self._sock, ssl=context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        except OSError:
            pass  # Also all errors of TLS.
        finally:
            self._crowd.discard(self)

    def connection_made(self, transport: Any) -> None:
        """It is done: from now on this is a connection like others, and counts as one."""
        self._crowd.discard(self)
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def look(self, now: float) -> None:
        """The event loop limits its time."""

    def turn_away(self, reason: str) -> None:
        """It can be told when its handshake is done: then it is counted anew."""

    def make_room(self) -> None:
        """End it: its transport, if there is one, will read the end of the stream."""
        self._is_over = True
        with contextlib.suppress(OSError):  # The client is gone already.
            self._sock.shutdown(socket.SHUT_RDWR)
