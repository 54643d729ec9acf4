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

__all__ = ["ProcessLink", "inherited"]

_log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 5.0
"""How long a server may take to end after its input was closed, and again after it was asked to terminate."""
_HURRIED_SECONDS: Final = 1.0
"""The same, if somebody's time is up."""
_LAST_WORD_SECONDS: Final = 1.0
"""How long a server that has closed its output may take to end, so that its exit code can be told."""
_LOOK_SECONDS: Final = 0.05
"""How often to look whether a process has ended whose output somebody else holds open."""
_AT_ONCE: Final = 50
"""Lines that are taken before others have their turn: thousands may have come in one piece."""
_MOST_RUBBISH: Final = 1000
"""Lines in a row that are not messages. A few may be stray prints; so many are not a server's."""

_WINDOWS: Final = (
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
    *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
)
_ELSEWHERE: Final = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
)
_INHERITED: Final = frozenset(_WINDOWS if sys.platform == "win32" else _ELSEWHERE)
"""Where programs, files and temporary files are, who the user is, and how texts and times are written. The
official SDK for Python passes on these, without the language, the time zone and the temporary folder."""


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that every server gets. The others may be secrets, and no business of a server's."""
    return {
        name: value
        for name, value in environment.items()
        # A shell would run what looks like a function of its own.
        if name.upper() in _INHERITED and not value.startswith("()")
    }


class ProcessLink(ChannelLink):
    """A link to a child process."""

    def __init__(
        self, process: asyncio.subprocess.Process, limit: int, most_values: int | None = None
    ) -> None:
        super().__init__(self._write_line, most_values=most_values)
        self._process = process
        self._limit = limit
        self._writing = asyncio.Lock()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        limit: int,
        most_values: int | None = None,
    ) -> "ProcessLink":
        """Start the server. Its stderr is ours; of our environment it gets what is `inherited`, and `env`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**inherited(os.environ), **(env or {})},
                cwd=cwd,
                limit=limit,
                # Ctrl-C at our terminal is for us: we tell the server what is cancelled, then close it.
                start_new_session=True,
            )
        except OSError as error:
            raise TransportError(f"Cannot start {command[0]!r}: {error.strerror or error}") from error
        except ValueError as error:  # A NUL in it, or in its environment.
            raise TransportError(f"Cannot start {command[0]!r}: {error}") from error
        return cls(process, limit, most_values)

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
        lines = rubbish = 0
        try:
            while line := await stdout.readline():
                lines += 1
                if lines % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                rubbish = 0 if line.strip() and await self.hear(line) else rubbish + 1
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

    async def close(self, *, hurry: bool = False) -> None:
        """Close the server's input and wait for its end; one that does not end is made to."""
        await super().close(hurry=hurry)
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self._end(hurry=hurry)
            await self._end_output()
        except asyncio.CancelledError:
            self._send(signal.SIGKILL)  # Nobody waits for it any more, and it is not to be left behind.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await self._ended()
            raise
        finally:
            self._reading.cancel()
            # A process that has left the group may hold our pipe. Nothing public closes it.
            self._process._transport.close()  # type: ignore[attr-defined]  # pyright: ignore  # noqa: SLF001
        await asyncio.wait({self._reading})

    async def _end_output(self) -> None:
        """Wait for the end of the output, a moment later. Who holds it open for longer was left behind."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.wait({self._reading}, timeout=_LAST_WORD_SECONDS)
            if self._reading.done():
                return
            self._send_to_group(number)

    async def _ended(self) -> None:
        """Wait for the end of the process alone: until Python 3.12, `wait` waits for its output too."""
        waiting = asyncio.create_task(self._process.wait())
        try:
            while self._process.returncode is None:
                await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
        finally:
            waiting.cancel()

    async def _end(self, *, hurry: bool) -> None:
        seconds = _HURRIED_SECONDS if hurry else _GRACE_SECONDS
        ending = asyncio.create_task(self._ended())
        asked = asyncio.create_task(self.asked_in_vain.wait())
        try:
            await asyncio.wait({ending, asked}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if ending.done():
                    return
                # One that waits for our answer, or gets less time than usual, may well be in order.
                level = logging.DEBUG if asked.done() or hurry else logging.WARNING
                _log.log(level, "The server process does not end; it gets a %s", number.name)
                self._send(number)
                # Nothing survives a SIGKILL: only the machine may be slow to say so.
                await asyncio.wait({ending}, timeout=seconds if number == signal.SIGTERM else _GRACE_SECONDS)
        finally:
            ending.cancel()
            asked.cancel()

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the server and to what it has started."""
        if self._process.returncode is None:
            self._send_to_group(number)

    def _send_to_group(self, number: signal.Signals) -> None:
        """The same, also if the server has ended: it leads a process group of its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                # Not by the process object, which would look for its end first, and take it from asyncio.
                os.killpg(self._process.pid, number)
