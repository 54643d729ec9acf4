"""Where a server's keys come from, and how it notices that they have changed, without a restart.

A file is looked at once a second while it is used, and a function is called every ten seconds. Both are also
asked when a token comes whose key is not known: another process may have seen the change first. A file that
is written in place, instead of being replaced, counts once nobody has written it for a second. New keys that
cannot be used change nothing: the server goes on with those that it has, and says so in the log.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from ekiden.errors import UsageError
from ekiden.server.sealing.keys import GivenSealer, KeyRing, TokenSealer, find_keys

__all__ = ["KeySource", "Keys"]

_log = logging.getLogger(__name__)

Secrets: TypeAlias = Iterable[bytes | str] | Path | Callable[[], Iterable[bytes | str]]
Keys: TypeAlias = Secrets | TokenSealer
"""Keys, a file of them, or a function that returns them; or what seals tokens without them."""

_FILE_SECONDS: Final = 1.0
"""How often a file is looked at: one `stat` costs next to nothing."""
_WRITING_SECONDS: Final = 1.0
"""How long a file must have been left alone that is written in place: it could be read half."""
_FUNCTION_SECONDS: Final = 10.0
"""How often a function is called: it may ask a service."""
_FUNCTION_LEAST_SECONDS: Final = 1.0
"""How often it is called at most, however many unknown tokens come: anybody can send them."""


class KeySource:
    """Call it for the ring. It finds the keys when it is first called, and looks again where they may change.

    `warn` says whether to warn of keys that are lost with this process.
    """

    def __init__(self, keys: Keys | None, *, warn: Callable[[], bool]) -> None:
        self._given: Secrets | None = None if isinstance(keys, TokenSealer) else keys
        self._sealer = GivenSealer(keys) if isinstance(keys, TokenSealer) else None
        self._warn = warn
        self._leader: KeySource | None = None
        self._ring: KeyRing | None = None
        self._changing: Path | Callable[[], Iterable[bytes | str]] | None = None
        """Where keys may change; None if they cannot."""
        self._seen: _Stamp = None
        """The file as it was when it was read last."""
        self._look_at = self._looked_at = 0.0

    def follow(self, leader: "KeySource") -> None:
        """Use the keys of another server, unless there are some of its own."""
        if self._given is None and self._sealer is None and self._leader is None:
            self._leader = leader

    def __call__(self) -> KeyRing:
        """The keys as they are now."""
        if self._leader is not None:
            return self._leader()
        if self._ring is None:
            self._find()
        elif self._changing is not None and time.monotonic() >= self._look_at:
            self._look()
        assert self._ring is not None
        return self._ring

    @property
    def sealer(self) -> Callable[[], TokenSealer]:
        """Call it for what seals tokens: these keys, or the sealer that was given in their place."""
        # Keys that were given are not replaced by those of another server.
        return self._find_sealer if self._given is None else self.__call__

    def _find_sealer(self) -> TokenSealer:
        if self._leader is not None:
            return self._leader.sealer()
        return self() if self._sealer is None else self._sealer

    def check(self, *, seal_store: bool) -> None:
        """Refuse bad keys that were given now, not when they are first needed."""
        if self._sealer is not None and seal_store:
            raise UsageError("seal_store=True needs keys= as secrets: a sealer of tokens seals no stores")
        if self._given is not None:
            self()

    @property
    def can_change(self) -> bool:
        """Whether it is worth looking again."""
        if self._leader is not None:
            return self._leader.can_change
        return self._changing is not None or _changing(_named(self._given)) is not None

    def renew(self) -> None:
        """Read the keys again, whether or not their file seems to have changed."""
        self._seen = None
        if self._changing is not None:
            self._look()

    def _find(self) -> None:
        """Read the keys for the first time. Those that cannot be used are an error now."""
        keys = _named(self._given)
        self._changing = _changing(keys)
        self._note()
        self._take(find_keys(keys() if callable(keys) else keys, warn=self._warn()))

    def _note(self) -> None:
        """Remember when the keys were read, and from what."""
        now = time.monotonic()
        self._looked_at = now
        self._look_at = now + (_FILE_SECONDS if isinstance(self._changing, Path) else _FUNCTION_SECONDS)
        self._seen = _stamp(self._changing)

    def _take(self, ring: KeyRing) -> None:
        if self._changing is not None:
            ring.look_for = self._look_for
        self._ring = ring

    def _look(self) -> None:
        """Read the keys again, unless their file is as it was."""
        keys, seen = self._changing, self._seen
        assert keys is not None
        self._note()
        if seen is not None and seen == self._seen:
            return
        if _is_being_written(seen, self._seen):
            self._seen = seen
            return
        try:
            ring = find_keys(keys() if callable(keys) else keys)
        except Exception as error:  # A function may raise anything.
            _log.error("The new keys cannot be used, so the old ones stay: %s", error)
            return
        if self._ring is None or ring.ids != self._ring.ids:
            _log.info("The keys have changed: %s", ", ".join(ring.ids))
        self._take(ring)

    def _look_for(self, head: str) -> Any:
        """A key that was not in the ring: perhaps it is new."""
        too_soon = time.monotonic() - self._looked_at < _FUNCTION_LEAST_SECONDS
        if not too_soon or isinstance(self._changing, Path):
            self._look()
        return None if self._ring is None else self._ring.known(head)


def _named(keys: Secrets | None) -> Secrets | None:
    """The keys that were given, else the file that the environment names."""
    path = os.environ.get("EKIDEN_KEYS_FILE")
    return Path(path) if keys is None and path and not os.environ.get("EKIDEN_KEYS") else keys


def _changing(keys: Secrets | None) -> Path | Callable[[], Iterable[bytes | str]] | None:
    return keys if isinstance(keys, Path) or callable(keys) else None


_Stamp: TypeAlias = tuple[int, int, int] | None
"""When a file was written, its size and its inode; zeros if it is gone, None for what is not a file."""


def _is_being_written(before: _Stamp, now: _Stamp) -> bool:
    """Whether a file has changed in place, and only just."""
    if before is None or now is None or before[2] != now[2]:
        return False
    return abs(time.time() - now[0] / 1e9) < _WRITING_SECONDS


def _stamp(changing: object) -> _Stamp:
    """What changes when a file is written or replaced."""
    if not isinstance(changing, Path):
        return None
    try:
        found = changing.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
