"""The ledger's port: what makes a repeated round harmless.

A reply can be lost. The client then repeats the round, and without a memory of it every step of
that round would run again. A ledger remembers rounds by (flow, round): who is running it, with
which answers, the steps it has committed, and how it ended.

The promise, exactly: a committed step is not run again by any process that shares the ledger. Between
a step's outside effect and its commit there is a gap that only the outside can close: it has the
step's stable key to recognise a repeat by.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import msgspec

from ekiden.rounds.journal import Entry

__all__ = ["Busy", "Claim", "Claimed", "Ledger", "Recorded", "Refused", "RoundMemory"]


class Claimed(msgspec.Struct, frozen=True):
    """The round is ours to run; this was committed by owners before us."""

    fence: int
    """Grows with every owner: one who lost the claim commits nothing any more."""
    entries: dict[str, Entry]


class Busy(msgspec.Struct, frozen=True):
    """Someone else runs the round; ask again after a while."""


class Recorded(msgspec.Struct, frozen=True):
    """The round has ended before, like this."""

    outcome: bytes


class Refused(msgspec.Struct, frozen=True):
    """The round was run with other answers."""


Claim: TypeAlias = Claimed | Busy | Recorded | Refused


class Ledger(Protocol):
    """Implemented by the stores. Times are seconds since the epoch; nothing is needed after it `expires`."""

    shared: bool
    """Whether other processes, and this one after a crash, see the same ledger."""

    def peek(self, round_id: str) -> tuple[str, bytes] | None:
        """The answers that a round was run with, and how it ended, where that can be told without waiting."""
        ...

    async def claim(self, round_id: str, answers: str, *, now: float, lease: float, expires: float) -> Claim:
        """Try to own a round. `answers` is the fingerprint of the answers that it is run with."""
        ...

    async def renew(self, round_id: str, fence: int, *, now: float, lease: float) -> bool:
        """Keep a claim for longer; False if it was lost."""
        ...

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries for good, all or none; False if the claim was lost, and then none were."""
        ...

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended; False if the claim was lost."""
        ...

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back: the round may be run again at once, from what was committed.

        Where nothing was, the claim has never been: other answers are as good as these.
        """
        ...

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal that is too large for a token."""
        ...

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept, if it is still there."""
        ...

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        ...

    async def close(self) -> None:
        """Release what the store holds."""
        ...


class RoundMemory(Protocol):
    """The ledger as one leg sees it: its own round, claimed when first needed."""

    async def recall(self) -> Mapping[str, Entry]:
        """What earlier attempts at this round committed. Claims the round; may end the leg."""
        ...

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Remember a step as it ends, and the draws that led to it."""
        ...
