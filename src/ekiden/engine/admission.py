"""How long what a host has verified counts, for requests that are answered for a long time: subscriptions."""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ekiden.server.auth.known import Known, Watch
from ekiden.wire.incoming import Watching
from ekiden.wire.principal import Principal

__all__ = ["Again", "Lasting", "lasting"]

Lasting: TypeAlias = Callable[[Callable[[], None]], Watching]
"""Calls a function when a token does not count any more, unless what it returns is cancelled before."""
Again: TypeAlias = Callable[[], Awaitable[tuple[Principal, float | None] | None]]
"""Asks whose a token is now, and when it expires; None if it is not valid any more."""

_SECONDS: Final = 60.0
"""How often the verifier of a host is asked about the token of an open subscription."""


def lasting(principal: Principal, expires: float | None, again: Again | None) -> Lasting:
    """For `engine.request(lasting=)`: a subscription of the request ends with its access token.

    `expires` is a time as `time.time()` has it. `again` is asked every minute; the subscription ends when it
    has said None, or that the token grants less, or nothing at all for a minute.
    """

    def known(principal: Principal, expires: float | None) -> Known:
        until = math.inf if expires is None else expires
        return Known(principal, until, time.time() + _SECONDS, None, lasts=again is None)

    async def ask() -> Known | None:
        found = None if again is None else await again()
        return None if found is None else known(*found)

    first = known(principal, expires)
    return lambda end: Watch(first, ask, time.time, end)
