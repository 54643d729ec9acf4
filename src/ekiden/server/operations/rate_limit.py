"""Rate limits as a ready middleware: how often a principal or an address may ask.

Each has a bucket of tokens that fills up over time, and every message takes one out. The buckets are in the
memory of this process: with several workers each of them counts for itself. As many buckets are kept as
`keys` says; the one that was used longest ago is given up for a new one.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ekiden.errors import StatusError, UsageError
from ekiden.rounds.outcome import Outcome
from ekiden.telemetry.metrics import RATE_LIMITED, add
from ekiden.transports.server.proxies import network_of
from ekiden.wire.modern import Request

__all__ = ["Rate", "RateLimit"]

_COUNTED: Final = frozenset({"request", "notification", "http"})
"""An answer to a pushed question is not counted: to refuse it would break the call that waits for it."""
_TOO_MANY: Final = 429


class Rate(msgspec.Struct, frozen=True):
    """So many messages in so many seconds, all of them at once if need be."""

    messages: int
    seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.messages < 1 or not 0 < self.seconds < math.inf:
            raise UsageError(f"{self!r}: a rate is at least one message, in a time above zero")


class _Bucket:
    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class _Buckets:
    """The buckets of one rate, by key."""

    def __init__(self, rate: Rate, most: int) -> None:
        self._full = float(rate.messages)
        self._per_second = rate.messages / rate.seconds
        self._most = most
        self._by_key: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def take(self, key: str, now: float) -> float:
        """Take one token; the seconds until there is one, or zero if there was."""
        bucket = self._by_key.get(key)
        if bucket is None:
            if len(self._by_key) >= self._most:
                self._by_key.popitem(last=False)
            bucket = self._by_key[key] = _Bucket(self._full, now)
        else:
            self._by_key.move_to_end(key)
            bucket.left = min(self._full, bucket.left + (now - bucket.at) * self._per_second)
            bucket.at = now
        if bucket.left >= 1.0:
            bucket.left -= 1.0
            return 0.0
        return (1.0 - bucket.left) / self._per_second


class RateLimit:
    """A middleware that refuses messages which come too often: `server.middleware(RateLimit(...))`.

    `per_principal` counts by the verified identity, or by what the function `principal` returns, and
    `per_address` by IP address (of IPv6 by network). Over HTTP a message too many is answered with 429 and
    `Retry-After`, elsewhere with an error that says how long to wait. Whoever has no principal is not counted
    by that, and nobody on stdio by address. HTTP requests of which the address is not known are counted
    together.
    """

    def __init__(
        self,
        *,
        per_principal: Rate | None = None,
        per_address: Rate | None = None,
        principal: Callable[[Request], str | None] | None = None,
        keys: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if per_principal is None and per_address is None:
            raise UsageError(
                "RateLimit() limits nothing: give per_principal=Rate(...) or per_address=Rate(...)"
            )
        if keys < 1:
            raise UsageError("RateLimit(keys=...) must be at least 1")
        self._principals = None if per_principal is None else _Buckets(per_principal, keys)
        self._addresses = None if per_address is None else _Buckets(per_address, keys)
        self._principal = principal or _verified
        self._clock = clock

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Outcome]]) -> Outcome:
        """Pass a message on, or refuse it."""
        if request.task is None and request.kind in _COUNTED:
            self._count(request)
        return await call_next(request)

    def _count(self, request: Request) -> None:
        now = self._clock()
        # The address first: whoever has no right to ask must not use up the tokens of somebody else.
        if self._addresses is not None and request.http is not None:
            # A client that resets its connection at once may have no address: it is counted all the same.
            _check(self._addresses.take(network_of(request.address or ""), now), "address")
        if self._principals is not None and (whose := self._principal(request)) is not None:
            _check(self._principals.take(whose, now), "principal")


def _verified(request: Request) -> str | None:
    return None if request.principal is None else request.principal.id


def _check(seconds: float, counted_by: str) -> None:
    if seconds > 0:
        add(RATE_LIMITED, {"ekiden.rate_limit.by": counted_by})
        wait = max(1, math.ceil(seconds))
        raise StatusError(
            _TOO_MANY,
            f"Too many requests: try again in {wait} s",
            headers={"Retry-After": str(wait)},
            data={"retryAfterSeconds": wait},
        )
