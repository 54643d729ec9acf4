"""Access tokens that are being verified: how many at once, and of whom.

Each may be a request to the authorization server. Whoever invents tokens must not keep all others out while
that is slow. So the places are shared fairly: if all are taken, who has fewer than others gets one of theirs.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from ekiden.server.auth.known import Known
from ekiden.signals import VerifierUnavailable
from ekiden.transports.server.proxies import network_of

__all__ = ["Verification", "Verifications"]

Verification: TypeAlias = asyncio.Task[Known | None]

_MOST_AT_ONCE: Final = 64
"""Tokens that are verified at once."""
_MOST_OF_ONE: Final = _MOST_AT_ONCE // 2
"""Those of one address, or network of IPv6."""
_LONGEST_SECONDS: Final = 30.0
"""How long one may take: a verifier that hangs must not keep its place."""


class Verifications:
    """Runs `verify` for tokens, each in a task of its own."""

    def __init__(self, verify: Callable[[bytes, bytes], Coroutine[Any, Any, Known | None]]) -> None:
        self._verify = verify
        self._running: dict[bytes, Verification] = {}
        self._of: dict[str | None, dict[bytes, None]] = {}
        """Whose they are: digests of tokens by network, the latest at the end."""

    def begin(self, token: bytes, digest: bytes, address: str | None) -> Verification | None:
        """The verification of a token, for all who have sent it meanwhile; None if there is no room."""
        running = self._running.get(digest)
        if running is not None:
            return running
        network = None if address is None else network_of(address)
        has = len(self._of.get(network, ()))
        if has >= _MOST_OF_ONE or (len(self._running) >= _MOST_AT_ONCE and not self._make_room(has)):
            return None
        task = asyncio.get_running_loop().create_task(self._bounded(token, digest))
        self._running[digest] = task
        self._of.setdefault(network, {})[digest] = None
        task.add_done_callback(functools.partial(self._ended, digest, network))
        return task

    async def _bounded(self, token: bytes, digest: bytes) -> Known | None:
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                return await self._verify(token, digest)
        except TimeoutError as error:
            raise VerifierUnavailable(f"nothing was heard within {_LONGEST_SECONDS:g} seconds") from error

    def _make_room(self, has: int) -> bool:
        """Give up the latest verification of whoever has most, for somebody who has fewer."""
        network, most = max(self._of.items(), key=lambda item: len(item[1]))
        if len(most) <= has + 1:
            return False
        digest = next(reversed(most))
        self._running[digest].cancel()
        self._forget(digest, network)
        return True

    def _forget(self, digest: bytes, network: str | None) -> None:
        del self._running[digest]
        del self._of[network][digest]
        if not self._of[network]:
            del self._of[network]

    def _ended(self, digest: bytes, network: str | None, task: Verification) -> None:
        if self._running.get(digest) is task:
            self._forget(digest, network)
        if not task.cancelled():
            task.exception()  # Whoever waited has logged it. If nobody did, nobody needs to know.
