"""Tokens that were verified: known for a moment, and watched as long as streams of theirs last.

They are known by a digest: no token lies in memory for long, unless a stream of it is open.
"""

import asyncio
import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from ekiden.signals import VerifierUnavailable
from ekiden.wire.incoming import Incoming, Watching
from ekiden.wire.principal import Principal

__all__ = ["Known", "KnownTokens", "Watch", "digest_of"]

_log = logging.getLogger(__name__)

_MOST: Final = 10_000
"""Tokens that are remembered; then those that were verified first are forgotten. Each is a few KB."""
_MOST_LATELY: Final = 10_000
"""Digests that are remembered of tokens which were valid lately. Each takes some 200 bytes."""
_LATELY_SECONDS: Final = 3600.0
"""How long after its last verification a token counts as one that was valid lately."""
_DOUBT_SECONDS: Final = 60.0
"""How long a stream goes on while the verifier cannot say whether its token still counts."""
_RETRY_SECONDS: Final = 5.0
"""When the verifier is asked again that could not say; and the least between two questions of a stream."""
_MOST_ASKING: Final = 16
"""Streams that ask at the same time, so that calls find places beside them."""
_LONGEST_WAIT: Final = 600.0
"""How long a stream goes on that waits for its turn to ask."""


class Known(msgspec.Struct, frozen=True):
    """What was found out about a token. Implements `Authority` for requests that were admitted by it."""

    principal: Principal
    expires: float
    """When the token itself expires."""
    again: float
    """When it is to be verified again."""
    key: str | None
    """The thumbprint of the key that the token is bound to."""
    lasts: bool = False
    """Whether the verifier would say the same until the token expires: a stream of it need not ask again."""
    watcher: "Watcher | None" = None

    def watch(self, incoming: Incoming, end: Callable[[], None]) -> Watching:
        """Implements `Authority`."""
        assert self.watcher is not None
        return self.watcher(self, incoming, end)

    def covers(self, other: "Known") -> bool:
        """Whether it allows all that another one did: what was granted by that one stays granted."""
        return (
            self.principal.id == other.principal.id
            and self.principal.scopes >= other.principal.scopes
            and self.key == other.key
        )


Watcher: TypeAlias = Callable[[Known, Incoming, Callable[[], None]], Watching]


class KnownTokens:
    """Remembers verified tokens."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._lately: OrderedDict[bytes, float] = OrderedDict()
        """Until when tokens count as valid lately, those that were verified last at the end."""

    def get(self, digest: bytes, now: float) -> Known | None:
        """What is known about a token; None if it is to be verified."""
        known = self._known.get(digest)
        if known is None:
            return None
        if now >= known.again or now >= known.expires:
            del self._known[digest]
            return None
        return known

    def put(self, digest: bytes, known: Known, now: float) -> None:
        """Remember a token."""
        self._known[digest] = known
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        self._lately[digest] = min(known.expires, now + _LATELY_SECONDS)
        self._lately.move_to_end(digest)
        if len(self._lately) > _MOST_LATELY:
            self._lately.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """A token is not valid any more."""
        self._known.pop(digest, None)
        self._lately.pop(digest, None)

    def was_valid(self, digest: bytes, now: float) -> bool:
        """Whether a token was valid lately, and has not expired: nobody can invent such a one."""
        return now < self._lately.get(digest, -math.inf)

    def __len__(self) -> int:
        return len(self._known)


class Watch:
    """Calls `end` once a token does not count any more: when it expires, or its verifier refuses it.

    It takes one timer. `again` asks the verifier, when what it said last does not hold any more. While the
    verifier cannot say, the stream goes on for a minute, so that one that is started anew ends no streams.
    """

    def __init__(
        self,
        known: Known,
        again: Callable[[], Awaitable[Known | None]],
        clock: Callable[[], float],
        end: Callable[[], None],
    ) -> None:
        self._first = self._known = known
        self._again = again
        self._clock = clock
        self._end = end
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._doubted_since: float | None = None
        """From when on the verifier could not say."""
        self._wait_until(known.expires if known.lasts else known.again)

    def cancel(self) -> None:
        """The stream has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _wait_until(self, when: float) -> None:
        when = min(when, self._known.expires)
        if when < math.inf:
            seconds = max(0.0, when - self._clock())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._due, when)

    def _due(self, when: float) -> None:
        now = self._clock()
        if now < when:  # Two clocks.
            self._wait_until(when)
        elif now >= self._known.expires:
            self._end()
        else:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        known, now = self._known, self._clock()
        until = min(now + _LONGEST_WAIT, known.expires)
        try:
            async with asyncio.timeout(max(0.0, until - now)), _turns():
                await self._ask_now(known)
        except TimeoutError:
            self._end()

    async def _ask_now(self, known: Known) -> None:
        """Ask. To wait for a turn before is not counted as doubt: many streams may be due at once."""
        if self._doubted_since is None:
            self._doubted_since = self._clock()
        doubted_until = min(self._doubted_since + _DOUBT_SECONDS, known.expires)
        try:
            async with asyncio.timeout(max(0.0, doubted_until - self._clock())):
                found = await self._again()
        except Exception as problem:
            if self._clock() < doubted_until:
                self._wait_until(min(self._clock() + _RETRY_SECONDS, doubted_until))
                return
            if self._clock() < known.expires:
                is_bug = not isinstance(problem, VerifierUnavailable | TimeoutError)
                words = "A stream is ended: whether its access token still counts cannot be found out: %s"
                _log.error(words, problem or "the verifier says nothing", exc_info=is_bug)
            self._end()
            return
        if found is None or not found.covers(self._first):
            self._end()
        else:
            self._known, self._doubted_since = found, None
            soonest = self._clock() + _RETRY_SECONDS
            self._wait_until(found.expires if found.lasts else max(found.again, soonest))


_turns_of = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()


def _turns() -> asyncio.Semaphore:
    """The places for streams of this event loop that ask."""
    loop = asyncio.get_running_loop()
    if (turns := _turns_of.get(loop)) is None:
        turns = _turns_of[loop] = asyncio.Semaphore(_MOST_ASKING)
    return turns


def digest_of(token: bytes) -> bytes:
    """What a token is known by."""
    return hashlib.sha256(token).digest()
