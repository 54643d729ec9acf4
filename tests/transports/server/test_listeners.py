"""How many connections are accepted in one pass of the event loop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ekiden.server.serving.http import _own_listeners
from ekiden.server.serving.loop import new_event_loop
from ekiden.transports.server.http1.crowd import Crowd
from ekiden.transports.server.legacy.relay import UnixRelay
from tests.passes import Passes
from tests.serving import PATIENCE

CLIENTS = 128


async def _on_tcp(
    make: Callable[[], asyncio.BaseProtocol], folder: str
) -> tuple[Any, socket.AddressFamily, Any]:
    loop = asyncio.get_running_loop()
    with _own_listeners(loop, Crowd(1.0, None, None)):
        server = await loop.create_server(make, host="127.0.0.1", port=0, backlog=2048)
    return server, socket.AF_INET, server.sockets[0].getsockname()


async def _on_a_unix_socket(
    make: Callable[[], asyncio.BaseProtocol], folder: str
) -> tuple[Any, socket.AddressFamily, Any]:
    server = await UnixRelay(folder, "01234567").listen(make)
    return server, socket.AF_UNIX, str(Path(folder) / "01234567")


@pytest.mark.parametrize("listen", [_on_tcp, _on_a_unix_socket])
def test_who_connects_behind_many_others_is_not_behind_as_many_passes(
    listen: Callable[[Any, str], Awaitable[tuple[Any, socket.AddressFamily, Any]]], tmp_path: Path
) -> None:
    accepted: list[asyncio.BaseTransport] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def count() -> int:
        server, family, address = await listen(Protocol, str(tmp_path))
        clients = [socket.socket(family, socket.SOCK_STREAM) for _ in range(CLIENTS)]
        try:
            for client in clients:
                client.connect(address)
            with (passes := Passes()).counted():
                async with asyncio.timeout(PATIENCE):
                    while len(accepted) < CLIENTS:
                        await asyncio.sleep(0)
            return passes.count
        finally:
            for client in clients:
                client.close()
            for transport in accepted:
                transport.close()
            server.close()
            await asyncio.wait_for(server.wait_closed(), PATIENCE)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(count()) < CLIENTS // 4
