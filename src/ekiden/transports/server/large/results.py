"""Large results are made, and become bytes, a few at a time.

Many calls may end in one pass of the event loop, each with a result of many megabytes. To make it of the
handler's value, and to spell it, takes tens of milliseconds each, and until its client has read it, or was
cut because it does not, it lies in memory. So only so many bytes are made and spelled in some passes. What
is more waits for its turn, and others have theirs in between. Results that are made take turns with values
of which none is made yet, so that not all values are made before the first result is sent.

How large they are is estimated. If much waits, no handler begins that returns much. Only of what ends
together all the same, some may be refused: never the only one.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from ekiden.errors import InternalError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.transports.server.budget import ByClient
from ekiden.transports.server.large.begins import BeginTurns
from ekiden.transports.server.large.held import Held, HeldBytes
from ekiden.transports.server.large.sizes import size_of
from ekiden.transports.server.reply import LARGE
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES

__all__ = ["MOST", "TOO_MUCH", "LargeResults"]

_log = logging.getLogger(__name__)

MOST: Final = 256 * 1024 * 1024
"""Bytes of results that may wait for their turn, unless there may be more."""
_AT_ONCE: Final = 1024 * 1024
"""Bytes that are spelled before others have their turn: about three milliseconds. A result may be larger."""
_PASSES: Final = 8
"""Passes of the event loop for others: a request that has come meanwhile is read and answered in them."""
_NOBODY: Final = "\0"
"""In place of a client, for what no client waits for."""
_ERROR: Final = 4
"""What waits counts for a quarter of its size, or for its texts: that is estimated, and these are not."""
_HELD_UP: Final = 1 / 32
"""The part of the bytes that may wait from which on no handler begins that returns much."""
_UNKNOWN: Final = " " * (LARGE + 1)
TOO_MUCH: Final = "Too many large results wait to be sent: ask again later, or for less of it at a time"


class LargeResults:
    """The large results of one server, in the order in which they came."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._most_of_one = MOST_RESULT_BYTES
        self.begins = BeginTurns()
        """Which handlers begin, and which wait because so much is held."""
        self.forget()

    def forget(self) -> None:
        """Begin anew: the event loop is gone in which some have waited."""
        self.busy = False
        """Whether large results have to wait at this moment: ask `admit_value` before one is made, and
        `admit` before it is spelled."""
        self._made = ByClient[_Waiting]()
        self._values = ByClient[_Waiting]()
        """Those of which no result is made yet."""
        self._was_made = False
        """Whether it was a result that had the last turn."""
        self._held = HeldBytes(self._most)
        self._left = _AT_ONCE
        self._resting = False
        self.begins.forget()

    def limit(self, most: int, of_one: int = MOST_RESULT_BYTES) -> None:
        """From now on so many bytes may wait. One counts for `of_one` at most: so many it may have when it
        is sent."""
        self._most = self._held.most = most
        self._most_of_one = max(of_one, MOST_RESULT_BYTES)

    def made(self, outcome: Outcome) -> bool:
        """A result was made of a value: whether it is large. Then it counts as if it was spelled."""
        if not isinstance(outcome, Complete) or isinstance(result := outcome.result, bytes):
            return False
        blocks: list[Any] = result.get("content", ())
        # Data is as long as its text.
        size = len(blocks[0].get("text", _UNKNOWN)) if len(blocks) == 1 else size_of(result)
        if size > LARGE:
            self.spelled(size)
        return size > LARGE

    def spelled(self, size: int) -> None:
        """A large result was spelled that did not have to wait."""
        self._left -= size
        self.busy = self.busy or self._left <= 0
        if not self._resting:
            self._resting = True
            self._rest(asyncio.get_running_loop(), _PASSES)

    async def admit(self, outcome: Outcome, client: str) -> Outcome:
        """The outcome, when its turn has come; that of a small one is now. An error, if too much waits.

        Whoever awaits this holds the outcome no longer: what is given up is to be forgotten at once.
        """
        size = size_of(outcome.result) if isinstance(outcome, Complete) else 0
        if size <= LARGE:
            return outcome
        waiting = self._wait(self._made, client, outcome, size, _text_of(outcome))
        del outcome
        try:
            admitted: Outcome = await waiting.admitted()
        except InternalError as error:
            return Failed(error)
        return admitted

    async def admit_value(
        self, value: Any, client: str | None, is_large: Callable[[], None] | None = None
    ) -> Any:
        """The value, when its turn has come; that of a small one is now. `InternalError`, if too much waits.

        Of a large one, `is_large` is told. Without a client, it is made however much waits. Whoever awaits
        this holds the value no longer.
        """
        size = size_of(value)
        if size <= LARGE:
            return value
        if is_large is not None:
            is_large()
        waiting = self._wait(self._values, client, value, size, _texts_in(value))
        del value
        return await waiting.admitted()

    def _wait(
        self, queue: "ByClient[_Waiting]", client: str | None, what: Any, size: int, texts: int
    ) -> "_Waiting":
        waiting = _Waiting(self, client, what, size)
        queue.add(_NOBODY if client is None else client, waiting)
        self.hold(client, waiting, max(size // _ERROR, texts))
        return waiting

    def hold(self, client: str | None, waiting: Held, size: int) -> None:
        """So many bytes of this wait now. If it is too much, some of the client that has most is given up."""
        if client is not None:
            # One alone is never given up, however large it seems.
            counted = min(size, self._most_of_one, self._most * 7 // 8)
            self._held.hold(client, waiting, counted)
            self.begins.hold_up(self._held.total > self._most * _HELD_UP)

    def _rest(self, loop: asyncio.AbstractEventLoop, passes: int) -> None:
        """Let others have their turn, then some of those that wait."""
        if passes:
            loop.call_soon(self._rest, loop, passes - 1)
            return
        self._left = _AT_ONCE
        while (queue := self._next()) and self._left > 0:
            waiting = queue.next()
            if not waiting.turn.done():  # Else its call was cancelled, or it was given up.
                waiting.turn.set_result(None)
                self._left -= waiting.size
                self._was_made = queue is self._made
        self.busy = bool(queue) or self._left <= 0
        self._resting = self._left < _AT_ONCE
        if self._resting:
            loop.call_soon(self._rest, loop, _PASSES - 1)

    def _next(self) -> "ByClient[_Waiting]":
        """Results and values take turns, so that neither keeps the other waiting for ever."""
        first, second = (self._values, self._made) if self._was_made else (self._made, self._values)
        return first or second


class _Waiting:
    """A result, or a value, that waits for its turn. Implements `held.Held`."""

    is_read = True
    """Its client waits for it."""

    def __init__(self, large: LargeResults, client: str | None, what: Any, size: int) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.size = size
        self._what = [what]
        """What is admitted, until it is given up."""
        self._large = large
        self._client = client

    async def admitted(self) -> Any:
        """What has waited, when its turn has come. `InternalError` if it was given up."""
        try:
            await self.turn
            if self._what:
                return self._what.pop()
        finally:
            self._what.clear()  # If it was cancelled, it is in its queue until its turn comes.
            self._let_go()
        _log.warning("A result of about %d bytes is not sent: too many large ones wait", self.size)
        raise InternalError(TOO_MUCH)

    def give_up(self) -> None:
        """It is not sent: others need the memory, and many may be given up in one pass of the event loop."""
        self._let_go()
        if not self.turn.done():
            self._what.clear()
            self.turn.set_result(None)

    def _let_go(self) -> None:
        self._large.hold(self._client, self, 0)


def _text_of(outcome: Outcome) -> int:
    """The bytes of a result that is spelled already, or is one text."""
    result = outcome.result if isinstance(outcome, Complete) else b""
    if isinstance(result, bytes):
        return len(result)
    blocks: list[Any] = result.get("content", ())
    return sys.getsizeof(blocks[0].get("text", "")) if len(blocks) == 1 else _texts_in(result)


def _texts_in(value: Any) -> int:
    """The bytes of the texts that are directly in a value."""
    of: type = value.__class__
    if issubclass(of, str | bytes):
        return sys.getsizeof(value)
    parts: Any = value.values() if issubclass(of, dict) else value if issubclass(of, list | tuple) else ()
    return sum(sys.getsizeof(each) for each in islice(parts, LARGE) if isinstance(each, str | bytes))
