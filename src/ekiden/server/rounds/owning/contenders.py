"""Requests of one process for the same round: one of them asks the store, and the others wait for it.

So a thousand repeats of a round are one caller to the store. What the store answers counts for all of them:
how the round ended, that it belongs to another history, or that the store is unavailable.
"""

import asyncio
import functools
import math
from collections.abc import Callable
from typing import Final

from ekiden.errors import EkidenError, StoreUnavailable
from ekiden.rounds.ledger import Busy, Claim, Claimed, Ledger, Recorded, Refused
from ekiden.server.rounds.owning.enduring import to_the_end
from ekiden.tasks.leases.renewing import SURE_PART

__all__ = ["Contenders", "Contest", "Lookout", "Watch"]

_LONGEST_GAP: Final = 1 / 4
_OVERDUE: Final = 1 / 4
_LOOK: Final = 1 / 10
_STAY: Final = 2.0
"""All of these are fractions, or multiples, of the lease's duration."""
_MOST_WATCHED: Final = 50
"""Rounds that are watched in one process although nobody waits for them."""


class Watch:
    """Finds out whether the owner of a round is alive. A living owner renews its lease while it is watched.

    1. It is watched for as long as an owner that hears of no renewal is sure of its lease. So it is not sure
       any more when it is replaced, whatever the clocks say, and in whichever order its renewals arrived.
    2. A part of that is after the end of its lease. Only then does a store have to write for us: a file that
       is locked can be read, and its owner cannot renew.
    3. Only time in which the store answered counts. After a gap, because the store was unavailable or this
       process was stopped, the watch begins again: the owner may have been unable to renew, too.
    """

    def __init__(self) -> None:
        self._owner: Busy | None = None
        self._since = self._last = 0.0
        self._over_since = math.inf

    @property
    def has_begun(self) -> bool:
        """Whether the store has ever named another owner."""
        return self._owner is not None

    def note(self, owner: Busy, now: float, lease: float, *, is_over: bool) -> None:
        """Note that the store has named this owner, and whether its lease is over, as the store was told."""
        if owner != self._owner or now - self._last > lease * _LONGEST_GAP:
            self._owner, self._since, self._over_since = owner, now, math.inf
        if is_over:
            self._over_since = min(self._over_since, now)
        self._last = now

    def interrupted(self) -> None:
        """Note that the store has failed."""
        self._last = float("-inf")

    def dead_owner(self, now: float, lease: float) -> Busy | None:
        """The owner, if it was watched for so long without a renewal that the round can be taken over."""
        is_steady = now - self._last <= lease * _LONGEST_GAP
        is_silent = self._last - self._since >= lease * SURE_PART
        is_overdue = self._last - self._over_since >= lease * _OVERDUE
        return self._owner if is_steady and is_silent and is_overdue else None


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

    def leave(self, key: tuple[str, str], contest: Contest) -> None:
        """Count one request fewer for a round."""
        contest.members -= 1
        if contest.members == 0 and self._contests.get(key) is contest:  # It may have been forgotten.
            del self._contests[key]

    def forget(self) -> None:
        """Forget all requests: their event loop is closed."""
        self._contests.clear()


class Lookout:
    """Goes on with watching the owner of a round when the last request that waited for it has left.

    Else the owner would never be seen to be dead where clients give up, and repeat their round, before it was
    watched for long enough.
    """

    def __init__(
        self,
        ledger: Ledger,
        contenders: Contenders,
        clock: Callable[[], float],
        *,
        lease: float,
        keep: float,
    ) -> None:
        self._ledger = ledger
        self._contenders = contenders
        self._clock = clock
        self._lease = lease
        self._keep = keep
        self._watching: dict[tuple[str, str], asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._watching)

    def stay(self, key: tuple[str, str], contest: Contest) -> None:
        """Watch the owner of a round for a while, for whoever repeats it."""
        if key in self._watching or len(self._watching) >= _MOST_WATCHED:
            return
        self._contenders.join(key)
        task = self._watching[key] = asyncio.get_running_loop().create_task(self._watch(*key, contest))
        task.add_done_callback(functools.partial(self._left, key, contest))

    def _left(self, key: tuple[str, str], contest: Contest, _: "asyncio.Task[None]") -> None:
        del self._watching[key]
        self._contenders.leave(key, contest)

    async def _watch(self, round_id: str, history: str, contest: Contest) -> None:
        time = asyncio.get_running_loop().time
        until = time() + _STAY * self._lease
        while time() < until:
            if contest.lock.locked():
                until = time() + _STAY * self._lease  # A request is here, and watches by itself.
            else:
                now = self._clock()
                try:
                    found = await self._look(round_id, history, now)
                except EkidenError:
                    contest.watch.interrupted()
                else:
                    if not isinstance(found, Busy):
                        return
                    is_over = found.leased_until <= now
                    contest.watch.note(found, time(), self._lease, is_over=is_over)
            await asyncio.sleep(self._lease * _LOOK)

    async def _look(self, round_id: str, history: str, now: float) -> Claim:
        """Who owns the round. If nobody does, it stays so."""
        return await to_the_end(asyncio.ensure_future(self._ask(round_id, history, now)))

    async def _ask(self, round_id: str, history: str, now: float) -> Claim:
        claim = await self._ledger.claim(
            round_id, history, now=now, lease=self._lease, expires=now + self._keep
        )
        if isinstance(claim, Claimed):
            await self._ledger.release(round_id, claim.fence)
        return claim

    def forget(self) -> None:
        """Forget whom it watches: the event loop is closed."""
        self._watching.clear()

    async def stop(self) -> None:
        """Watch nothing any more."""
        watching = set(self._watching.values())
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)
