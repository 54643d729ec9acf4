"""Access tokens that are being verified: how many at once, and of whom.

Each may be a request to the authorization server. Whoever invents tokens must not keep all others out while
that is slow. So the places are shared fairly: if all are taken, who has fewer than others gets one of theirs,
and who has none of them waits for a moment until one is free. Tokens that were valid lately, which nobody can
invent, have places of their own.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.server.auth.known import Known
from ekiden.signals import VerifierUnavailable
from ekiden.transports.server.proxies import networks_of

__all__ = ["Verification", "Verifications"]

Verification: TypeAlias = asyncio.Task[Known | None]
Place: TypeAlias = tuple[int, str | None]
"""The name of a network; before it, which of `_MOST_OF_ONE` counts for it."""

_MOST_AT_ONCE: Final = 64
"""Tokens that are verified at once; and as many again that were valid lately."""
_MOST_OF_ONE: Final = (32, 40, 48)
"""Those of one address, or of one /64, /56 and /48 of IPv6, with those that wait."""
_MOST_WAITING: Final = 256
_WAIT_SECONDS: Final = 3.0
"""How long a token may wait for a place."""
_LONGEST_SECONDS: Final = 30.0
"""How long one may take: a verifier that hangs must not keep its place."""


class _Entry(msgspec.Struct, eq=False):
    """A token that is verified, or waits for a place."""

    digest: bytes
    places: tuple[Place, ...]
    """What it is counted by: its networks, from the smallest to the largest."""
    turn: asyncio.Future[None] | None
    """Done when it has a place; None if it had one from the beginning."""
    task: Verification | None = None


class Verifications:
    """Runs `verify` for tokens, each in a task of its own."""

    def __init__(self, verify: Callable[[bytes, bytes], Coroutine[Any, Any, Known | None]]) -> None:
        self._verify = verify
        self._tasks: dict[bytes, Verification] = {}
        """All of them, by digest."""
        self._running: dict[bytes, _Entry] = {}
        """Those that have one of the places, the latest at the end."""
        self._waiting: dict[bytes, _Entry] = {}
        self._of: dict[Place, int] = {}
        """How many each network has, with those that wait."""
        self._real = asyncio.Semaphore(_MOST_AT_ONCE)

    def begin(
        self, token: bytes, digest: bytes, address: str | None, *, is_sure_to_be_real: bool = False
    ) -> Verification | None:
        """The verification of a token, for all who have sent it meanwhile; None if there is no room.

        `is_sure_to_be_real` says that it was valid lately: then there is room.
        """
        if (running := self._tasks.get(digest)) is not None:
            return running
        if is_sure_to_be_real:
            return self._start(digest, self._in_turn(token, digest))
        places = tuple(enumerate((None,) * 3 if address is None else networks_of(address)))
        if any(self._has(place) >= _MOST_OF_ONE[place[0]] for place in places):
            return None
        turn: asyncio.Future[None] | None = None
        if len(self._running) >= _MOST_AT_ONCE and not self._make_room(places):
            if len(self._waiting) >= _MOST_WAITING:
                return None
            turn = asyncio.get_running_loop().create_future()
        entry = _Entry(digest, places, turn)
        (self._running if turn is None else self._waiting)[digest] = entry
        for place in places:
            self._of[place] = self._has(place) + 1
        entry.task = self._start(digest, self._with_place(token, entry))
        entry.task.add_done_callback(functools.partial(self._left, entry))
        return entry.task

    def _start(self, digest: bytes, work: Coroutine[Any, Any, Known | None]) -> Verification:
        task = self._tasks[digest] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(functools.partial(self._ended, digest))
        return task

    async def _in_turn(self, token: bytes, digest: bytes) -> Known | None:
        try:
            async with asyncio.timeout(_LONGEST_SECONDS), self._real:
                return await self._bounded(token, digest)
        except TimeoutError as error:
            raise VerifierUnavailable(f"it had no turn within {_LONGEST_SECONDS:g} seconds") from error

    async def _with_place(self, token: bytes, entry: _Entry) -> Known | None:
        if entry.turn is not None:
            late = asyncio.get_running_loop().call_later(_WAIT_SECONDS, entry.turn.cancel)
            try:
                await entry.turn
            finally:
                late.cancel()
        return await self._bounded(token, entry.digest)

    async def _bounded(self, token: bytes, digest: bytes) -> Known | None:
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                return await self._verify(token, digest)
        except TimeoutError as error:
            raise VerifierUnavailable(f"nothing was heard within {_LONGEST_SECONDS:g} seconds") from error

    # Places

    def _has(self, place: Place) -> int:
        return self._of.get(place, 0)

    def _make_room(self, places: tuple[Place, ...]) -> bool:
        """Give up the latest verification of whoever has most, for somebody who has fewer.

        Large networks are compared first. Only its neighbours in there make room for a part of the same one.
        """
        rivals = list(self._running.values())
        for width in reversed(range(len(places))):
            most = max((self._has(each.places[width]) for each in rivals), default=0)
            if most > self._has(places[width]) + 1:
                self._give_up(next(e for e in reversed(rivals) if self._has(e.places[width]) == most))
                return True
            rivals = [each for each in rivals if each.places[width] == places[width]]
        return False

    def _give_up(self, entry: _Entry) -> None:
        self._forget(entry)
        del self._tasks[entry.digest]
        if entry.task is not None:
            entry.task.cancel()

    def _left(self, entry: _Entry, _: Verification) -> None:
        """A verification has ended: its place is for whoever waits and has fewest."""
        self._forget(entry)
        waiting = [(each, each.turn) for each in self._waiting.values()]
        able = [(each, turn) for each, turn in waiting if turn is not None and not turn.done()]
        if able and len(self._running) < _MOST_AT_ONCE:
            following, turn = min(able, key=lambda pair: self._standing(pair[0]))
            self._running[following.digest] = self._waiting.pop(following.digest)
            turn.set_result(None)

    def _standing(self, entry: _Entry) -> tuple[int, ...]:
        return tuple(self._has(place) for place in reversed(entry.places))

    def _forget(self, entry: _Entry) -> None:
        for entries in (self._running, self._waiting):
            if entries.get(entry.digest) is entry:
                del entries[entry.digest]
                break
        else:
            return
        for place in entry.places:
            self._of[place] -= 1
            if not self._of[place]:
                del self._of[place]

    def _ended(self, digest: bytes, task: Verification) -> None:
        if self._tasks.get(digest) is task:
            del self._tasks[digest]
        if not task.cancelled():
            task.exception()  # Whoever waited has logged it. If nobody did, nobody needs to know.
