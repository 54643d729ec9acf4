"""Which call a question belongs to, where all messages of a server come on one channel.

A server of 2025 on stdio asks without saying for which of its calls. If one call runs, it is that one's. If
several do, the question waits until the others have ended; and from then on this session gets one call at a
time. That holds where all calls are of one principal: a question that went to the wrong one of them would
still be theirs.

Where callers cannot be told apart for certain, a channel `is_shared`, and nothing is found out by waiting: a
call that ended, in whatever way, may have left its question behind. So a call gets questions and log messages
only if it has run alone from its beginning, and nobody who is known to be somebody else had one shortly
before. Everywhere, a call that was given up leaves a doubt for a while: its server may still be at it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec

from ekiden.client.checking import LeftOut
from ekiden.errors import CannotAnswer, InternalError, ServerError
from ekiden.wire.json import JsonObject

__all__ = ["AnswerQuestion", "Turnstile"]

AnswerQuestion: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject | LeftOut]]

_TELL_SECONDS: Final = 60.0
"""How long a question waits for other calls to end."""
_TURN_SECONDS: Final = 600.0
"""How long a call waits for its turn: as long as a user may take to answer the question of another."""
_DOUBT_SECONDS: Final = 60.0
"""How long a call that has ended may still ask, or say something."""
_MOST_WAITING: Final = 100
"""Calls that may wait for their turn."""
_NEVER: Final = float("-inf")


class _Passing(msgspec.Struct, eq=False):
    """A call that runs."""

    question: AnswerQuestion
    log: Callable[[JsonObject], None]
    certain_from: float
    """From when on nothing on the channel is of another call."""


class _Ended:
    """When calls have ended: the last one, and the last one of anybody else."""

    def __init__(self) -> None:
        self._owner, self._at, self._at_of_others = "", _NEVER, _NEVER

    def add(self, owner: str, at: float) -> None:
        if owner != self._owner:
            self._owner, self._at_of_others = owner, self._at
        self._at = at

    def of_others(self, owner: str) -> float:
        """When the last call ended that was not of this owner."""
        return self._at_of_others if owner == self._owner else self._at


class Turnstile:
    """The calls that run in one session with an upstream."""

    def __init__(self, name: str, *, is_shared: bool = False) -> None:
        self._name = name
        self._is_shared = is_shared
        self._running: set[_Passing] = set()
        self._unclaimed = 0
        """Questions of which nobody knows yet whose they are."""
        self._given_up = 0
        """How often all open questions were given up."""
        self._one_at_a_time = False
        self._certain_from = _NEVER
        """From when on nothing on the channel is of a call that was given up."""
        self._ended = _Ended()
        self._waiting = 0
        self._changed = asyncio.Condition()

    @property
    def is_alone(self) -> bool:
        """Whether one call runs, and everything on the channel belongs to it."""
        return len(self._running) == 1 and all(
            time.monotonic() >= max(passing.certain_from, self._certain_from) for passing in self._running
        )

    def log(self, params: JsonObject) -> None:
        """Take a log message of the channel. It is dropped if nobody knows which call it belongs to."""
        if self.is_alone:
            for passing in self._running:
                passing.log(params)

    @asynccontextmanager
    async def call(
        self, question: AnswerQuestion, log: Callable[[JsonObject], None], owner: str = ""
    ) -> AsyncGenerator[None, None]:
        """Run a call; `question` answers what is asked for it, `log` takes its log messages.

        `owner` is who calls, as far as that is known.
        """
        if self._one_at_a_time:
            await self._turn()
        since = self._ended.of_others(owner) + _DOUBT_SECONDS if self._is_shared else _NEVER
        passing = _Passing(question, log, since)
        self._running.add(passing)
        try:
            yield
        except ServerError:
            raise
        except BaseException:  # Its server has not answered, and may go on with it.
            self._certain_from = time.monotonic() + _DOUBT_SECONDS
            raise
        finally:
            self._end(passing, owner)
            async with self._changed:
                self._changed.notify_all()

    def _end(self, passing: _Passing, owner: str) -> None:
        self._running.discard(passing)
        if self._is_shared:
            now = time.monotonic()
            self._ended.add(owner, now)
            for other in self._running:  # What comes now may be of the one that has ended.
                other.certain_from = now + _DOUBT_SECONDS

    async def _turn(self) -> None:
        if self._waiting >= _MOST_WAITING:
            raise InternalError(f"Too many calls wait for {self._name!r}: try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(_TURN_SECONDS), self._changed:
                await self._changed.wait_for(lambda: not self._running)
        except TimeoutError:
            raise InternalError(f"{self._name!r} is busy with a call that waits for an answer") from None
        finally:
            self._waiting -= 1

    async def ask(self, key: str, question: JsonObject) -> JsonObject | LeftOut:
        """The answer to a question of the channel, from the call that it belongs to."""
        if self._running:  # What a server asks outside of every call says nothing about its calls.
            self._one_at_a_time = True
        if not self.is_alone and not self._is_shared:
            await self._until_clear()
        if not self.is_alone:
            raise CannotAnswer({key: "a question that belongs to none of the running calls for certain"})
        (passing,) = self._running
        return await passing.question(key, question)

    async def _until_clear(self) -> None:
        """Wait until one call is left. If each that runs might be the one that asks, nobody can tell."""
        self._unclaimed += 1
        if self._unclaimed >= len(self._running):
            self._given_up += 1  # Every call that runs may wait for an answer: none of them would end.
        given_up = self._given_up
        try:
            async with asyncio.timeout(_TELL_SECONDS), self._changed:
                self._changed.notify_all()
                await self._changed.wait_for(
                    lambda: (
                        len(self._running) <= 1  # If it is in doubt even so, no waiting helps.
                        or self._given_up != given_up
                        or self._unclaimed >= len(self._running)
                    )
                )
        except TimeoutError:
            pass
        finally:
            self._unclaimed -= 1
