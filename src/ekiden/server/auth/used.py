"""Which DPoP proofs were used: each is accepted once, however many there are.

The memory is bounded, and shared fairly. If it is full, the earliest proofs are forgotten of whoever has more
than an equal share of it. What was made no later than a forgotten proof is refused from then on, so that no
proof counts twice. So whoever makes very many proofs shortens the time for which its own ones are good, and
nobody else's.
"""

import heapq

__all__ = ["UsedProofs"]


class _Owned:
    """The proofs of one owner."""

    __slots__ = ("by_time", "floor", "known")

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self.by_time: list[tuple[float, bytes]] = []
        self.floor = float("-inf")
        """Proofs that were made up to here are refused: some of them are forgotten."""


class UsedProofs:
    """Remembers proofs that were made within the last `seconds`: `most` of them, and never twice as many."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._of: dict[str, _Owned] = {}
        self._total = 0
        self._sweep_at = float("-inf")

    def __len__(self) -> int:
        return self._total

    def take(self, owner: str, proof: bytes, made: float, now: float) -> bool:
        """Remember a proof; False if it was used before, or if that is not known any more."""
        if now >= self._sweep_at:
            self._sweep(now)
        owned = self._of.get(owner)
        if owned is None:
            owned = self._of[owner] = _Owned()
        self._forget_old(owned, now)
        if proof in owned.known:
            return False
        if self._total >= self._most and len(owned.known) >= max(1, self._most // len(self._of)):
            owned.floor = max(owned.floor, self._forget_first(owned))
        if made <= owned.floor:
            return False
        owned.known.add(proof)
        heapq.heappush(owned.by_time, (made, proof))
        self._total += 1
        return True

    def _forget_first(self, owned: _Owned) -> float:
        made, proof = heapq.heappop(owned.by_time)
        owned.known.discard(proof)
        self._total -= 1
        return made

    def _forget_old(self, owned: _Owned, now: float) -> None:
        """Forget proofs that are too old to be used again."""
        while owned.by_time and owned.by_time[0][0] + self._seconds < now:
            self._forget_first(owned)

    def _sweep(self, now: float) -> None:
        """Forget the old proofs of all, and those who have no others."""
        self._sweep_at = now + self._seconds
        for owner, owned in tuple(self._of.items()):
            self._forget_old(owned, now)
            if not owned.known and owned.floor + self._seconds < now:
                del self._of[owner]
