"""Large results become bytes a few at a time.

Many calls may end in one pass of the event loop, each with a result of many megabytes. To spell one takes
tens of milliseconds, and until its client has read it, or was cut because it does not, it lies in memory. So
only so many bytes are spelled in some passes. What is more waits for its turn, and others have theirs in
between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, cast

from ekiden.errors import InternalError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.transports.server.legacy.kept import HeldBytes
from ekiden.transports.server.reply import LARGE
from ekiden.wire.json import is_object

__all__ = ["MOST", "LargeResults"]

_log = logging.getLogger(__name__)

MOST: Final = 256 * 1024 * 1024
"""Bytes of results that may wait for their turn, unless there may be more."""
_AT_ONCE: Final = 1024 * 1024
"""Bytes that are spelled before others have their turn: about three milliseconds. A result may be larger."""
_PASSES: Final = 8
"""Passes of the event loop for others: a request that has come meanwhile is read and answered in them."""
_LOOKED_AT: Final = 4096
"""Values of a result that are looked at for its size."""
_PER_VALUE: Final = 16
_TOO_MUCH: Final = "Too many large results wait to be sent: ask again later, or for less of it at a time"


class LargeResults:
    """The large results of one server, in the order in which they came."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Begin anew: the event loop is gone in which some have waited."""
        self.busy = False
        """Whether large results have to wait at this moment: ask `admit` before one is spelled."""
        self._waiting: deque[_Waiting] = deque()
        self._held = HeldBytes(self._most)
        self._left = _AT_ONCE
        self._resting = False

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
        waiting = _Waiting(self._held, client, outcome, size)
        del outcome
        self._waiting.append(waiting)
        self._held.hold(client, waiting, size)
        try:
            await waiting.turn
        finally:
            self._held.hold(client, waiting, 0)
        if waiting.outcome is not None:
            return waiting.outcome
        _log.warning("A result of about %d bytes is not sent: too many large ones wait", size)
        return Failed(InternalError(_TOO_MUCH))

    def _rest(self, loop: asyncio.AbstractEventLoop, passes: int) -> None:
        """Let others have their turn, then some of those that wait."""
        if passes:
            loop.call_soon(self._rest, loop, passes - 1)
            return
        self._left = _AT_ONCE
        while self._waiting and self._left > 0:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():  # Else its call was cancelled, or it was given up.
                waiting.turn.set_result(None)
                self._left -= waiting.size
        self.busy = bool(self._waiting) or self._left <= 0
        self._resting = self._left < _AT_ONCE
        if self._resting:
            loop.call_soon(self._rest, loop, _PASSES - 1)


class _Waiting:
    """A result that waits for its turn. Implements `ekiden.transports.server.legacy.kept.Held`."""

    is_read = True
    """Its client waits for it."""

    def __init__(self, held: HeldBytes, client: str, outcome: Outcome, size: int) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is known whether it is sent."""
        self.outcome: Outcome | None = outcome
        """None if it is not sent."""
        self.size = size
        self._held = held
        self._client = client

    def give_up(self) -> None:
        """It is not sent: others need the memory, and many may be given up in one pass of the event loop."""
        self._held.hold(self._client, self, 0)
        if not self.turn.done():
            self.outcome = None
            self.turn.set_result(None)


def _size_of(result: Any) -> int:
    """About how many bytes a result has. Of very many values, not all are looked at."""
    size, left = 0, deque([result])
    for _ in range(_LOOKED_AT):
        if not left:
            break
        value = left.popleft()
        if isinstance(value, str | bytes):
            size += len(value)
        elif is_object(value):
            size += _PER_VALUE * len(value)
            left.extend(islice(value.values(), _LOOKED_AT))
        elif isinstance(value, list | tuple):
            values = cast("Sequence[Any]", value)
            size += _PER_VALUE * len(values)
            left.extend(islice(values, _LOOKED_AT))
    return size
