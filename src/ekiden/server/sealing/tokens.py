"""Tokens: claims sealed into `requestState`, and opened and verified out of it.

Every token that fails a check gets the same error. The reason goes to the log and to a metric, where no
attacker reads it.
"""

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ekiden.errors import InvalidParams, StateRefused, UsageError
from ekiden.rounds.claims import About, Claims, decode_claims, encode_claims, verify
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.ledger import Ledger
from ekiden.server.sealing.keys import KeyRing
from ekiden.telemetry.counts import count
from ekiden.wire.json import canonical
from ekiden.wire.modern import Request

__all__ = ["RoundLimits", "Sealer"]

_log = logging.getLogger(__name__)

_REFUSED: Final = "Invalid or expired requestState"

_SHORT: Final = 64
"""Arguments up to this many bytes are not hashed: hashing would cost more than carrying them."""

_FLOW_BYTES: Final = 12
"""96 bits: the ids of calls never collide by chance, and cannot be guessed."""


class RoundLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how large a call of several rounds may be."""

    answer_seconds: float = 600.0
    """How long a token can be used: a user reads, thinks and clicks within ten minutes."""
    flow_seconds: float = 86_400.0
    """How long a call may take in all, however many rounds it has."""
    state_bytes: int = 64 * 1024
    """The size of a token. Above it the journal goes to the store; without a store the call fails."""
    lease_seconds: float = 15.0
    """If the claim of a round is not renewed for this long, another worker may take the round over."""
    rerun_seconds: float = 0.25
    """If repeating what earlier rounds did takes longer than this, a warning says so."""
    parked_calls: int = 100
    """Parked handlers that may wait in one process. Each keeps all that it has acquired."""


class Spilled(msgspec.Struct, array_like=True):
    """The part of a token that goes to the store if the token is too large to travel."""

    journal: dict[str, Entry]
    answers: dict[str, object] | None
    manual: str | None


_spilled = msgspec.msgpack.Decoder(Spilled)


class Sealer:
    """Seals and opens the state of one server's calls."""

    def __init__(
        self,
        audience: str,
        keys: Callable[[], KeyRing],
        store: Ledger | None,
        principal: Callable[[Request], str | None] | None,
        limits: RoundLimits,
        clock: Callable[[], float],
    ) -> None:
        self.limits = limits
        self._audience = audience
        self._keys = keys
        self._store = store
        self.stored = store is not None
        self._principal = principal
        self._clock = clock

    def _about(self, request: Request) -> About:
        """What a token must have been issued for to be valid for this request."""
        arguments = canonical(request.params.get("arguments", {}))
        if len(arguments) > _SHORT:
            arguments = b"#" + fingerprint(arguments).encode()
        return (
            self._audience,
            request.method,
            request.name or "",
            arguments,
            "" if self._principal is None else self._principal(request) or "",
        )

    def first(self, request: Request) -> Claims:
        """The claims of a call that begins now."""
        now = self._clock()
        claims = Claims(
            now,  # issued
            now,  # expires
            now,  # started
            *self._about(request),
            os.urandom(_FLOW_BYTES).hex(),  # flow
            0,  # round
            {},  # asked
            [],  # pauses
            {},  # journal
        )
        trace = request.meta.fields.get("traceparent")
        if type(trace) is str:
            claims.trace = trace
        return claims

    def open(self, token: object, request: Request) -> Claims:
        """The claims of a token that was issued for this request. Every other token gives the same error.

        If the claims have a `journal_id`, `fetch` must get the part that is in the store.
        """
        data = self._keys().open(token) if isinstance(token, str) else None
        try:
            if data is None:
                raise StateRefused("not sealed by a key of this ring")
            claims = decode_claims(data)
            verify(claims, self._about(request), now=self._clock(), max_age=self.limits.flow_seconds)
        except StateRefused as refused:
            raise _refusal(request, refused) from None
        except msgspec.MsgspecError as error:
            raise _refusal(request, StateRefused(f"the content does not decode: {error}")) from None
        return claims

    async def fetch(self, claims: Claims, request: Request) -> None:
        """Get the part of the claims that was too large to travel."""
        kept = None
        if self._store is not None and claims.journal_id is not None:
            kept = await self._store.get_journal(claims.journal_id)
        if kept is None:
            raise _refusal(request, StateRefused("its journal is not in the store"))
        spilled = _spilled.decode(kept)
        claims.journal, claims.answers, claims.manual = spilled.journal, spilled.answers, spilled.manual
        claims.journal_id = None

    def seal(self, claims: Claims) -> str | None:
        """A token for the next round; None if it would be too large: then call `spill`."""
        claims.issued = self._clock()
        claims.expires = claims.issued + self.limits.answer_seconds
        claims.round += 1
        token = self._keys().seal(encode_claims(claims))
        return token if len(token) <= self.limits.state_bytes else None

    async def spill(self, claims: Claims) -> str:
        """Put the journal into the store, and return a token that refers to it."""
        if self._store is None:
            size = len(self._keys().seal(encode_claims(claims)))
            raise UsageError(
                f"the state of {claims.target!r} has {size} bytes, {self.limits.state_bytes} allowed. "
                f"The biggest entries: {_biggest(claims)}. Keep less, or give the server a store="
            )
        spilled = Spilled(claims.journal, claims.answers, claims.manual)
        claims.journal_id = f"{claims.flow}.{claims.round}.{secrets.token_urlsafe(6)}"
        await self._store.put_journal(
            claims.journal_id, msgspec.msgpack.encode(spilled), expires=claims.expires
        )
        claims.journal, claims.answers, claims.manual = {}, None, None
        return self._keys().seal(encode_claims(claims))


def _refusal(request: Request, refused: StateRefused) -> InvalidParams:
    """The error that every refused token gets; the reason goes to the log."""
    _log.info("requestState refused for %s %s: %s", request.method, request.name, refused)
    count("ekiden.state.refused", {"reason": str(refused).partition(":")[0]})
    return InvalidParams(_REFUSED)


def _biggest(claims: Claims) -> str:
    sizes = {key[2:]: len(msgspec.msgpack.encode(entry.value)) for key, entry in claims.journal.items()}
    sizes.update({key: len(msgspec.msgpack.encode(value)) for key, value in (claims.answers or {}).items()})
    if claims.manual is not None:
        sizes["request_state"] = len(claims.manual)
    largest: Mapping[str, int] = dict(sorted(sizes.items(), key=lambda item: -item[1])[:3])
    return ", ".join(f"{key} ({size} bytes)" for key, size in largest.items()) or "none"
