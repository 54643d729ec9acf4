"""Word of changes between the processes that share a SQLite file, by sockets beside it.

Every process that listens has a datagram socket of its own in a folder next to the file; who changed
something sends a line to each. Nothing depends on it: a lost signal only means that a worker finds
the change at its next look. Where a system has no such sockets, there are only those looks.
"""

import contextlib
import hashlib
import os
import secrets
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ekiden.tasks.store import Signal

__all__ = ["WakeSocket"]

_MOST_NAME: Final = 100
"""Bytes that the path of a socket may have; systems allow 104 or 108."""

_COARSE: Final = 100_000_000
"""Nanoseconds."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Signal).decode


class WakeSocket:
    """This process's end: hears the others once `listen` was called, tells them with `tell`."""

    def __init__(self, path: str) -> None:
        self._folder = _folder(path)
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._supported = hasattr(socket, "AF_UNIX")
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._others: tuple[str, ...] = ()
        self._seen_at = -1

    # Hearing

    def listen(self, on_signal: Callable[[Signal], None]) -> None:
        """Call a function, in a thread of its own, for every signal of another process."""
        if not self._supported or self._ear is not None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                ear.bind(str(self._folder / self._name))
            except OSError:
                ear.close()
                raise
            self._ear = ear
            threading.Thread(target=_hear, args=(ear, on_signal), daemon=True, name="ekiden-wake").start()

    def deafen(self) -> None:
        """Hear nothing any more."""
        ear, self._ear = self._ear, None
        if ear is None:
            return
        own = self._folder / self._name
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(own))  # The thread closes the socket that it reads from.
        own.unlink(missing_ok=True)

    # Telling, from the thread that writes

    def tell(self, signal: Signal) -> None:
        """Tell all others."""
        if not self._supported:
            return
        for name in self._listeners():
            if name != self._name:
                self._send(self._folder / name, _encode(signal))

    def _listeners(self) -> tuple[str, ...]:
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._seen_at:
                self._others = tuple(address.name for address in self._folder.iterdir())
                # The clock of a file system is coarse: a change that is this young may not be the last.
                self._seen_at = changed if time.time_ns() - changed > _COARSE else -1
        except OSError:
            self._others = ()
        return self._others

    def _send(self, address: Path, data: bytes) -> None:
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
            weakref.finalize(self, self._mouth.close)
        try:
            self._mouth.sendto(data, str(address))
        except (ConnectionRefusedError, FileNotFoundError):
            address.unlink(missing_ok=True)  # Its process has died.
        except OSError:
            pass  # It is slow to listen: it will look by itself.

    def close(self) -> None:
        """Close both ends."""
        self.deafen()
        if self._mouth is not None:
            self._mouth.close()
            self._mouth = None


def _hear(ear: socket.socket, on_signal: Callable[[Signal], None]) -> None:
    with ear:
        while data := ear.recv(4096):
            with contextlib.suppress(msgspec.MsgspecError):
                on_signal(_decode(data))


def _folder(path: str) -> Path:
    """Beside the file; where that path would be too long for a socket, among the temporary files."""
    beside = Path(f"{os.path.realpath(path)}-wake")
    if len(os.fsencode(beside)) + 32 <= _MOST_NAME:
        return beside
    digest = hashlib.blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    return Path(tempfile.gettempdir()) / f"ekiden-{digest}"
