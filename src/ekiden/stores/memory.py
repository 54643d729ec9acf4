"""The ledger in memory: of this process, bounded, gone with it."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import msgspec

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Recorded, Refused
from ekiden.stores.memory_tasks import MemoryTasks

__all__ = ["MemoryStore"]

_MOST_ROUNDS: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024
"""What is remembered of rounds at most, and of journals; the oldest is forgotten first."""


_encode = msgspec.msgpack.Encoder().encode


class _Round(msgspec.Struct):
    answers: str
    fence: int
    leased_until: float
    expires: float
    entries: dict[str, Entry]
    outcome: bytes | None = None
    size: int = 0


class MemoryStore:
    """Implements `ekiden.rounds.ledger.Ledger`. For tests, and the default where there is no store."""

    def __init__(self, *, shared: bool = True) -> None:
        self.shared = shared
        """True says: whoever passed this store in vouches that all servers concerned use it."""
        self.tasks = MemoryTasks()
        self._rounds: OrderedDict[str, _Round] = OrderedDict()
        self._journals: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._bytes = self._journal_bytes = 0

    def peek(self, round_id: str) -> tuple[str, bytes] | None:
        """How a round ended."""
        known = self._rounds.get(round_id)
        return None if known is None or known.outcome is None else (known.answers, known.outcome)

    async def claim(self, round_id: str, answers: str, *, now: float, lease: float, expires: float) -> Claim:
        """Try to own a round."""
        known = self._rounds.get(round_id)
        if known is None or known.expires < now:
            if known is not None:
                self._forget(round_id)
            self._rounds[round_id] = _Round(answers, 1, now + lease, expires, {})
            self._forget_oldest(now)
            return Claimed(1, {})
        if known.answers != answers and (
            known.outcome is not None or known.entries or known.leased_until > now
        ):
            return Refused()
        if known.outcome is not None:
            return Recorded(known.outcome)
        if known.leased_until > now:
            return Busy()
        known.answers = answers
        known.fence += 1
        known.leased_until = now + lease
        return Claimed(known.fence, dict(known.entries))

    async def renew(self, round_id: str, fence: int, *, now: float, lease: float) -> bool:
        """Keep a claim for longer."""
        if (mine := self._owned(round_id, fence)) is None:
            return False
        mine.leased_until = now + lease
        return True

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        if (mine := self._owned(round_id, fence)) is None:
            return False
        mine.entries.update(entries)
        self._grow(mine, len(_encode(dict(entries))))
        return True

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        if (mine := self._owned(round_id, fence)) is None:
            return False
        mine.outcome = outcome
        self._grow(mine, len(outcome))
        return True

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        if (mine := self._owned(round_id, fence)) is not None:
            mine.leased_until = float("-inf")  # Without entries, other answers may claim it now.

    def _owned(self, round_id: str, fence: int) -> _Round | None:
        known = self._rounds.get(round_id)
        return known if known is not None and known.fence == fence and known.outcome is None else None

    def _grow(self, known: _Round, size: int) -> None:
        known.size += size
        self._bytes += size
        while self._bytes > _MOST_BYTES and len(self._rounds) > 1:
            self._forget(next(iter(self._rounds)))

    def _forget_oldest(self, now: float) -> None:
        while len(self._rounds) > 1:
            oldest = next(iter(self._rounds))
            if len(self._rounds) <= _MOST_ROUNDS and self._rounds[oldest].expires >= now:
                break
            self._forget(oldest)

    def _forget(self, round_id: str) -> None:
        self._bytes -= self._rounds.pop(round_id).size

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
        for round_id in [key for key, known in self._rounds.items() if known.expires < now]:
            self._forget(round_id)
        for journal_id in [key for key, (expires, _) in self._journals.items() if expires < now]:
            self._forget_journal(journal_id)

    async def close(self) -> None:
        """Nothing is held."""
