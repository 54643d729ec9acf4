"""`/healthz` and `/readyz`: whether the process lives, and whether it should be sent requests.

Both are for probes, which have no token and call a process by its address. They tell nothing but that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from ekiden.errors import StoreUnavailable
from ekiden.server.operations.routes import HttpRequest, HttpResponse

__all__ = ["HEALTH", "READY", "Readiness", "live"]

HEALTH: Final = "/healthz"
READY: Final = "/readyz"

_STORE_SECONDS: Final = 2.0
"""How long the store may take to answer. Probes give up after some seconds by themselves."""
_REMEMBERED_SECONDS: Final = 1.0
"""How long an answer of the store counts: anybody can call this page, and each call must not be a query."""


async def live(request: HttpRequest) -> HttpResponse:
    """The process answers: that is all."""
    return HttpResponse("ok\n", headers={"cache-control": "no-store"})


class Readiness:
    """Whether a server should be sent requests. `problem` says why not; `look` reads from the store."""

    def __init__(
        self, problem: Callable[[], str | None], look: Callable[[], Awaitable[object]] | None
    ) -> None:
        self._problem = problem
        self._look = look
        self._looked_at = float("-inf")
        self._found: str | None = None
        self._looking: asyncio.Task[str | None] | None = None

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        """200 if it is ready, else 503 and why not."""
        problem = self._problem() or await self._store_problem()
        headers = {"cache-control": "no-store"}
        if problem is None:
            return HttpResponse("ready\n", headers=headers)
        return HttpResponse(f"{problem}\n", 503, headers | {"retry-after": "1"})

    async def _store_problem(self) -> str | None:
        if self._look is None or time.monotonic() - self._looked_at < _REMEMBERED_SECONDS:
            return self._found
        # Whoever comes while the store is asked waits for the same answer.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._ask(self._look))
        return await asyncio.shield(self._looking)

    async def _ask(self, look: Callable[[], Awaitable[object]]) -> str | None:
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await look()
            self._found = None
        except (StoreUnavailable, TimeoutError):
            self._found = "the store cannot be reached"
        self._looked_at = time.monotonic()
        return self._found
