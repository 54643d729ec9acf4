"""stdio, client side: a server that this client starts, and stops."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from ekiden.errors import TooMuch, TransportError
from ekiden.transports.client.channel import ChannelLink

__all__ = ["ProcessLink"]

_log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 5.0
"""How long a server may take to end after its input was closed, and again after it was asked to terminate."""
_LAST_WORD_SECONDS: Final = 1.0
"""How long a server that has closed its output may take to end, so that its exit code can be told."""
_MOST_RUBBISH: Final = 1000
"""Lines in a row that are not messages. A few may be stray prints; so many are not a server's."""


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
        rubbish = 0
        try:
            while line := await stdout.readline():
                rubbish = 0 if line.strip() and self.received(line) else rubbish + 1
                if rubbish > _MOST_RUBBISH:
                    self.lost(TransportError("The server process writes something else than MCP messages"))
                    return self._send(signal.SIGKILL)
            self.lost(TransportError(f"The server process has ended{await self._exit()}"))
        except ValueError:
            self.lost(TooMuch(f"The server sent a line of more than {self._limit} bytes"))
            self._send(signal.SIGKILL)

    async def _exit(self) -> str:
        """How the process ended, in words, as far as it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                return f" with exit code {await self._process.wait()}"
        return ""

    async def close(self) -> None:
        """Close the server's input and wait for its end; one that does not end is made to."""
        await super().close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self._end()
            await asyncio.wait({self._reading}, timeout=_LAST_WORD_SECONDS)  # Its output ends a moment later.
        except asyncio.CancelledError:
            self._send(signal.SIGKILL)  # Nobody waits for it any more, and it is not to be left behind.
            raise
        finally:
            self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _end(self) -> None:
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                _log.warning("The server process does not end; it gets a %s", number.name)
                self._send(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self._process.wait()
                    break

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the server and to what it has started: it leads a process group of its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    # Not by the process object, which would look for its end first, and take it from asyncio.
                    os.killpg(self._process.pid, number)
