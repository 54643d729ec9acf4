"""What rounds of a process share that run once: the ledger, repeats that wait, how long a lease is."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Final

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.rounds.ledger import Ledger
from ekiden.server.rounds.owning.contenders import Contenders, Lookout
from ekiden.server.rounds.owning.lease import Lease, RoundLeases
from ekiden.server.sealing.room import Room
from ekiden.tasks.leases.renewing import Asked
from ekiden.tasks.leases.standby import Standby
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES

__all__ = ["Once"]

_log = logging.getLogger(__name__)

_PURGE_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 1.0
"""How long a server that stops waits until what has expired is removed."""
_RENEW: Final = "`renew` of the store must take many claims at once, as in `ekiden.rounds.ledger.Ledger`"


class Once:
    """The rounds that this process runs or waits for."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Callable[[], float],
        *,
        lease: float,
        keep: float,
        room: Room | None = None,
        result_bytes: int = MOST_RESULT_BYTES,
        standby: Standby | None = None,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.lease = lease
        self.keep = keep
        """How long a round is remembered that does not say so itself."""
        self.room = room
        """What the rounds of each principal may take of the store; None if that is not limited."""
        self.result_bytes = result_bytes
        """The longest outcome that is remembered, and sent."""
        self.contenders = Contenders()
        self.lookout = Lookout(ledger, self.contenders, clock, lease=lease, keep=keep)
        self.standby = standby
        """Renews leases while the event loop is blocked; None if nobody else could take a round over."""
        self.is_stopping = False
        """Set when the server stops: from then on no round waits for an unavailable store."""
        self._purged_at = clock()
        self._tidying: asyncio.Task[None] | None = None
        self._leases: dict[asyncio.AbstractEventLoop, RoundLeases] = {}
        """Mostly of one event loop."""

    def new_lease(self, round_id: str, fence: int, asked: Asked, keep: float) -> Lease:
        """The lease of a new claim. `asked` says when the claim was requested."""
        loop = asyncio.get_running_loop()
        leases = self._leases.get(loop)
        if leases is None:
            self._leases = {loop: held for loop, held in self._leases.items() if not loop.is_closed()}
            leases = self._leases[loop] = RoundLeases(
                self.ledger, clock=self.clock, seconds=self.lease, standby=self.standby
            )
        return leases.add(round_id, fence, keep=keep, asked=asked)

    def forget(self) -> None:
        """Forget what belonged to an event loop that is closed: nobody is left there to end it."""
        self.contenders.forget()
        self.lookout.forget()
        self._leases.clear()
        self._tidying = None

    async def stop(self) -> None:
        """End what goes on without a request."""
        if self._tidying is not None:
            # Where servers live for one request, nothing would ever be removed if it was cut short at once.
            await asyncio.wait({self._tidying}, timeout=_STOP_SECONDS)
            self._tidying.cancel()
            await asyncio.wait({self._tidying})
        await self.lookout.stop()

    async def check(self) -> None:
        """Raise `UsageError` if the ledger cannot be used as it is. One that is away now is not an error."""
        self._check_renew()
        try:
            await self.ledger.look("", "", now=self.clock())
        except StoreUnavailable as problem:
            _log.warning("Rounds that are remembered wait for their store: %s", problem)

    def _check_renew(self) -> None:
        """Refuse a store that renews one round at a time, as stores once did: its leases would run out."""
        try:
            inspect.signature(self.ledger.renew).bind({}, until=0.0)
        except TypeError as error:
            raise UsageError(f"{_RENEW}: {error}") from error

    def tidy(self) -> None:
        """Remove expired rounds from the ledger, at most every five minutes. No call waits for that."""
        now = self.clock()
        if now - self._purged_at > _PURGE_SECONDS and (self._tidying is None or self._tidying.done()):
            self._purged_at = now
            self._tidying = asyncio.get_running_loop().create_task(self._purge(now))

    async def _purge(self, now: float) -> None:
        try:
            await self.ledger.purge(now=now)
        except StoreUnavailable as error:
            _log.warning("Rounds that have expired were not removed: %s", error)
