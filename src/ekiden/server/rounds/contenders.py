"""Requests of one process for the same round: one of them asks the store, and the others wait for it.

So a thousand repeats of a round are one caller to the store. What the store answers counts for all of them:
how the round ended, that it belongs to another history, or that the store is unavailable.
"""

import asyncio
from typing import Final

from ekiden.errors import StoreUnavailable
from ekiden.rounds.ledger import Busy, Recorded, Refused

__all__ = ["Contenders", "Contest", "Watch"]

_LONGEST_GAP: Final = 1 / 4
_WATCHED: Final = 1 / 2
"""Both are fractions of the lease's duration."""


class Watch:
    """Finds out whether the owner of a round is alive. A living owner renews its lease while it is watched.

    Only time in which the store answered counts. After a gap, because the store was unavailable or this
    process was stopped, the watch begins again: the owner may have been unable to renew, too.
    """

    def __init__(self) -> None:
        self._owner: Busy | None = None
        self._since = self._last = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether the store has ever named another owner."""
        return self._owner is not None

    def note(self, owner: Busy, now: float, lease: float) -> None:
        """Note that the store has named this owner."""
        if owner != self._owner or now - self._last > lease * _LONGEST_GAP:
            self._owner, self._since = owner, now
        self._last = now

    def interrupted(self) -> None:
        """Note that the store has failed."""
        self._last = float("-inf")

    def dead_owner(self, now: float, lease: float) -> Busy | None:
        """The owner, if it was watched for so long without a renewal that the round can be taken over."""
        is_steady = now - self._last <= lease * _LONGEST_GAP
        return self._owner if is_steady and self._last - self._since >= lease * _WATCHED else None


class Contest:
    """The requests of this process for one round with one history.

    The request that holds `lock` asks the store, or owns the round.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0
        self.watch = Watch()
        self.ended: Recorded | Refused | None = None
        self._failed_at = float("-inf")
        self._problem: StoreUnavailable | None = None

    async def wait(self) -> None:
        """Acquire `lock`. If the store failed while this request waited, raise that error instead."""
        came = asyncio.get_running_loop().time()
        await self.lock.acquire()
        if self._problem is not None and self._failed_at >= came:
            self.lock.release()
            raise StoreUnavailable(str(self._problem)) from self._problem

    def fail(self, problem: StoreUnavailable) -> None:
        """Note that the store is unavailable, for all requests that wait."""
        self._failed_at, self._problem = asyncio.get_running_loop().time(), problem


class Contenders:
    """The rounds that this process runs or waits for; empty if there are none."""

    def __init__(self) -> None:
        self._contests: dict[tuple[str, str], Contest] = {}

    def __len__(self) -> int:
        return len(self._contests)

    def join(self, key: tuple[str, str]) -> Contest:
        """Count one more request for a round. Call `leave` when it is over."""
        contest = self._contests.get(key)
        if contest is None:
            contest = self._contests[key] = Contest()
        contest.members += 1
        return contest

    def leave(self, key: tuple[str, str]) -> None:
        """Count one request fewer for a round."""
        contest = self._contests[key]
        contest.members -= 1
        if contest.members == 0:
            del self._contests[key]
