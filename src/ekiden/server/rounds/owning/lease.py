"""The leases of claims: renewed until the claim ends, also while the store fails or the loop is blocked.

All that one event loop holds are renewed in one statement. A thread that renews for a blocked event loop gets
the interpreter only now and then: with one statement for each round, most leases would run out before their
turn.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from ekiden.errors import StoreUnavailable
from ekiden.rounds.ledger import Ledger, Renewal
from ekiden.tasks.leases.renewing import Asked, answer_of, is_late, is_sure, newer
from ekiden.tasks.leases.standby import LeaseStore, Standby

__all__ = ["Lease", "RoundLeases"]

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE: Final = 0.005
_SHORTEST_TRY: Final = 0.25


class Lease:
    """The lease of one claim on one round. It is renewed until `end`, or until it is lost."""

    def __init__(self, leases: "RoundLeases", round_id: str, fence: int, keep: float, asked: Asked) -> None:
        self.round_id = round_id
        self.fence = fence
        self.asked = asked
        """When that was asked for which the store has confirmed last. A thread may change this."""
        self._keep = keep
        self._expires = asked.wall + keep
        self.lost = False
        """Whether another worker has taken the round over. Then no step of it may begin here."""
        self.is_ending = False
        self._leases = leases

    @property
    def may_have_run_out(self) -> bool:
        """Whether it was not renewed in time: this process was stopped, or the store was unavailable."""
        return not self._leases.is_sure(self.asked)

    @property
    def is_of_a_closed_loop(self) -> bool:
        """Whether the event loop is closed in which the round was claimed."""
        return self._leases.loop.is_closed()

    def until(self, asked: Asked) -> Renewal:
        """What to ask for now. The round is not forgotten sooner if the clock is set back."""
        self._expires = max(self._expires, asked.wall + self._keep)
        return Renewal(self.fence, self._expires)

    async def renew(self) -> None:
        """Renew it, or find out that it is lost; `StoreUnavailable` if neither can be done now.

        The store may take its time: in an event loop that is busy for longer than a lease, no attempt with a
        limit would ever come to its end.
        """
        if self.round_id not in await self._leases.settle((self,)):
            raise StoreUnavailable(f"the row of round {self.round_id} is being written by somebody else")

    def lose(self) -> None:
        """Another worker has the round."""
        self.lost = True
        self._leases.discard(self)

    def expect_end(self) -> None:
        """The claim is about to be finished or given back: a renewal that fails from now on is not a loss."""
        self.is_ending = True

    def end(self) -> None:
        """Stop renewing it."""
        self.is_ending = True
        self._leases.discard(self)


class RoundLeases:
    """The leases of the rounds that one event loop holds.

    Implements `ekiden.tasks.leases.standby.Leaseholder`.
    """

    def __init__(
        self, ledger: Ledger, *, clock: Callable[[], float], seconds: float, standby: Standby | None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._ledger = ledger
        self._clock = clock
        self._seconds = seconds
        self._soon = max(seconds / 10, _SHORTEST_PAUSE)
        self._standby = standby
        self._held: dict[str, Lease] = {}
        """By the ids of their rounds."""
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Set if a lease was added that cannot wait for the next renewal."""

    def is_sure(self, asked: Asked) -> bool:
        """Whether a lease that was asked for then has certainly not run out. Any thread may ask."""
        return is_sure(asked, self._seconds, loop=self.loop.time(), wall=self._clock())

    def add(self, round_id: str, fence: int, *, keep: float, asked: Asked) -> Lease:
        """Renew the lease of a new claim. `asked` says when the claim was requested."""
        lease = Lease(self, round_id, fence, keep, asked)
        since = self.loop.time() - asked.loop  # The store's reply may have taken long.
        if not self._held:
            # Most rounds end before this, and need no task for the renewal.
            self._timer = self.loop.call_later(max(self._seconds / 3 - since, 0), self._start_renewal)
        elif since > self._seconds / 3:
            self._hurry.set()
        self._held[round_id] = lease
        if self._standby is not None:
            self._standby.add(self)  # Each time: it forgets all when the server stops.
        return lease

    def discard(self, lease: Lease) -> None:
        """Do not renew a lease any more."""
        if self._held.get(lease.round_id) is not lease:
            return
        del self._held[lease.round_id]
        if not self._held:
            if self._standby is not None:
                self._standby.discard(self)
            work, self._timer, self._renewal = (self._timer, self._renewal), None, None
            if not self.loop.is_closed():  # What was left of one that is closed runs no more.
                for each in work:
                    if each is not None:
                        each.cancel()

    # In the event loop

    def _start_renewal(self) -> None:
        self._renewal = self.loop.create_task(self._renew_while_held())

    async def _renew_while_held(self) -> None:
        """Errors do not end this loop: the store may come back."""
        failures = 0
        while True:
            are_all_certain = False
            try:
                are_all_certain = await self._renew_all()
                failures = 0
            except Exception as error:
                failures += 1
                away = isinstance(error, StoreUnavailable | TimeoutError)
                level = logging.DEBUG if failures > 1 else logging.WARNING if away else logging.ERROR
                _log.log(level, "The leases of %d rounds are not renewed yet: %r", len(self._held), error)
            await self._pause(self._seconds / 3 if are_all_certain else self._soon)

    async def _pause(self, seconds: float) -> None:
        """Wait until the next renewal, or until a lease cannot wait for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        self._hurry.clear()

    async def _renew_all(self) -> bool:
        """Renew all, or find out which are lost. False if that is not certain of all: try again soon.

        An attempt that hangs is not awaited: its cancellation may hang, too.
        """
        leases = tuple(self._held.values())
        attempt = self.loop.create_task(self.settle(leases))
        attempt.add_done_callback(_retrieve)
        seconds = max(self._seconds / 3, _SHORTEST_TRY)
        try:
            done, _ = await asyncio.wait({attempt}, timeout=seconds)
            if not done:
                raise TimeoutError(f"the store does not answer within {seconds:g} seconds")
            # What came late is worth little: the store may have written an end that is over already.
            return len(attempt.result()) == len(leases) and not self.is_late()
        finally:
            attempt.cancel()

    async def settle(self, leases: Collection[Lease]) -> Mapping[str, bool]:
        """Renew leases, and note which are lost. Those of rounds that are being written are left out."""
        still_ours = await self._ask(self._ledger, leases)
        for lease in leases:
            if still_ours.get(lease.round_id) is False and not (lease.is_ending or lease.lost):
                lease.lose()
                _log.warning("Round %s was taken over by another worker, or has ended", lease.round_id)
        return still_ours

    # In any thread

    def is_late(self) -> bool:
        """Whether a lease should have been renewed by now."""
        loop, wall = self.loop.time(), self._clock()
        return any(
            is_late(lease.asked, self._seconds, loop=loop, wall=wall) for lease in list(self._held.values())
        )

    async def renew_by(self, store: LeaseStore) -> None:
        """Renew all by another store. What is lost meanwhile is noted when the event loop runs."""
        await self._ask(store, list(self._held.values()))

    async def _ask(self, store: Ledger | LeaseStore, leases: Collection[Lease]) -> Mapping[str, bool]:
        if not leases:
            return {}
        asked = Asked(self.loop.time(), self._clock())
        claims = {lease.round_id: lease.until(asked) for lease in leases}
        still_ours = await answer_of(store.renew(claims, until=asked.wall + self._seconds))
        for lease in leases:
            if still_ours.get(lease.round_id):
                lease.asked = newer(lease.asked, asked)
        return still_ours


def _retrieve(attempt: "asyncio.Task[Mapping[str, bool]]") -> None:
    """Mark the exception of an attempt as seen: asyncio would log it otherwise."""
    if not attempt.cancelled():
        attempt.exception()
