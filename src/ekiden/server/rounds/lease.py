"""The lease of a claim: renewed until the claim ends, also while the store fails."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ekiden.rounds.ledger import Ledger

__all__ = ["Lease"]

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE: Final = 0.005
_SHORTEST_TRY: Final = 0.25


class Lease:
    """The lease of one claim on one round. It is renewed until `end`, or until it is lost."""

    def __init__(
        self,
        ledger: Ledger,
        round_id: str,
        fence: int,
        *,
        clock: Callable[[], float],
        seconds: float,
        keep: float,
        asked_at: float,
    ) -> None:
        self.lost = False
        """Whether another worker has taken the round over. Then no step of it may begin here."""
        self._ledger = ledger
        self._round_id = round_id
        self._fence = fence
        self._clock = clock
        self._seconds = seconds
        self._keep = keep
        self._renewed_at = asked_at
        self._loop = asyncio.get_running_loop()
        self._renewal: asyncio.Task[None] | None = None
        self._is_over = False
        # Most rounds end before this, and need no task for the renewal.
        self._timer = self._loop.call_later(seconds / 3, self._start_renewal)

    @property
    def may_have_run_out(self) -> bool:
        """Whether it was not renewed in time: this process was stopped, or the store was unavailable."""
        return self._loop.time() - self._renewed_at > self._seconds

    def _start_renewal(self) -> None:
        self._renewal = self._loop.create_task(self._renew_until_lost())

    async def _renew_until_lost(self) -> None:
        """Errors do not end this loop: the store may come back."""
        failures = 0
        while not self.lost:
            pause = self._seconds / 3
            try:
                await self._try(max(self._seconds / 3, _SHORTEST_TRY))
                failures = 0
            except Exception as error:
                pause = max(self._seconds / 10, _SHORTEST_PAUSE)
                failures += 1
                level = logging.WARNING if failures == 1 else logging.DEBUG
                _log.log(level, "The lease of round %s is not renewed yet: %r", self._round_id, error)
            await asyncio.sleep(pause)

    async def _try(self, seconds: float) -> None:
        """Renew it within `seconds`. An attempt that hangs is not awaited: its cancellation may hang, too."""
        attempt = self._loop.create_task(self.renew())
        attempt.add_done_callback(_retrieve)
        try:
            done, _ = await asyncio.wait({attempt}, timeout=seconds)
            if not done:
                raise TimeoutError(f"the store does not answer within {seconds:g} seconds")
            attempt.result()
        finally:
            attempt.cancel()

    async def renew(self) -> None:
        """Renew it, or find out that it is lost."""
        asked_at, now = self._loop.time(), self._clock()
        if await self._ledger.renew(
            self._round_id, self._fence, now=now, lease=self._seconds, expires=now + self._keep
        ):
            self._renewed_at = asked_at
        elif not self._is_over:
            self.lost = True
            _log.warning("Round %s was taken over by another worker", self._round_id)

    def end(self) -> None:
        """Stop renewing it."""
        self._is_over = True
        self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()


def _retrieve(attempt: "asyncio.Task[None]") -> None:
    """Mark the exception of an attempt as seen: asyncio would log it otherwise."""
    if not attempt.cancelled():
        attempt.exception()
