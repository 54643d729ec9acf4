"""Messages between the processes of one machine, by Unix datagram sockets in a private folder.

Every process that listens has a socket of its own in the folder; a sender finds the others by reading it. A
listener looks now and then whether its socket is still there: something else may have removed it. A sender
that keeps messages for a listener, because its queue is full, leaves a mark in the folder. If it dies,
the mark grows old, and the listener knows that it has missed something.

Where the system has no such sockets, or the folder belongs to another user, nothing is sent and nothing is
received.
"""

import contextlib
import enum
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

from ekiden.bus.private_folder import PrivateFolder
from ekiden.signals import NotPrivate

__all__ = ["MOST_BYTES", "Datagrams", "Sent", "folder_beside"]

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 16 * 1024
"""Bytes of a message."""

_MOST_NAME: Final = 100
"""Bytes that the path of a socket may have; systems allow 104 or 108."""

_COARSE: Final = 100_000_000
"""Nanoseconds: how coarse the clock of a file system may be."""

_LOOK_SECONDS: Final = 1.0
"""How often a listener looks at its socket and for marks."""

_OLD_SECONDS: Final = 3.0
"""A mark that was not renewed for this long is of a sender that will send no more."""

_LATE: Final = ".late"
"""How the names of marks end."""

_TRIES: Final = 5
"""How often the folder is made again if another process removes it before there is a socket in it."""


class Sent(enum.Enum):
    """What became of a message to one listener."""

    YES = enum.auto()
    FULL = enum.auto()
    """Its queue is full: it may be sent later."""
    GONE = enum.auto()
    """Its process has died."""


class Datagrams:
    """The sockets of this process. `warning` is logged, once, if the folder cannot be trusted.

    The list of listeners is kept for `known_seconds`, so that many messages in a row read the folder once.
    """

    def __init__(self, folder: Path, *, warning: str, known_seconds: float = 0.0) -> None:
        self._folder = PrivateFolder(folder)
        self._warning = warning
        self._known_seconds = known_seconds
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._supported = hasattr(socket, "AF_UNIX")
        self._receiver: _Receiver | None = None
        self._sender: socket.socket | None = None
        self._others: tuple[str, ...] = ()
        self._seen_at = -1
        self._looked_at = float("-inf")
        self._leave: Callable[[], object] | None = None

    # Receiving

    def listen(
        self, on_message: Callable[[bytes], None], on_missed: Callable[[], None] = lambda: None
    ) -> None:
        """Call a function, in a thread of its own, for every message of another process.

        `on_missed` is called, in that thread, when messages may have been lost.
        """
        if not self._supported or self._receiver is not None:
            return
        with contextlib.suppress(OSError):
            try:
                receiver = self._receiver = _Receiver(self._folder, self._name)
            except NotPrivate as problem:
                self._distrust(problem)
                return
            # Also if `close` is never called.
            self._leave = weakref.finalize(self, _leave, receiver, os.getpid())
            threading.Thread(
                target=receiver.run, args=(on_message, on_missed), daemon=True, name="ekiden-wake"
            ).start()

    def _distrust(self, problem: NotPrivate) -> None:
        """Stop using sockets, with one warning."""
        self._supported = False
        _log.warning("%s: %s", self._warning, problem)

    def stop_listening(self) -> None:
        """Remove the socket of this process. Nothing is received any more."""
        self._receiver = None
        if self._leave is not None:
            self._leave()
            self._leave = None

    # Sending

    def others(self) -> list[str]:
        """The names of all other processes that listen."""
        return [name for name in self._listeners() if name != self._name] if self._supported else []

    def _listeners(self) -> tuple[str, ...]:
        now = time.monotonic()
        if now - self._looked_at < self._known_seconds:
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

    def send(self, name: str, message: bytes) -> Sent:
        """Send a message to one of the others. Never waits."""
        address = self._folder.path / name
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
            weakref.finalize(self, self._sender.close)
        try:
            self._sender.sendto(message, str(address))
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(OSError):  # Something else may lie there by now.
                address.unlink()
            return Sent.GONE
        except OSError:
            return Sent.FULL
        return Sent.YES

    def mark_late(self, name: str) -> None:
        """Remember, beyond the end of this process, that messages wait here for a listener; repeat it while
        they do."""
        with contextlib.suppress(OSError):
            self._folder.look()
            self._mark(name).touch()

    def unmark_late(self, name: str) -> None:
        """No message waits for this listener any more."""
        with contextlib.suppress(OSError):
            self._mark(name).unlink(missing_ok=True)

    def _mark(self, name: str) -> Path:
        return self._folder.path / f"{name}.{self._name}{_LATE}"

    def close(self) -> None:
        """Close both sockets, and remove those of processes that were killed."""
        self.stop_listening()
        _tidy(self._folder)
        if self._sender is not None:
            self._sender.close()
            self._sender = None


