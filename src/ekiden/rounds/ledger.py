"""The ledger's port: what makes a repeated round harmless.

A reply can be lost. The client then repeats the round, and without a memory of it every step of
that round would run again. A ledger remembers rounds: who runs one, with which history, the entries that
were committed in it, and how it ended.

A round belongs to one history: a fingerprint of the token and the answers that it is run with. The same
history gets the same reply; any other is refused.

The promise, exactly: a committed step is not run again by any process that shares the ledger. Between
a step's outside effect and its commit there is a gap that only the outside can close: it has the
step's stable key to recognise a repeat by.
"""

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from ekiden.errors import UsageError
from ekiden.rounds.journal import Entry

__all__ = [
    "ABANDONED_SECONDS",
    "RELEASED",
    "Busy",
    "Claim",
    "Claimed",
    "Known",
    "Ledger",
    "Recorded",
    "Refused",
    "Renewal",
    "RoundMemory",
    "RoundRow",
    "Take",
    "Unfinished",
    "decide_claim",
    "decide_look",
    "decode_entry",
    "encode_entry",
    "is_forgettable",
]

RELEASED: Final = 0.0
"""The end of a lease that was given back, or has ended with its round."""

ABANDONED_SECONDS: Final = 86_400.0
"""How long after its lease a round is forgotten whose owner died and that nobody took over."""


class Claimed(msgspec.Struct, frozen=True):
    """The round is ours to run; this was committed by owners before us, in this order."""

    fence: int
    """Grows with every owner: one that has lost the claim cannot commit any more."""
    entries: dict[str, Entry]


class Busy(msgspec.Struct, frozen=True):
    """The round has another owner. Watch whether that changes before you claim it `instead_of` this."""

    fence: int
    leased_until: float


class Recorded(msgspec.Struct, frozen=True):
    """The round has ended before, like this."""

    outcome: bytes


class Refused(msgspec.Struct, frozen=True):
    """The round belongs to another history."""


class Unfinished(msgspec.Struct, frozen=True):
    """The round was begun before, with this history, and has not ended: go on from what was committed."""


class Renewal(msgspec.Struct, frozen=True):
    """What the owner of a round asks for to keep it."""

    fence: int
    expires: float
    """Until when the round is remembered."""


Known: TypeAlias = Recorded | Refused | Unfinished
Claim: TypeAlias = Claimed | Busy | Recorded | Refused


# What a claim comes to: pure, the same for all stores


class RoundRow(msgspec.Struct):
    """A round as a store keeps it."""

    history: str
    fence: int
    leased_until: float
    expires: float
    outcome: bytes | None
    has_entries: bool

    @property
    def is_owned(self) -> bool:
        """Whether it was claimed and neither finished nor released. The owner may have died."""
        return self.outcome is None and self.leased_until != RELEASED


class Take(msgspec.Struct, frozen=True):
    """The round may be claimed: with this fence, and with or without the entries of before."""

    fence: int
    is_fresh: bool


def decide_claim(
    row: RoundRow | None, history: str, now: float, instead_of: Busy | None = None
) -> Take | Busy | Recorded | Refused:
    """What a claim comes to. The store makes a `Take` true in the same transaction."""
    if row is None:
        return Take(1, True)
    if row.expires < now and not row.is_owned:
        return Take(row.fence + 1, True)
    if row.history != history and (row.is_owned or row.outcome is not None or row.has_entries):
        return Refused()
    if row.outcome is not None:
        return Recorded(row.outcome)
    owner = Busy(row.fence, row.leased_until)
    # A lease that has run out says little: the store may have been away, or a clock be wrong. A process that
    # takes over has watched that nobody renewed it, and names what it has watched.
    if row.is_owned and (owner != instead_of or row.leased_until > now):
        return owner
    return Take(row.fence + 1, False)


def decide_look(row: RoundRow | None, history: str, now: float) -> Known | None:
    """What a round must know before it begins, also if it never comes to a step."""
    found = decide_claim(row, history, now)
    if isinstance(found, Take):
        return Unfinished() if row is not None and row.has_entries and not found.is_fresh else None
    return Unfinished() if isinstance(found, Busy) else found


def is_forgettable(row: RoundRow, now: float) -> bool:
    """Whether the round is not needed any more. One that runs is never forgotten."""
    return row.expires < now and (row.outcome is not None or row.leased_until < now - ABANDONED_SECONDS)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """An entry as bytes for a store."""
    return _encoder.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """An entry that a store kept."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the store holds an entry that this version of ekiden cannot read: {error}"
        ) from error


class Ledger(Protocol):
    """Implemented by the stores. Times are seconds since the epoch; nothing is needed after it `expires`.

    `StoreUnavailable` says that the store is away, and that the same may be tried again. `commit`, `finish`
    and `release` can be repeated: what was done already is not done twice.
    """

    shared: bool
    """Whether other processes, and this one after a crash, see the same ledger."""
    waits: bool
    """Whether its methods ever wait. A caller of one that never does cannot be cancelled half way."""

    def is_new(self, round_id: str) -> bool:
        """True if it can be told at once that nothing is known of a round; False if it takes a wait."""
        ...

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended, that it has not ended, or that it belongs to another history. Cheap."""
        ...

    async def claim(
        self,
        round_id: str,
        history: str,
        *,
        now: float,
        lease: float,
        expires: float,
        instead_of: Busy | None = None,
    ) -> Claim:
        """Try to own a round.

        A round that has an owner is handed over only if its lease has run out and it is still exactly as in
        `instead_of`. Pass what earlier claims returned for three quarters of a lease, the last quarter of a
        lease after its end. From that end on a claim waits while the store can only be read, or raises
        `StoreUnavailable`, or names the owner as if it had just renewed: it cannot renew then.
        """
        ...

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> Mapping[str, bool]:
        """Keep claims for longer, by the ids of their rounds. All in one statement: there may be thousands.

        `until` is the new end of their leases. True for each that is kept, False for each that was lost or
        has ended. Leave out a round if somebody is writing its row: the others must not wait for it.
        """
        ...

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries for good, all or none, behind those of before; False if the claim was lost.

        A key that was committed before gets the new entry, and moves to the end.
        """
        ...

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended; False if the claim was lost."""
        ...

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back: the round may be run again at once, from what was committed.

        If nothing was committed, the round is free again, also for another history.
        """
        ...

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal that is too large for a token."""
        ...

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept, if it is still there."""
        ...

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, but no round that runs."""
        ...

    async def close(self) -> None:
        """Release what the store holds."""
        ...


class RoundMemory(Protocol):
    """The ledger as one leg sees it: its own round, claimed when first needed."""

    async def recall(self) -> Mapping[str, Entry]:
        """What earlier owners of this round committed, in order. Claims the round; may end the leg."""
        ...

    def is_sure(self) -> bool:
        """Whether the round is certainly still ours; else `recall` finds out. Any thread may ask."""
        ...

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Remember a step as it ends, and the draws that led to it."""
        ...
