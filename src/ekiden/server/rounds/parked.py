"""Parked handlers: coroutines that stay alive between rounds, because what they hold cannot be replayed.

They live in one process and one event loop. They expire, and a shutdown cancels them. Their number is
limited, and so are the bytes of what their clients have sent. If all places are taken, who has fewer than
others gets one of theirs. A token whose handler is gone is refused with an error message of its own.
"""

import asyncio
import logging
import secrets
from collections import Counter
from typing import Any, Final

import msgspec

from ekiden.errors import InternalError, InvalidParams
from ekiden.rounds.leg import Leg
from ekiden.transports.server.budget import weight_of
from ekiden.wire.json import JsonObject, encode
from ekiden.wire.jsonrpc import RESTART

__all__ = ["Parked", "ParkingLot"]

_log = logging.getLogger(__name__)

_FULL: Final = "Too many calls are waiting for an answer; try again later"


_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes that arguments and answers of all of them take in memory."""


def _sent_bytes(params: JsonObject, leg: Leg) -> int:
    """The bytes that a handler holds of what its client has sent: the arguments, and all answers."""
    before, leg.answered = leg.answered, leg.answered + weight_of(encode(params.get("inputResponses")))
    return before + weight_of(encode(params))


class Parked(msgspec.Struct):
    """A leg that waits, and the context that its handler holds."""

    leg: Leg
    context: Any
    timer: asyncio.TimerHandle
    session: object
    """The session of the client, where it has one."""
    owner: str
    """Whose call it is, as far as clients are told apart."""
    rounds: int
    """How often its client has come back."""
    size: int
    """The bytes that it holds of what its client has sent."""


class ParkingLot:
    """The parked legs of this process."""

    def __init__(self, *, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._legs: dict[str, Parked] = {}
        self._bytes = 0
        self._stopping: set[asyncio.Task[None]] = set()

    def check_room(self, owner: str) -> None:
        """Refuse a call that could not be parked, or give up one of whoever has most."""
        if len(self._legs) < self._most:
            return
        counts = Counter(parked.owner for parked in self._legs.values())
        greedy, most = max(counts.items(), key=lambda item: item[1])
        if most <= counts[owner] + 1:
            raise InternalError(_FULL)
        self._give_up_one(greedy)

    def park(self, leg: Leg, context: Any, owner: str, session: object = None, rounds: int = 0) -> str:
        """Keep a leg until `take`, for a limited time. `InternalError` if it has to be given up instead."""
        ticket = secrets.token_urlsafe(16)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._seconds, self._expire, ticket)
        size = _sent_bytes(context.request.params, leg)
        self._legs[ticket] = Parked(leg, context, timer, session, owner, rounds, size)
        self._bytes += size
        # Many may be let in at once, before any of them is parked.
        while (is_crowded := len(self._legs) > self._most) or self._bytes > _MOST_BYTES:
            counts = Counter[str]()
            for parked in self._legs.values():
                counts[parked.owner] += 1 if is_crowded else parked.size
            self._give_up_one(max(counts.items(), key=lambda item: item[1])[0])
        if ticket not in self._legs:
            raise InternalError(_FULL)
        return ticket

    def _give_up_one(self, owner: str) -> None:
        """Give up a leg: of those that have come least far, the one that was parked last."""
        own = [(parked.rounds, ticket) for ticket, parked in self._legs.items() if parked.owner == owner]
        _, ticket = min(reversed(own), key=lambda each: each[0])
        parked = self.take(ticket)
        _log.debug("%s is cancelled: others needed its place", parked.leg.handler)
        self._stop(parked.leg)

    def peek(self, ticket: str) -> Parked:
        """The leg of a ticket, which stays parked."""
        parked = self._legs.get(ticket)
        if parked is None:
            raise InvalidParams(
                "This call waited in a server process that has given it up: restart the call",
                data={**RESTART},
            )
        return parked

    def take(self, ticket: str) -> Parked:
        """Remove the leg of a ticket, to resume it."""
        parked = self.peek(ticket)
        del self._legs[ticket]
        self._bytes -= parked.size
        parked.timer.cancel()
        return parked

    def _expire(self, ticket: str) -> None:
        parked = self.take(ticket)  # Whoever takes it before cancels the timer.
        _log.debug("%s waited too long for an answer; it is cancelled", parked.leg.handler)
        self._stop(parked.leg)

    def give_up(self, session: object) -> None:
        """Cancel the legs of a client whose session has ended."""
        waiting = [ticket for ticket, parked in self._legs.items() if parked.session is session]
        for ticket in waiting:
            parked = self.take(ticket)
            _log.debug("%s is cancelled: its client has ended the session", parked.leg.handler)
            self._stop(parked.leg)

    def _stop(self, leg: Leg) -> None:
        task = asyncio.get_running_loop().create_task(leg.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def close(self) -> None:
        """Cancel all of them."""
        for parked in self._legs.values():
            parked.timer.cancel()
            _log.debug("%s is cancelled: the server is shutting down", parked.leg.handler)
            self._stop(parked.leg)
        self._legs.clear()
        self._bytes = 0
        if self._stopping:
            await asyncio.wait(set(self._stopping))
