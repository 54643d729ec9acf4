"""Which call a question belongs to, where all messages of a server come on one channel.

A server of 2025 on stdio asks without saying for which of its calls. If one call runs, it is that one's. If
several do, the question waits until the others have ended; and from then on this server gets one call at a
time. A question is never put to a client that might be the wrong one: if nobody can tell, it is refused. That
holds for a while after a call was given up: its server may still be at it, and ask.
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
"""How long a call that was given up may go on at a server that was told to end it."""
_MOST_WAITING: Final = 100
"""Calls that may wait for their turn."""


class _Passing(msgspec.Struct, eq=False):
    """A call that runs."""

    question: AnswerQuestion
    log: Callable[[JsonObject], None]


class Turnstile:
    """The calls that run at one upstream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: set[_Passing] = set()
        self._unclaimed = 0
        """Questions of which nobody knows yet whose they are."""
        self._given_up = 0
        """How often all open questions were given up."""
        self._one_at_a_time = False
        self._certain_from = float("-inf")
        """From when on nothing on the channel is of a call that was given up."""
        self._waiting = 0
        self._changed = asyncio.Condition()

    @property
    def is_alone(self) -> bool:
        """Whether one call runs, and no other may, so that everything on the channel belongs to it."""
        return len(self._running) == 1 and time.monotonic() >= self._certain_from

    def log(self, params: JsonObject) -> None:
        """Take a log message of the channel. It is dropped if nobody knows which call it belongs to."""
        if self.is_alone:
            for passing in self._running:
                passing.log(params)

    @asynccontextmanager
    async def call(
        self, question: AnswerQuestion, log: Callable[[JsonObject], None]
    ) -> AsyncGenerator[None, None]:
        """Run a call; `question` answers what is asked for it, `log` takes its log messages."""
        if self._one_at_a_time:
            await self._turn()
        passing = _Passing(question, log)
        self._running.add(passing)
        try:
            yield
        except ServerError:
            raise
        except BaseException:  # Its server has not answered, and may go on with it.
            self._certain_from = time.monotonic() + _DOUBT_SECONDS
            raise
        finally:
            self._running.discard(passing)
            async with self._changed:
                self._changed.notify_all()

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
        if not self.is_alone:
            await self._until_clear(key)
        (passing,) = self._running
        return await passing.question(key, question)

    async def _until_clear(self, key: str) -> None:
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
        if not self.is_alone:
            raise CannotAnswer({key: "a question that belongs to none of the running calls for certain"})
