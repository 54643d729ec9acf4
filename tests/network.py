"""A network between a worker and its database that can fall silent."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from scripts.ports import free_port


class Network:
    """Passes bytes on between a port and a database, until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = free_port()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Nothing gets through any more, and nobody is told."""
        self._open.clear()

    @property
    def is_cut(self) -> bool:
        return not self._open.is_set()

    def heal(self) -> None:
        self._open.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:  # Nobody is there: so it is to whoever wants to connect.
            writer.transport.abort()
            return
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


@asynccontextmanager
async def behind_a_network(database: str) -> AsyncGenerator[tuple[Network, str], None]:
    parts = urlsplit(database)
    network = Network(parts.hostname or "", parts.port or 0)
    async with network.running():
        yield network, parts._replace(netloc=f"{parts.username}@127.0.0.1:{network.port}").geturl()