class _Receiver:
    """The socket on which a process listens. Its thread reads it; another thread may `end` it."""

    def __init__(self, folder: PrivateFolder, name: str) -> None:
        self.folder = folder
        self.address = folder.path / name
        self._has_ended = threading.Event()
        self._socket, self._inode = self._bound()

    def _bound(self) -> tuple[socket.socket, int]:
        for last in (*[False] * (_TRIES - 1), True):
            self.folder.make()
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                receiver.bind(str(self.address))
                receiver.settimeout(_LOOK_SECONDS)
                return receiver, self.address.lstat().st_ino
            except FileNotFoundError:  # The last process that left has just removed the folder.
                receiver.close()
                if last:
                    raise
            except OSError:
                receiver.close()
                raise
        raise AssertionError("unreachable")

    def run(self, on_message: Callable[[bytes], None], on_missed: Callable[[], None]) -> None:
        """Receive, until an empty message comes or it was ended."""
        looked_at = time.monotonic()
        while not self._has_ended.is_set():
            with contextlib.suppress(TimeoutError):
                if not (message := self._socket.recv(MOST_BYTES)):
                    break
                on_message(message)
            if time.monotonic() - looked_at >= _LOOK_SECONDS:
                with contextlib.suppress(OSError):
                    if self._was_removed() or self._has_old_marks():
                        on_missed()
                looked_at = time.monotonic()
        self._socket.close()

    def _was_removed(self) -> bool:
        """Whether something else has removed the socket. Then there is a new one."""
        with contextlib.suppress(FileNotFoundError):
            if self.address.lstat().st_ino == self._inode:
                return False
            self.address.unlink()
        replaced = self._socket
        self._socket, self._inode = self._bound()
        replaced.close()
        return True

    def _has_old_marks(self) -> bool:
        """Whether a sender is gone that kept messages for this listener."""
        old = [mark for mark in self.folder.path.glob(f"{self.address.name}.*{_LATE}") if _is_old(mark)]
        for mark in old:
            mark.unlink(missing_ok=True)
        return bool(old)

    def end(self) -> None:
        """Let the thread end, and remove the socket."""
        self._has_ended.set()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self.address))  # An empty message ends the thread, which closes its socket.
        with contextlib.suppress(OSError):
            self.folder.look()
            self.address.unlink(missing_ok=True)


def _is_old(mark: Path) -> bool:
    try:
        return time.time() - mark.lstat().st_mtime > _OLD_SECONDS
    except FileNotFoundError:
        return False


def _leave(receiver: _Receiver, process: int) -> None:
    """Remove the socket of this process, and tidy up."""
    if os.getpid() != process:
        return  # A fork of the process that listens.
    receiver.end()
    _tidy(receiver.folder)


def _tidy(folder: PrivateFolder) -> None:
    """Remove the sockets of dead processes with their marks, and the folder if it is empty then."""
    with contextlib.suppress(OSError):
        folder.look()
        for other in folder.names():
            if _is_dead(folder.path / other):
                (folder.path / other).unlink(missing_ok=True)
        listeners = folder.names()
        for mark in folder.path.glob(f"*.*{_LATE}"):
            if mark.name.partition(".")[0] not in listeners:
                mark.unlink(missing_ok=True)
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


def folder_beside(path: str, ending: str) -> Path:
    """Beside a file; where that path would be too long for a socket, among the temporary files."""
    beside = Path(f"{os.path.realpath(path)}-{ending}")
    if len(os.fsencode(beside)) + 32 <= _MOST_NAME:
        return beside
    digest = hashlib.blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    return Path(tempfile.gettempdir()) / f"ekiden-{digest}"
