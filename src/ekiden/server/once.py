"""Rounds that run once: one round's claim on the ledger, as its leg sees it.

A claim is a lease. While its owner lives it is renewed; when the owner dies, whoever repeats the
round takes over from the steps that were committed. Repeats that come meanwhile wait, and get what
the owner recorded.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import InternalError, InvalidParams, ProtocolError
from ekiden.opaque import Opaque
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.ledger import Busy, Claim, Claimed, Ledger, Recorded, Refused
from ekiden.rounds.leg import Ended
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
from ekiden.wire.json import canonical
from ekiden.wire.tasks import TaskView

__all__ = ["Once", "RoundClaim"]

_log = logging.getLogger("ekiden.once")

_POLL_SECONDS: Final = 0.1
"""How often a waiting repeat looks again where the owner is another process; in this one it is told."""
_PURGE_SECONDS: Final = 300.0


class Once:
    """The rounds that this process runs or waits for."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float], *, lease: float, keep: float) -> None:
        self.ledger = ledger
        self.clock = clock
        self.lease = lease
        self.keep = keep
        """How long an outcome is remembered: as long as a token that leads to its round can be used."""
        self._ended: dict[str, asyncio.Event] = {}
        self._purged_at = clock()

    def ended(self, round_id: str) -> asyncio.Event:
        """The event that is set when the owner, if it is in this process, has ended."""
        return self._ended.setdefault(round_id, asyncio.Event())

    def tell(self, round_id: str) -> None:
        """Wake those who wait for a round."""
        if (event := self._ended.pop(round_id, None)) is not None:
            event.set()

    async def tidy(self) -> None:
        """Forget what has expired, now and then."""
        now = self.clock()
        if now - self._purged_at > _PURGE_SECONDS:
            self._purged_at = now
            await self.ledger.purge(now=now)


class RoundClaim(Opaque):
    """Implements `ekiden.rounds.ledger.RoundMemory` for one round."""

    _once: Once
    _round_id: str
    _responses: Mapping[str, Any]
    claimed: Claimed | None = None
    """What makes the round ours: it is claimed when a step first needs it."""
    _single: asyncio.Lock | None = None
    _renewal: asyncio.Task[None] | None = None

    def _answers(self) -> str:
        return fingerprint(canonical(self._responses))

    def recorded(self) -> Outcome | None:
        """How the round ended before, where that is known at once."""
        known = self._once.ledger.peek(self._round_id)
        return None if known is None or known[0] != self._answers() else decode_outcome(known[1])

    async def recorded_for_certain(self) -> Outcome | None:
        """How the round ended before; if it has not, it is ours now."""
        try:
            await self.own()
        except Ended as ended:
            return ended.outcome
        return None

    async def own(self) -> Claimed:
        """Own the round, waiting for another owner to end; `Ended` if it has ended before."""
        if self._single is None:
            self._single = asyncio.Lock()
        async with self._single:
            while self.claimed is None:
                match await self._try():
                    case Claimed() as claim:
                        self.claimed = claim
                        self._renewal = asyncio.get_running_loop().create_task(self._renew(claim.fence))
                    case Recorded(outcome):
                        raise Ended(decode_outcome(outcome))
                    case Refused():
                        raise Ended(Failed(InvalidParams("This round has been answered differently before")))
                    case Busy():
                        await self._wait()
        return self.claimed

    async def _try(self) -> Claim:
        once = self._once
        now = once.clock()
        claiming = asyncio.ensure_future(
            once.ledger.claim(
                self._round_id, self._answers(), now=now, lease=once.lease, expires=now + once.keep
            )
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The client left. What is being claimed right now must not stay claimed for a whole lease.
            claim = await claiming
            if isinstance(claim, Claimed):
                await once.ledger.release(self._round_id, claim.fence)
                once.tell(self._round_id)
            raise

    async def _wait(self) -> None:
        event = self._once.ended(self._round_id)
        try:
            async with asyncio.timeout(_POLL_SECONDS):
                await event.wait()
        except TimeoutError:
            pass

    async def _renew(self, fence: int) -> None:
        while True:
            await asyncio.sleep(self._once.lease / 3)
            once = self._once
            if not await once.ledger.renew(self._round_id, fence, now=once.clock(), lease=once.lease):
                _log.warning("Round %s was taken over by another worker", self._round_id)
                return

    async def recall(self) -> Mapping[str, Entry]:
        """What earlier owners committed."""
        return (await self.own()).entries

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Remember a step as it ends; one who lost the claim ends here."""
        claimed = await self.own()
        if not await self._once.ledger.commit(self._round_id, claimed.fence, entries):
            raise Ended(Failed(InternalError("The round was taken over by another worker; repeat it")))

    async def finish(self, outcome: Outcome) -> None:
        """Record how the round ended, if it was claimed at all."""
        if self.claimed is not None:
            try:
                await self._once.ledger.finish(self._round_id, self.claimed.fence, encode_outcome(outcome))
            finally:
                self._let_go()
            await self._once.tidy()

    async def release(self) -> None:
        """Give the round back: whoever repeats it goes on from the committed steps."""
        if self.claimed is not None:
            try:
                await self._once.ledger.release(self._round_id, self.claimed.fence)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self.claimed = None
        if self._renewal is not None:
            self._renewal.cancel()
        self._once.tell(self._round_id)


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome as bytes for the ledger."""
    match outcome:
        case Complete(result):
            return msgspec.msgpack.encode(["complete", result])
        case Interim(requests, state):
            return msgspec.msgpack.encode(["interim", requests, state])
        case Task(task):
            return msgspec.msgpack.encode(["task", msgspec.to_builtins(task)])
        case Failed(error):
            return msgspec.msgpack.encode(["failed", error.code, error.message, error.data])


def decode_outcome(data: bytes) -> Outcome:
    """An outcome that the ledger kept."""
    kind, *fields = msgspec.msgpack.decode(data)
    if kind == "complete":
        return Complete(fields[0])
    if kind == "interim":
        return Interim(fields[0], fields[1])
    if kind == "task":
        return Task(msgspec.convert(fields[0], TaskView))
    code, message, details = fields
    return Failed(ProtocolError(message, code=code, data=details))
