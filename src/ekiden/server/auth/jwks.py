"""The public keys of one issuer (JWKS, RFC 7517): fetched when they are needed, kept, and fetched again.

A token with an unknown key id may come from a key that is new. So the keys are fetched again then, but not
more often than every `least_seconds`: anybody can send tokens with invented key ids. Keys that are known are
fetched again while they go on being used, so that an issuer that is slow or away holds up nobody.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ekiden.server.auth.fetching import Fetcher, check_url
from ekiden.server.auth.issuers import discover
from ekiden.signals import VerifierUnavailable
from ekiden.wire.json import is_array, is_object

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = ["KeySet", "not_asymmetric"]

_log = logging.getLogger(__name__)

_MOST_KEYS: Final = 100
"""Keys of one set that are looked at. Issuers have a handful."""
_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The key type of an algorithm, by the first letters of its name."""
_LEAST_RSA_BITS: Final = 2048
_LATE_SECONDS: Final = 300.0
"""How much later than they should have been fetched again keys are used at once, if nothing is amiss. After a
longer silence a token waits for the newest keys: its key may have been withdrawn."""
_SHORT_SECONDS: Final = 1.0
"""How long such a token waits."""


class KeySet:
    """The keys of one issuer."""

    def __init__(
        self, issuer: str, jwks_uri: str | None, fetcher: Fetcher, *, seconds: float, least_seconds: float
    ) -> None:
        self._issuer = issuer
        self._uri = jwks_uri
        self._fetcher = fetcher
        self._seconds = seconds
        self._least_seconds = least_seconds
        self._keys: list[Mapping[str, Any]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._is_slow = False
        """Whether the issuer has failed, or was slow, since the keys were fetched."""
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        """The key that a token names; without a name, the only one that fits the algorithm."""
        found = self.at_hand(key_id, algorithm)
        if found is not None:
            return found
        now = asyncio.get_running_loop().time()
        is_known = self._fitting(key_id, algorithm) is not None
        if is_known or now - self._fetched_at > min(self._seconds, self._least_seconds):
            await self._refresh(now, _SHORT_SECONDS if is_known else None)
        return self._fitting(key_id, algorithm)

    def at_hand(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        """The key, if it is known and need not be waited for. Keys that are old are fetched meanwhile."""
        found, now = self._fitting(key_id, algorithm), asyncio.get_running_loop().time()
        age = now - self._fetched_at
        if found is None or age <= self._seconds:
            return found
        self._begin(now)
        return found if self._is_slow or age <= self._seconds + _LATE_SECONDS else None

    def _fitting(self, key_id: str | None, algorithm: str) -> "PyJWK | None":
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        fitting = [key for key in self._keys if _fits(key, key_id, algorithm)]
        if not fitting or (key_id is None and len(fitting) > 1):
            return None
        try:
            key = PyJWK(dict(fitting[0]), algorithm)
        except (PyJWTError, ValueError, TypeError, AttributeError) as error:
            _log.warning("A key of %s cannot be used: %s", self._issuer, error)
            return None
        bits = getattr(key.key, "key_size", None)
        if key.key_type == "RSA" and (bits or 0) < _LEAST_RSA_BITS:
            _log.warning("A key of %s cannot be used: it has only %s bits", self._issuer, bits)
            return None
        return key

    def _begin(self, now: float) -> "asyncio.Task[None] | None":
        """Fetch the keys, unless that was tried a moment ago; the fetching that is under way, if any."""
        if self._fetching is None and now - self._tried_at >= self._least_seconds:
            self._tried_at = now
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _refresh(self, now: float, seconds: float | None) -> None:
        """Fetch the keys, together with all who want that now. What there was stays if it cannot be done."""
        fetching = self._begin(now)
        if fetching is None:
            self._check_any("the last attempt was a moment ago")
            return
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(fetching)
        except VerifierUnavailable as problem:
            self._check_any(str(problem))
        except TimeoutError:
            self._is_slow = True  # Nobody else waits for this.

    def _fetched(self, fetching: "asyncio.Task[None]") -> None:
        self._fetching = None
        if fetching.cancelled():
            return
        problem = fetching.exception()
        self._is_slow = problem is not None
        if problem is not None and self._keys:
            _log.warning("The keys of %s stay as they were: %s", self._issuer, problem)

    async def close(self) -> None:
        """Give up fetching."""
        if (fetching := self._fetching) is not None:
            fetching.cancel()
            await asyncio.wait({fetching})

    def _check_any(self, problem: str) -> None:
        if not self._keys:
            raise VerifierUnavailable(f"there are no keys of {self._issuer}: {problem}")

    async def _fetch(self) -> None:
        if self._uri is None:
            found = await discover(self._issuer, self._fetcher)
            uri = found.get("jwks_uri")
            if not isinstance(uri, str):
                raise VerifierUnavailable(f"the metadata of {self._issuer} has no jwks_uri")
            self._uri = check_url(uri, "jwks_uri")
        keys = (await self._fetcher.get(self._uri)).get("keys")
        if not is_array(keys):
            raise VerifierUnavailable(f"{self._uri} is not a key set")
        self._keys = [key for key in keys[:_MOST_KEYS] if is_object(key)]
        self._fetched_at = asyncio.get_running_loop().time()


def _fits(key: Mapping[str, Any], key_id: str | None, algorithm: str) -> bool:
    """Whether a key may verify signatures of that algorithm. Shared secrets are never looked at."""
    return (
        (key_id is None or key.get("kid") == key_id)
        and key.get("kty") == _TYPES.get(algorithm[:2])
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
    )


def not_asymmetric(algorithms: Collection[str]) -> list[str]:
    """Those of the algorithms that cannot be allowed: shared secrets, no signature at all, unknown names."""
    return [name for name in algorithms if name[:2] not in _TYPES]
