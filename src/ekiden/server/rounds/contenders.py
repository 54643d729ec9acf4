"""Those in one process who want the same round: one of them asks the store, the others wait for him.

A thousand repeats of a round are one caller to the store. What it hears is good for all of them: how the
round ended, that it belongs to another history, or that the store is away.
"""

import asyncio
from typing import Final

from ekiden.errors import StoreUnavailable
from ekiden.rounds.ledger import Busy, Recorded, Refused

__all__ = ["Contenders", "Contest", "Watch"]

_LONGEST_GAP: Final = 1 / 4
_WATCHED: Final = 1 / 2
"""Parts of a lease."""


class Watch:
    """Whether the owner of a round lives: he renews his lease well within the time that he is watched.

    Only time in which the store answered counts. After a gap, whether the store was away or this process
    was stopped, the watch begins again: the owner may have had no way to renew either.
    """

    def __init__(self) -> None:
        self._owner: Busy | None = None
        self._since = self._last = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether another owner was seen at all."""
        return self._owner is not None

    def note(self, owner: Busy, now: float, lease: float) -> None:
        """The store has named the owner."""
        if owner != self._owner or now - self._last > lease * _LONGEST_GAP:
            self._owner, self._since = owner, now
        self._last = now

    def interrupted(self) -> None:
        """The store has failed."""
        self._last = float("-inf")

    def given_up(self, now: float, lease: float) -> Busy | None:
        """The owner, if he was watched for long enough to take the round instead of him."""
        is_steady = now - self._last <= lease * _LONGEST_GAP
        return self._owner if is_steady and self._last - self._since >= lease * _WATCHED else None


class Contest:
    """One round with one history, in one process. Whoever holds `lock` asks the store, or owns the round."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0
        self.watch = Watch()
        self.ended: Recorded | Refused | None = None
        self._failed_at = float("-inf")
        self._problem: StoreUnavailable | None = None

    async def wait(self) -> None:
        """Wait until nobody else asks. If the store failed meanwhile, that counts for all who waited."""
        came = asyncio.get_running_loop().time()
        await self.lock.acquire()
        if self._problem is not None and self._failed_at >= came:
            self.lock.release()
            raise StoreUnavailable(str(self._problem)) from self._problem

    def fail(self, problem: StoreUnavailable) -> None:
        """The store is away: nobody who waits needs to find out for himself."""
        self._failed_at, self._problem = asyncio.get_running_loop().time(), problem


class Contenders:
    """The rounds that this process runs or waits for; empty when it does neither."""

    def __init__(self) -> None:
        self._contests: dict[tuple[str, str], Contest] = {}

    def __len__(self) -> int:
        return len(self._contests)

    def join(self, key: tuple[str, str]) -> Contest:
        """Become one of those who want a round; `leave` when that is over."""
        contest = self._contests.get(key)
        if contest is None:
            contest = self._contests[key] = Contest()
        contest.members += 1
        return contest

    def leave(self, key: tuple[str, str]) -> None:
        """One fewer wants the round."""
        contest = self._contests[key]
        contest.members -= 1
        if contest.members == 0:
            del self._contests[key]
