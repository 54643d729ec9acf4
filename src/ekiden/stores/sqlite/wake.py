"""Word of changes between the processes that share a SQLite file, by sockets beside it.

Every process that listens has a datagram socket of its own in a folder next to the file; who changed
something sends a line to each. Nothing depends on it: a lost signal only means that a worker finds
the change at its next look. Where a system has no such sockets, or the folder is somebody else's,
there are only those looks.
"""

import contextlib
import hashlib
import logging
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

from ekiden.errors import NotPrivate
from ekiden.stores.sqlite.private_folder import PrivateFolder
from ekiden.tasks.store import Signal

__all__ = ["WakeSocket"]

_log = logging.getLogger("ekiden.stores")

_MOST_NAME: Final = 100
"""Bytes that the path of a socket may have; systems allow 104 or 108."""

_COARSE: Final = 100_000_000
"""Nanoseconds."""

_KNOWN_SECONDS: Final = 0.01
"""How long the listeners are taken to be the same: many signals in a row need only one look."""

_TRIES: Final = 5
"""Times that a folder is made which another process removes before there is a socket in it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Signal).decode


class WakeSocket:
    """This process's end: hears the others once `listen` was called, tells them with `tell`."""

    def __init__(self, path: str) -> None:
        self._folder = PrivateFolder(_folder(path))
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._supported = hasattr(socket, "AF_UNIX")
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._others: tuple[str, ...] = ()
        self._seen_at = -1
        self._looked_at = float("-inf")
        self._leave: Callable[[], object] | None = None

    # Hearing

    def listen(self, on_signal: Callable[[Signal], None]) -> None:
        """Call a function, in a thread of its own, for every signal of another process."""
        if not self._supported or self._ear is not None:
            return
        with contextlib.suppress(OSError):
            try:
                ear = self._ear = self._bind()
            except NotPrivate as problem:
                self._distrust(problem)
                return
            # Who never closes its store leaves in good order all the same.
            self._leave = weakref.finalize(self, _leave, self._folder, self._name, os.getpid())
            threading.Thread(target=_hear, args=(ear, on_signal), daemon=True, name="ekiden-wake").start()

    def _bind(self) -> socket.socket:
        for last in (*[False] * (_TRIES - 1), True):
            self._folder.make()
            ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                ear.bind(str(self._folder.path / self._name))
                return ear
            except FileNotFoundError:  # Whoever left as the last has just removed the folder.
                ear.close()
                if last:
                    raise
            except OSError:
                ear.close()
                raise
        raise AssertionError("unreachable")

    def _distrust(self, problem: NotPrivate) -> None:
        """Use no sockets at all: one warning, and from then on only looks."""
        self._supported = False
        _log.warning("Processes that share the store wake one another late: %s", problem)

    def deafen(self) -> None:
        """Hear nothing any more."""
        self._ear = None
        if self._leave is not None:
            self._leave()
            self._leave = None

    # Telling, from the thread that writes

    def tell(self, signal: Signal) -> None:
        """Tell all others."""
        if not self._supported:
            return
        for name in self._listeners():
            if name != self._name:
                self._send(self._folder.path / name, _encode(signal))

    def _listeners(self) -> tuple[str, ...]:
        now = time.monotonic()
        if now - self._looked_at < _KNOWN_SECONDS:
            return self._others
        self._looked_at = now
        try:
            changed = self._folder.look().st_mtime_ns
            if changed != self._seen_at:
                self._others = self._folder.names()
                # The clock of a file system is coarse: a change that is this young may not be the last.
                self._seen_at = changed if time.time_ns() - changed > _COARSE else -1
        except NotPrivate as problem:
            self._others = ()
            self._distrust(problem)
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


def _leave(folder: PrivateFolder, name: str, process: int) -> None:
    """Take the own socket away, and those of the dead; whoever is the last takes the folder with him."""
    if os.getpid() != process:
        return  # A fork of who listens.
    own = folder.path / name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
        last.sendto(b"", str(own))  # The thread closes the socket that it reads from.
    with contextlib.suppress(OSError):
        folder.look()
        own.unlink(missing_ok=True)
        for other in folder.names():
            if _is_dead(folder.path / other):
                (folder.path / other).unlink(missing_ok=True)
    folder.remove()


def _is_dead(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(address))
        except ConnectionRefusedError:
            return address.is_socket()
        except OSError:
            return False
    return False


def _folder(path: str) -> Path:
    """Beside the file; where that path would be too long for a socket, among the temporary files."""
    beside = Path(f"{os.path.realpath(path)}-wake")
    if len(os.fsencode(beside)) + 32 <= _MOST_NAME:
        return beside
    digest = hashlib.blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    return Path(tempfile.gettempdir()) / f"ekiden-{digest}"
