"""The ledger of rounds in memory: bounded, and lost with the process."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import msgspec

from ekiden.errors import StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import (
    RELEASED,
    Busy,
    Claim,
    Claimed,
    Known,
    Renewal,
    RoundRow,
    Take,
    decide_claim,
    decide_look,
    encode_entry,
    is_forgettable,
)
from ekiden.stores.memory.people import MemoryPeople
from ekiden.stores.memory.stories import MemoryStories
from ekiden.stores.memory.tasks import MemoryTasks

__all__ = ["MemoryStore"]

_MOST_ROUNDS: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most rounds, and the most bytes of rounds and of journals each; the oldest are forgotten first."""


class _Round(RoundRow):
    entries: dict[str, Entry] = msgspec.field(default_factory=dict[str, Entry])
    size: int = 0


class MemoryStore:
    """Implements `ekiden.Store`. For tests, and the default where there is no store.

    When it is full it forgets rounds that have ended, then those that were released, and never one that
    runs: if all of them run, `claim` raises `StoreUnavailable`.
    """

    waits = False
    bus = None
    sessions = None
    another = None

    def __init__(self, *, shared: bool = True) -> None:
        self.shared = shared
        """True if all servers concerned use this object; False for the memory of a single server."""
        self.tasks = MemoryTasks()
        self.people = MemoryPeople()
        self.stories = MemoryStories()
        self._rounds: dict[str, _Round] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._released: OrderedDict[str, None] = OrderedDict()
        self._journals: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._bytes = self._journal_bytes = 0

    # Rounds

    def is_new(self, round_id: str) -> bool:
        """Whether nothing is known of a round."""
        return round_id not in self._rounds

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended, that it has not ended, or that it belongs to another history."""
        return decide_look(self._rounds.get(round_id), history, now)

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
        """Try to own a round."""
        known = self._rounds.get(round_id)
        decided = decide_claim(known, history, now, instead_of)
        if not isinstance(decided, Take):
            return decided
        if known is None:
            self._make_room()
        elif decided.is_fresh:
            self._forget(round_id)
            known = None
        if known is None:
            known = _Round(history, decided.fence, now + lease, expires, None, False)
            self._rounds[round_id] = known
        else:
            self._released.pop(round_id, None)
            known.history, known.fence, known.leased_until = history, decided.fence, now + lease
        return Claimed(known.fence, dict(known.entries))

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
        """Keep claims for longer."""
        owned = {round_id: self._owned(round_id, claim.fence) for round_id, claim in claims.items()}
        for round_id, mine in owned.items():
            if mine is not None:
                mine.leased_until, mine.expires = until, claims[round_id].expires
        return {round_id: mine is not None for round_id, mine in owned.items()}

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        if (mine := self._owned(round_id, fence)) is None:
            return False
        size = 0
        for key, entry in entries.items():
            size += len(key) + len(encode_entry(entry))
            if (before := mine.entries.pop(key, None)) is not None:
                size -= len(key) + len(encode_entry(before))
            mine.entries[key] = entry
        mine.has_entries = bool(mine.entries)
        self._grow(mine, size)
        return True

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        if (mine := self._owned(round_id, fence)) is None:
            done = self._rounds.get(round_id)
            return done is not None and done.fence == fence and done.outcome == outcome
        mine.outcome = outcome
        self._grow(mine, len(outcome))
        self._done[round_id] = None
        return True

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        if (mine := self._owned(round_id, fence)) is not None:
            mine.leased_until = RELEASED
            self._released[round_id] = None

    def _owned(self, round_id: str, fence: int) -> _Round | None:
        known = self._rounds.get(round_id)
        return known if known is not None and known.fence == fence and known.is_owned else None

    # Its bounds

    def _grow(self, known: _Round, size: int) -> None:
        known.size += size
        self._bytes += size
        while self._bytes > _MOST_BYTES and self._forget_oldest():
            pass

    def _make_room(self) -> None:
        """Have room for one more round."""
        while len(self._rounds) >= _MOST_ROUNDS or self._bytes > _MOST_BYTES:
            if not self._forget_oldest():
                raise StoreUnavailable(
                    f"{len(self._rounds)} rounds with {self._bytes} bytes of steps run right now,"
                    " and the store in memory has no room for more"
                )

    def _forget_oldest(self) -> bool:
        """Forget a round that is done, or else one that was released; False if all of them run."""
        for unneeded in (self._done, self._released):
            if unneeded:
                self._forget(next(iter(unneeded)))
                return True
        return False

    def _forget(self, round_id: str) -> None:
        self._bytes -= self._rounds.pop(round_id).size
        self._done.pop(round_id, None)
        self._released.pop(round_id, None)

    # Journals

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        _, before = self._journals.pop(journal_id, (0.0, b""))
        self._journals[journal_id] = (expires, data)
        self._journal_bytes += len(data) - len(before)
        while self._journal_bytes > _MOST_BYTES and len(self._journals) > 1:
            self._forget_journal(next(iter(self._journals)))

    def _forget_journal(self, journal_id: str) -> None:
        self._journal_bytes -= len(self._journals.pop(journal_id)[1])

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        kept = self._journals.get(journal_id)
        return None if kept is None else kept[1]

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        for round_id in [key for key, known in self._rounds.items() if is_forgettable(known, now)]:
            self._forget(round_id)
        for journal_id in [key for key, (expires, _) in self._journals.items() if expires < now]:
            self._forget_journal(journal_id)

    async def migrate(self) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is held."""
