"""Large results are made, and become bytes, a few at a time.

Many calls may end in one pass of the event loop, each with a result of many megabytes. To make it of the
handler's value, and to spell it, takes tens of milliseconds each, and until its client has read it, or was
cut because it does not, it lies in memory. So only so many bytes are made and spelled in some passes. What
is more waits for its turn, and others have theirs in between. Results that are made take turns with values
of which none is made yet, so that not all values are made before the first result is sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import NoneType
from typing import Any, Final, cast

from ekiden.errors import InternalError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.transports.server.budget import ByClient
from ekiden.transports.server.legacy.kept import HeldBytes
from ekiden.transports.server.reply import LARGE

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
_LOOKED_AT: Final = 512
"""Values of a result that are looked at for its size. Of more, some stand for the others."""
_IN_ONE: Final = 32
"""Of one list, dict or object: rows are mostly alike."""
_PER_VALUE: Final = 16
_UNKNOWN: Final = " " * (LARGE + 1)
_SCALARS: Final = frozenset({bool, int, float, NoneType})
TOO_MUCH: Final = "Too many large results wait to be sent: ask again later, or for less of it at a time"


class LargeResults:
    """The large results of one server, in the order in which they came."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
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

    def limit(self, most: int) -> None:
        """From now on so many bytes may wait."""
        self._most = self._held.most = most

    def made(self, outcome: Outcome) -> None:
        """A result was made of a value. It counts if it is large, as if it was spelled."""
        if not isinstance(outcome, Complete) or isinstance(result := outcome.result, bytes):
            return
        blocks: list[Any] = result.get("content", ())
        if len(blocks) == 1 and len(blocks[0].get("text", _UNKNOWN)) <= LARGE:
            return  # Data is as long as its text.
        if (size := _size_of(result)) > LARGE:
            self.spelled(size)

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
        size = _size_of(outcome.result) if isinstance(outcome, Complete) else 0
        if size <= LARGE:
            return outcome
        waiting = self._wait(self._made, client, outcome, size)
        del outcome
        admitted: Outcome | None = await waiting.admitted()
        return Failed(InternalError(TOO_MUCH)) if admitted is None else admitted

    async def admit_value(self, value: object, client: str | None) -> bool:
        """Whether a result can be made of a value, when its turn has come; that of a small one is now.

        Without a client, it is made however much waits.
        """
        size = _size_of(value)
        return size <= LARGE or await self._wait(self._values, client, True, size).admitted() is True

    def _wait(self, queue: "ByClient[_Waiting]", client: str | None, what: Any, size: int) -> "_Waiting":
        waiting = _Waiting(self._held, client or "", what, size)
        queue.add(_NOBODY if client is None else client, waiting)
        if client is not None:
            self._held.hold(client, waiting, size)
        return waiting

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
    """A result, or a value, that waits for its turn. Implements `legacy.kept.Held`."""

    is_read = True
    """Its client waits for it."""

    def __init__(self, held: HeldBytes, client: str, what: Any, size: int) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.size = size
        self._what = what
        """What is admitted, until it is given up."""
        self._held = held
        self._client = client

    async def admitted(self) -> Any:
        """What has waited, when its turn has come; None if it was given up."""
        try:
            await self.turn
        except BaseException:
            self._what = None  # It is in its queue until its turn comes.
            raise
        finally:
            self._let_go()
        if self._what is None:
            _log.warning("A result of about %d bytes is not sent: too many large ones wait", self.size)
        return self._what

    def give_up(self) -> None:
        """It is not sent: others need the memory, and many may be given up in one pass of the event loop."""
        self._let_go()
        if not self.turn.done():
            self._what = None
            self.turn.set_result(None)

    def _let_go(self) -> None:
        self._held.hold(self._client, self, 0)


def _size_of(value: object) -> int:
    """About how many bytes of JSON a value is: data, models, bytes."""
    size, left = 0.0, deque[tuple[Any, float]]([(value, 1.0)])
    for _ in range(_LOOKED_AT):
        if not left:
            break
        one, times = left.popleft()
        if isinstance(one, str | bytes | bytearray):
            size += times * one.__sizeof__()  # Of text with an emoji, each letter takes four.
        elif type(one) not in _SCALARS and (count := len(parts := _parts(one))):
            size += times * _PER_VALUE * count
            if len(left) < _LOOKED_AT:
                step = -(-count // _IN_ONE)
                left.extend((part, times * step) for part in islice(parts, 0, None, step))
    return int(size)


def _parts(value: object) -> Collection[Any]:
    """The values that are in this one."""
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Collection[Any]", value)
    if isinstance(value, Mapping):
        return cast("Collection[Any]", value.values())
    fields: Mapping[str, Any] | None = getattr(value, "__dict__", None)
    if fields:
        return fields.values()
    names: Sequence[str] = getattr(value, "__slots__", ())
    return [getattr(value, name, None) for name in names]
