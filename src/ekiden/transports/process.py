"""stdio, client side: a server that this client starts, and stops."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ekiden.errors import TransportError
from ekiden.transports.channel import ChannelLink

__all__ = ["ProcessLink"]

_log = logging.getLogger("ekiden.client")

_GRACE_SECONDS: Final = 5.0
"""How long a server may take to end after its input was closed, and again after it was asked to terminate."""


class ProcessLink(ChannelLink):
    """A link to a child process."""

    def __init__(self, process: asyncio.subprocess.Process, limit: int) -> None:
        super().__init__(self._write_line)
        self._process = process
        self._limit = limit
        self._writing = asyncio.Lock()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | None, limit: int
    ) -> "ProcessLink":
        """Start the server. Its stderr is ours."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                limit=limit,
                # Ctrl-C at our terminal is for us: we tell the server what is cancelled, then close it.
                start_new_session=True,
            )
        except OSError as error:
            raise TransportError(f"Cannot start {command[0]!r}: {error.strerror or error}") from error
        return cls(process, limit)

    async def _write_line(self, message: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        async with self._writing:
            try:
                stdin.write(message + b"\n")
                await stdin.drain()
            except (BrokenPipeError, ConnectionResetError):
                raise TransportError("The server process has ended") from None

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while line := await stdout.readline():
                if line.strip():
                    self.received(line)
            self.lost(TransportError("The server process has ended"))
        except ValueError:
            self.lost(TransportError(f"The server sent a line of more than {self._limit} bytes"))
            self._process.kill()

    async def close(self) -> None:
        """Close the server's input and wait for its end; one that does not end is made to."""
        await super().close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        for stop in (None, self._process.terminate, self._process.kill):
            if stop is not None:
                with contextlib.suppress(ProcessLookupError):
                    stop()
            try:
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self._process.wait()
                break
            except TimeoutError:
                _log.warning("The server process does not end; it is stopped harder")
        await _ended(self._reading)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
