"""Rounds that run once: the claim of one round in the ledger, as its leg uses it.

A claim is a lease. It is renewed until it ends, also while the store fails. If its owner dies, a repeat of
the round takes it over and goes on from the committed entries. Repeats that come while the owner lives wait,
and get the outcome that it records. If the client leaves, its steps come to their end and are committed, and
then the claim is given back.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from ekiden.errors import InternalError, InvalidParams, StoreUnavailable
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.call_state import CallState
from ekiden.rounds.journal import Entry, fingerprint, framed
from ekiden.rounds.ledger import (
    RELEASED,
    Busy,
    Claim,
    Claimed,
    Recorded,
    Refused,
    Unfinished,
    encode_entry,
)
from ekiden.rounds.outcome import Failed, Outcome, too_large
from ekiden.server.rounds.owning.contenders import Contest
from ekiden.server.rounds.owning.enduring import insist, to_the_end
from ekiden.server.rounds.owning.kept_outcomes import decode_outcome, encode_outcome
from ekiden.server.rounds.owning.lease import Lease
from ekiden.server.rounds.owning.once import Once
from ekiden.server.sealing.room import Room
from ekiden.signals import Ended
from ekiden.tasks.leases.renewing import Asked, answer_of
from ekiden.telemetry.metrics import ROUND_TAKEOVERS, add
from ekiden.transports.server.shares import named_by
from ekiden.wire.json import canonical
from ekiden.wire.modern import Request

__all__ = ["RoundClaim"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
"""How often a waiting repeat asks the store. Needed only if the owner is in another process."""
_ROW_BYTES: Final = 256
"""About what a round, and each of its steps, takes of a store beside its value."""
_LOST: Final = "The round was taken over by another worker; repeat it"


class RoundClaim(PrivateStruct):
    """Implements `ekiden.rounds.ledger.RoundMemory` for one round. Always end it: `finish` or `release`."""

    _once: Once
    _round_id: str
    _token: str
    _responses: Mapping[str, Any]
    _state: CallState | None = None
    """The state that it follows."""
    _request: Request | None = None
    """The request that brought the round."""
    _keep_until: Callable[[CallState], float] | None = None
    """Until when the round after a state is remembered. None: as `Once` says."""
    _until: float = 0.0
    claimed: Claimed | None = None
    """The claim, while this process owns the round. It is taken when a step first needs it."""
    _lease: Lease | None = None
    _contest: Contest | None = None
    _history: str | None = None
    _is_over: bool = False
    _single: asyncio.Lock | None = None

    @property
    def history(self) -> str:
        """A fingerprint of the token and the answers that the round is run with."""
        if self._history is None:
            self._history = fingerprint(framed(self._token.encode(), canonical(self._responses)))
        return self._history

    @property
    def lost(self) -> bool:
        """Whether another worker has taken the round over. Then no step of it may begin here."""
        return self._lease is not None and self._lease.lost

    # Before it begins

    def recorded(self, *, strictly: bool) -> Coroutine[Any, Any, Outcome | None]:
        """Finds the recorded outcome of the round. `strictly`, the round is claimed if there is none."""
        return self.recorded_for_certain() if strictly else self.look()

    async def look(self) -> Outcome | None:
        """The recorded outcome of the round, or why it may not run; None if it may run."""
        once = self._once
        found = await once.ledger.look(self._round_id, self.history, now=once.clock())
        if isinstance(found, Unfinished):
            return await self.recorded_for_certain()
        return None if found is None else _outcome(found)

    async def recorded_for_certain(self) -> Outcome | None:
        """The recorded outcome of the round. If there is none, claim the round and return None."""
        try:
            await self.own()
        except BaseException as error:
            await self.release()  # It may have been claimed, and then be lost.
            if not isinstance(error, Ended):
                raise
            outcome: Outcome = error.outcome
            return outcome
        return None

    # Owning it

    async def own(self) -> Claimed:
        """Claim the round unless it is claimed already. Waits while there is another owner.

        Raises `Ended` if the round has ended before, or if the claim was lost.
        """
        if self.claimed is None:
            if self._single is None:
                self._single = asyncio.Lock()
            async with self._single:
                if self.claimed is None:
                    await self._pursue()
        # The claim may be lost: find out before anything begins. A reply that comes late says little.
        while (lease := self._lease) is not None and not lease.lost and lease.may_have_run_out:
            await insist(lease.renew, self._may_wait, self._round_id)
        if self.claimed is None or self.lost:
            raise _taken_over()
        return self.claimed

    async def _pursue(self) -> None:
        """Claim the round, or raise `Ended` with its outcome."""
        if self._keep_until is not None and self._state is not None:
            self._until = self._keep_until(self._state)  # Now: later its state is that of the next round.
        contenders, key = self._once.contenders, (self._round_id, self.history)
        contest = contenders.join(key)
        try:
            await contest.wait()
            try:
                if contest.ended is None:
                    claim = await self._ask(contest)
                    if isinstance(claim, Claimed):
                        self.claimed, self._contest = claim, contest
                        return
                    contest.ended = claim
                raise Ended(_outcome(contest.ended))
            finally:
                if self.claimed is None:
                    contest.lock.release()
        except asyncio.CancelledError:
            if contest.members == 1 and contest.watch.has_begun and not self._once.is_stopping:
                self._once.lookout.stay(key, contest)
            raise
        finally:
            if self.claimed is None:
                contenders.leave(key, contest)

    async def _ask(self, contest: Contest) -> Claimed | Recorded | Refused:
        """Ask the store until the round is claimed or has ended."""
        lease, time = self._once.lease, asyncio.get_running_loop().time
        answered_at = time()
        while not self._is_over:
            try:
                asked = Asked(time(), self._once.clock())
                claim = await self._claim(contest.watch.dead_owner(asked.loop, lease), asked)
            except StoreUnavailable as error:
                contest.watch.interrupted()
                if not contest.watch.has_begun or not self._may_wait(time() - answered_at):
                    contest.fail(error)
                    raise
            else:
                if not isinstance(claim, Busy):
                    return claim
                answered_at = time()
                contest.watch.note(claim, answered_at, lease, is_over=claim.leased_until <= asked.wall)
            await asyncio.sleep(min(_POLL_SECONDS, lease / 10))
        raise _taken_over()

    async def _claim(self, instead_of: Busy | None, asked: Asked) -> Claim:
        """Try once to claim the round. If the caller is cancelled meanwhile, the claim is given back."""
        once = self._once
        if once.room is not None:
            await self._check_room(once.room, asked.wall)
        asking = self._ask_store(instead_of, asked)
        if not once.ledger.waits:
            claim = await asking
        else:
            task = asyncio.ensure_future(asking)
            try:
                claim = await to_the_end(task)
            except asyncio.CancelledError:
                if not task.cancelled() and task.exception() is None:
                    await self._return(task.result())
                raise
        if self._is_over:
            await self._return(claim)
            raise _taken_over()
        if isinstance(claim, Claimed):
            if not claim.entries:
                self._count(0, rows=1)
            if instead_of is not None:
                add(ROUND_TAKEOVERS, {})
        return claim

    async def _ask_store(self, instead_of: Busy | None, asked: Asked) -> Claim:
        once, now = self._once, asked.wall
        ends = {"lease": once.lease, "expires": now + self._keep_seconds}
        claiming = once.ledger.claim(self._round_id, self.history, now=now, instead_of=instead_of, **ends)
        claim = await answer_of(claiming)
        if isinstance(claim, Claimed):
            lease = self._lease = once.new_lease(self._round_id, claim.fence, asked, self._keep_seconds)
            # The reply may come so late that somebody else has taken the round over: then wait for that one.
            if lease.may_have_run_out and not await self._is_renewed(lease):
                self._lease = None
                return Busy(claim.fence + 1, RELEASED)
        return claim

    async def _is_renewed(self, lease: Lease) -> bool:
        try:
            await insist(lease.renew, self._may_wait, self._round_id)
        except BaseException:
            lease.end()
            raise
        return not lease.lost

    async def _return(self, claim: Claim) -> None:
        if isinstance(claim, Claimed):
            assert self._lease is not None
            self._lease.end()
            await self._surely(lambda: self._give_back(claim.fence), self._may_wait)

    # What it takes of the store

    @property
    def _keep_seconds(self) -> float:
        return self._once.keep if self._keep_until is None else self._until - self._once.clock()

    @property
    def _principal(self) -> str:
        return "" if self._state is None else self._state.principal

    @property
    def _client(self) -> str:
        """The address of whoever has no principal."""
        return "" if self._request is None else named_by(self._request.address)

    async def _check_room(self, room: Room, now: float) -> None:
        """Refuse a round that is new if its principal has no room: none of its steps has begun yet.

        One that was begun before goes on, or its steps would have been done and then be forgotten.
        """
        try:
            room.check(self._principal, _ROW_BYTES, now=now, client=self._client)
        except InternalError as error:
            if await self._once.ledger.look(self._round_id, self.history, now=now) is None:
                raise Ended(Failed(error)) from None

    def _count(self, size: int, *, rows: int = 0) -> None:
        """Count what was stored. It may go over the limit: the next round is refused then."""
        once = self._once
        if once.room is not None:
            expires = once.clock() + self._keep_seconds
            size += rows * _ROW_BYTES
            once.room.add(self._principal, size, expires=expires, client=self._client)

    # What its leg does

    async def recall(self) -> Mapping[str, Entry]:
        """The entries that earlier owners committed, in order."""
        return (await self.own()).entries

    def is_sure(self) -> bool:
        """Whether the claim is certainly still valid."""
        return self._lease is None or not (self._lease.lost or self._lease.may_have_run_out)

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Store a step that has ended, however long that takes. Raises `Ended` if the claim was lost."""
        fence = (self.claimed or await self.own()).fence
        attempt = functools.partial(self._once.ledger.commit, self._round_id, fence, entries)
        if self.lost or not await self._surely(attempt, self._may_commit):
            self._lose()
            raise _taken_over()
        if self._once.room is not None:
            size = sum(len(key) + len(encode_entry(entry)) for key, entry in entries.items())
            self._count(size, rows=len(entries))

    async def finish(self, outcome: Outcome) -> Outcome:
        """Record the outcome, if the round was claimed. Returns the outcome to send, which may be another."""
        self._end()
        if self.claimed is None:
            return outcome
        try:
            fence, data, ended = self.claimed.fence, encode_outcome(outcome), None
            if len(data) > self._once.result_bytes:
                outcome = Failed(too_large(len(data), self._once.result_bytes))
                data = encode_outcome(outcome)
        except BaseException:
            await self.release()
            raise
        try:
            ended = await self._surely(lambda: self._record(fence, data), self._may_wait)
        finally:
            self._let_go(ended)
        self._once.tidy()
        if ended is None:
            return Failed(InternalError(_LOST))
        self._count(len(data))
        return outcome if ended.outcome is data else decode_outcome(ended.outcome)

    async def _record(self, fence: int, outcome: bytes) -> Recorded | None:
        once = self._once
        if await once.ledger.finish(self._round_id, fence, outcome):
            return Recorded(outcome)
        self._lose()
        found = await once.ledger.look(self._round_id, self.history, now=once.clock())
        return found if isinstance(found, Recorded) else None

    async def release(self) -> None:
        """Give the claim up without an outcome. A repeat of the round goes on from the committed steps."""
        self._end()
        if self.claimed is not None:
            try:
                await self._return(self.claimed)
            finally:
                self._let_go(None)

    def _end(self) -> None:
        self._is_over = True
        if self._lease is not None:
            self._lease.expect_end()

    async def _give_back(self, fence: int) -> None:
        try:
            await self._once.ledger.release(self._round_id, fence)
        except Exception as error:  # The lease will run out by itself.
            _log.warning("Round %s was not given back: %r", self._round_id, error)

    def _lose(self) -> None:
        assert self._lease is not None
        self._lease.lose()

    def _let_go(self, ended: Recorded | None) -> None:
        """End the claim: stop renewing it, and wake the requests that wait for it."""
        contest, self.claimed, self._contest = self._contest, None, None
        assert self._lease is not None
        assert contest is not None
        self._lease.end()
        contest.ended = ended
        if not self._lease.is_of_a_closed_loop:  # Else nobody waits any more, and nobody can be woken.
            contest.lock.release()
        self._once.contenders.leave((self._round_id, self.history), contest)

    # When the store fails

    async def _surely(
        self, attempt: Callable[[], Coroutine[Any, Any, T]], may_wait: Callable[[float], bool]
    ) -> T:
        """Finish `attempt` even if the caller is cancelled. Try again while the store is unavailable."""
        if not self._once.ledger.waits:
            try:
                return await attempt()
            except StoreUnavailable:
                pass  # Tried again below.
        return await to_the_end(asyncio.ensure_future(insist(attempt, may_wait, self._round_id)))

    def _may_wait(self, seconds: float) -> bool:
        """Whether to go on waiting for a store after `seconds`."""
        return not self.lost and not self._once.is_stopping and seconds < self._once.lease

    def _may_commit(self, seconds: float) -> bool:
        """The same for a step that has ended: one that is given up begins again, also if the server stops."""
        return not self.lost and (not self._once.is_stopping or seconds < self._once.lease)


def _taken_over() -> Ended:
    return Ended(Failed(InternalError(_LOST)))


def _outcome(found: Recorded | Refused) -> Outcome:
    if isinstance(found, Recorded):
        return decode_outcome(found.outcome)
    return Failed(InvalidParams("This round has been run before, with other answers or another requestState"))
