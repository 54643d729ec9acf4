"""What a handler has done so far, by content and in order.

An entry is found by what the effect *is* (its method and parameters, or its function and arguments,
and which of several identical ones), so a new version of the handler that asks one question more keeps
the answers to all the others. The order of the entries is the order in which the handler was told their
values, and a replay tells them in the same order.
"""

from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ekiden.private_struct import PrivateStruct

__all__ = ["LEFT_BEHIND", "STEP", "UNKNOWN_BRANCH", "Entry", "Journal", "Kind", "fingerprint", "framed"]

Kind: TypeAlias = Literal["answer", "step", "failure", "cut", "again", "draw", "pause", "slept", "manual"]
"""`failure` is a step that raised; `cut` an effect that its handler cut short; `again` a step that is to be
tried again; `draw` a time, an id or a random number; `pause` a checkpoint that was passed; `slept` a sleep
that is over; `manual` what a handler in a task keeps by itself."""

STEP: Final = "s:"
"""How the keys of steps begin."""

UNKNOWN_BRANCH: Final = -2
"""The branch of an entry that was written between two legs. It becomes known when the effect comes up."""

LEFT_BEHIND: Final = -3
"""The branch of tasks that still run beside the `on_complete` steps, when the handler has returned."""

_DIGEST_BYTES: Final = 9
"""72 bits: enough against accidents. A forged collision only harms the forger's own call."""


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def fingerprint(content: bytes) -> str:
    """A short name for content: 12 characters, the same in every process."""
    digest = blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return b2a_base64(digest, newline=False).translate(_URL_SAFE).decode()


def framed(*parts: bytes) -> bytes:
    """Join parts so that different parts never give the same content."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


class Entry(msgspec.Struct, array_like=True, gc=False):
    """One remembered effect."""

    kind: Kind
    digest: str
    """Fingerprint of the question, or of the step's function and arguments: it counts only for these."""
    value: Any
    """Of an effect that was cut: after how many seconds, by how many cancellations, what the handler was told
    last before it began, and the seconds after which it was told other things meanwhile."""
    branch: int = 0
    """Which of the handler's tasks did it: 0 is the handler itself."""
    about: str = ""
    """A step in words, for the log."""


class Journal(PrivateStruct, gc=False):
    """The entries in order."""

    entries: dict[str, Entry] = {}
    backlog: dict[str, None] = {}
    """Keys of the entries of earlier legs that the handler was not told of yet in this one, in order."""
    unseen: dict[str, None] = {}
    """Keys of the entries of earlier legs that have not come up in this one, in order."""
    unsaved: dict[str, Entry] = {}
    """Entries of this leg that no store knows yet, in order."""
    is_last: bool = False
    """Whether no later leg replays this one: its task is cancelled. Whoever cleans up after it is told of all
    that was done, also if the handler was not."""

    @classmethod
    def of(cls, entries: dict[str, Entry]) -> "Journal":
        """A journal of what earlier legs did."""
        return cls(entries, dict.fromkeys(entries), dict.fromkeys(entries))

    def find(self, key: str) -> Entry | None:
        """The entry for `key`, which has now come up."""
        entry = self.entries.get(key)
        if entry is not None:
            self.unseen.pop(key, None)
        return entry

    def add(self, key: str, entry: Entry) -> None:
        """Remember an effect that was done just now; what was known under its key moves to the end."""
        if key in self.entries:
            for known in (self.entries, self.unsaved, self.backlog, self.unseen):
                known.pop(key, None)
        self.entries[key] = self.unsaved[key] = entry

    def move_to_the_end(self, keys: Iterable[str]) -> None:
        """Put known entries behind all others: something else has come before them."""
        for key in keys:
            entry = self.entries.pop(key, None)
            if entry is not None:  # The answers of a parked handler are not in the journal.
                self.unsaved.pop(key, None)
                self.entries[key] = self.unsaved[key] = entry

    def save(self) -> dict[str, Entry]:
        """Take what is not saved yet. The caller must save it, or put it back."""
        taken, self.unsaved = self.unsaved, {}
        return taken

    def agrees_with(self, known: Mapping[str, Entry]) -> bool:
        """Whether it has all of these, and nothing was drawn that was drawn otherwise in them."""
        for key, entry in known.items():
            own = self.entries.get(key)
            if own is None or (own.kind == entry.kind == "draw" and own.value != entry.value):
                return False
        return True

    def missing_steps(self) -> Iterator[str]:
        """Steps that were done in an earlier leg and have not come up in this one."""
        for key in self.backlog:
            if key.startswith(STEP) and key in self.unseen:
                yield key

    def missing_step_of(self, branch: int) -> str | None:
        """One of these that was done by this branch."""
        return next((key for key in self.missing_steps() if self.entries[key].branch == branch), None)

    def overtaken_step(self) -> str | None:
        """A step that has not come up, although a later entry of the same branch has."""
        missing: dict[int, str] = {}
        for key, entry in self.entries.items():
            if key not in self.unseen:
                if entry.branch in missing:
                    return missing[entry.branch]
            elif key.startswith(STEP):
                missing.setdefault(entry.branch, key)
        return None
