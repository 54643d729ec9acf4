"""What a handler has done so far, addressed by content.

An entry is found by what the effect *is* (its method and parameters, or its name and arguments,
and which of several identical ones), never by when it came. So concurrent branches find their own
entries in whatever order they run, and a new version of the handler that asks one question more
keeps the answers to all the others.
"""

from binascii import b2a_base64
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ekiden.opaque import Opaque

__all__ = ["Entry", "Journal", "Kind", "fingerprint", "framed"]

Kind: TypeAlias = Literal["answer", "step", "failure", "cut", "again", "draw", "pause", "manual"]
"""`failure` is a step that raised, `cut` one that its handler cut short, `again` one that is to be tried
again; `draw` a time, an id or a random number; `pause` a checkpoint that was passed; `manual` what a
handler in a task keeps by itself."""

_STEPS: Final = ("step", "failure", "cut")

_DIGEST_BYTES: Final = 9
"""72 bits: an author's effects never collide by chance, and nobody gains by a collision of his own making."""


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def fingerprint(content: bytes) -> str:
    """A short name for content: 12 characters, the same in every process."""
    digest = blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return b2a_base64(digest, newline=False).translate(_URL_SAFE).decode()


def framed(*parts: bytes) -> bytes:
    """Parts as one content: what one of them says is never taken for another's."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


class Entry(msgspec.Struct, array_like=True):
    """One remembered effect."""

    kind: Kind
    digest: str
    """Fingerprint of the question, or of the step's arguments: the entry counts only for these."""
    value: Any
    in_order: bool
    """Whether the handler's own task did it, rather than a branch: such entries have a total order."""


class Journal(Opaque):
    """The entries in the order in which they were made."""

    entries: dict[str, Entry] = {}
    seen: set[str] = set()
    """Keys of the entries that came up in this leg."""

    def find(self, key: str) -> Entry | None:
        """The entry for `key`, which has now come up."""
        entry = self.entries.get(key)
        if entry is not None:
            self.seen.add(key)
        return entry

    def add(self, key: str, entry: Entry) -> None:
        """Remember an effect that was done just now."""
        self.entries.pop(key, None)  # A question that was reworded and answered anew moves to the end.
        self.entries[key] = entry
        self.seen.add(key)

    def missing_steps(self) -> Iterator[str]:
        """Steps that were done in an earlier leg and have not come up in this one."""
        for key, entry in self.entries.items():
            if entry.kind in _STEPS and key not in self.seen:
                yield key

    def overtaken_step(self) -> str | None:
        """A step of the handler's own task that has not come up, although a later entry of it has."""
        missing: str | None = None
        for key, entry in self.entries.items():
            if not entry.in_order:
                continue
            if key in self.seen:
                if missing is not None:
                    return missing
            elif missing is None and entry.kind in _STEPS:
                missing = key
        return None
