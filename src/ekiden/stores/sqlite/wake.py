"""Cross-process wake-ups for one SQLite file, over Unix datagram sockets next to it.

Every process that listens has a socket of its own in a folder beside the file; a process that changed a task
sends a signal to each. Signals are hints: if one is lost, a worker finds the change at its next look. Where
the system has no such sockets, or the folder belongs to another user, there are only those looks.
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

_log = logging.getLogger(__name__)

_MOST_NAME: Final = 100
"""Bytes that the path of a socket may have; systems allow 104 or 108."""

_COARSE: Final = 100_000_000
"""Nanoseconds: how coarse the clock of a file system may be."""

_KNOWN_SECONDS: Final = 0.01
"""Seconds for which the list of listeners is kept: many signals in a row read the folder once."""

_TRIES: Final = 5
"""How often the folder is made again if another process removes it before there is a socket in it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Signal).decode


class WakeSocket:
    """The sockets of this process: `tell` sends signals, and `listen` receives them."""

    def __init__(self, path: str) -> None:
        self._folder = PrivateFolder(_folder(path))
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._supported = hasattr(socket, "AF_UNIX")
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._others: tuple[str, ...] = ()
        self._seen_at = -1
        self._looked_at = float("-inf")
        self._leave: Callable[[], object] | None = None

    # Receiving

    def listen(self, on_signal: Callable[[Signal], None]) -> None:
        """Call a function, in a thread of its own, for every signal of another process."""
        if not self._supported or self._receiver is not None:
            return
        with contextlib.suppress(OSError):
            try:
                receiver = self._receiver = self._bind()
            except NotPrivate as problem:
                self._distrust(problem)
                return
            # Also if `close` is never called.
            self._leave = weakref.finalize(self, _leave, self._folder, self._name, os.getpid())
            threading.Thread(
                target=_receive, args=(receiver, on_signal), daemon=True, name="ekiden-wake"
            ).start()

    def _bind(self) -> socket.socket:
        for last in (*[False] * (_TRIES - 1), True):
            self._folder.make()
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                receiver.bind(str(self._folder.path / self._name))
                return receiver
            except FileNotFoundError:  # The last process that left has just removed the folder.
                receiver.close()
                if last:
                    raise
            except OSError:
                receiver.close()
                raise
        raise AssertionError("unreachable")

    def _distrust(self, problem: NotPrivate) -> None:
        """Stop using sockets, with one warning."""
        self._supported = False
        _log.warning("Processes that share the store notice changes late: %s", problem)

    def stop_listening(self) -> None:
        """Remove the socket of this process. Signals are not received any more."""
        self._receiver = None
        if self._leave is not None:
            self._leave()
            self._leave = None

    # Sending

    def tell(self, signal: Signal) -> None:
        """Send a signal to every other process that listens."""
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
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
            weakref.finalize(self, self._sender.close)
        try:
            self._sender.sendto(data, str(address))
        except (ConnectionRefusedError, FileNotFoundError):
            address.unlink(missing_ok=True)  # Its process has died.
        except OSError:
            pass  # Its queue is full: it finds the change at its next look.

    def close(self) -> None:
        """Close both sockets."""
        self.stop_listening()
        if self._sender is not None:
            self._sender.close()
            self._sender = None


def _receive(receiver: socket.socket, on_signal: Callable[[Signal], None]) -> None:
    with receiver:
        while data := receiver.recv(4096):
            with contextlib.suppress(msgspec.MsgspecError):
                on_signal(_decode(data))


def _leave(folder: PrivateFolder, name: str, process: int) -> None:
    """Remove the socket of this process and those of dead ones, and the folder if it is empty then."""
    if os.getpid() != process:
        return  # A fork of the process that listens.
    own = folder.path / name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
        last.sendto(b"", str(own))  # An empty message ends the thread, which closes its socket.
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
