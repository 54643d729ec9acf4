"""Tokens: the state of a call, sealed into `requestState`, and opened and verified out of it.

Every token that fails a check gets the same error, which tells the client to restart the call. The reason
goes to the log and to a metric, where no attacker reads it.
"""

import math
import os
import secrets
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ekiden.errors import InvalidParams, UsageError
from ekiden.rounds.call_state import CLOCK_SKEW, About, CallState, decode_state, encode_state, verify
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.ledger import Ledger
from ekiden.server.sealing.keys import TokenSealer
from ekiden.server.sealing.refused_states import RefusedStates
from ekiden.server.sealing.room import Room
from ekiden.signals import StateRefused
from ekiden.telemetry.metrics import STATE_REFUSED, STATE_SIZE, add, record
from ekiden.wire.json import canonical
from ekiden.wire.jsonrpc import RESTART
from ekiden.wire.modern import Request
from ekiden.wire.printable import printable

__all__ = ["RoundLimits", "Sealer"]

_REFUSED: Final = "Invalid or expired requestState: restart the call"

_SHORT: Final = 64
"""Arguments up to this many bytes are not hashed: hashing would cost more than carrying them."""

_NOTHING_ASKED: Final[Mapping[str, str]] = {}

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
    stored_bytes_per_principal: int | None = 64 * 1024 * 1024
    """Bytes of states that one process puts into the store for one principal, until they expire: a client
    decides how long its answers are. A round that needs more fails. As many again for rounds that are
    remembered, with the values of their steps: above that, no step of a further round begins. And as
    many for calls that wait for people, with their questions. None: any number."""
    stored_bytes_without_principal: int | None = 1024 * 1024 * 1024
    """The same for all clients together, if the server does not tell them apart. A quarter more is there for
    addresses that have almost nothing of it."""
    lease_seconds: float = 15.0
    """If the claim of a round is not renewed for this long, another worker may take the round over."""
    rerun_seconds: float = 0.25
    """If repeating what earlier rounds did takes longer than this, a warning says so."""
    parked_calls: int = 100
    """Parked handlers that may wait in one process. Each keeps all that it has acquired. The arguments and
    answers of all of them take 64 MiB at most; above it, one is given up of whoever has most."""

    def __post_init__(self) -> None:
        """Times are written into rows and tokens, which have no word for infinity."""
        for name in ("answer_seconds", "flow_seconds", "lease_seconds"):
            if not math.isfinite(getattr(self, name)):
                raise UsageError(f"RoundLimits({name}=...) must be a finite number of seconds")

    def room(self) -> Room:
        """A new count of the bytes that principals take of the store."""
        return Room(self.stored_bytes_per_principal, self.stored_bytes_without_principal)


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
        keys: Callable[[], TokenSealer],
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
        self._refused = RefusedStates()
        self._room = limits.room()

    def _about(self, request: Request) -> About:
        """What a token must have been issued for to be valid for this request."""
        arguments = canonical(request.params.get("arguments", {}))
        if len(arguments) > _SHORT:
            arguments = b"#" + fingerprint(arguments).encode()
        principal = "" if self._principal is None else self.principal_of(request)
        return self._audience, request.method, request.name or "", arguments, principal

    @property
    def tells_apart(self) -> bool:
        """Whether the server distinguishes principals."""
        return self._principal is not None

    def tell_apart(self, principal: Callable[[Request], str | None]) -> None:
        """Distinguish principals from now on."""
        self._principal = principal

    def principal_of(self, request: Request) -> str:
        """The principal of a request; empty if the server does not distinguish them."""
        return "" if self._principal is None else self._principal(request) or ""

    def first(self, request: Request) -> CallState:
        """The state of a call that begins now."""
        now = self._clock()
        audience, method, target, arguments, principal = self._about(request)
        return CallState(
            now,  # issued
            now,  # expires
            now,  # started
            audience,
            method,
            target,
            arguments,
            principal,
            os.urandom(_FLOW_BYTES).hex(),  # flow
            0,  # round
            _NOTHING_ASKED,
            (),  # pauses
            {},  # journal
        )

    def open(self, token: object, request: Request) -> CallState:
        """The state out of a token that was issued for this request. Every other token gives the same error.

        If the state have a `journal_id`, `fetch` must get the part that is in the store.
        """
        data = self._keys().open(token) if isinstance(token, str) else None
        try:
            if data is None:
                raise StateRefused("not sealed by a key of this ring")
            state = decode_state(data)
            verify(state, self._about(request), self._clock(), self.limits.flow_seconds)
        except StateRefused as refused:
            raise self._refusal(request, refused) from None
        except msgspec.MsgspecError as error:
            raise self._refusal(request, StateRefused(f"the content does not decode: {error}")) from None
        return state

    async def fetch(self, state: CallState, request: Request) -> None:
        """Get the part of the state that was too large to travel."""
        kept = None
        if self._store is not None and state.journal_id is not None:
            kept = await self._store.get_journal(state.journal_id)
        if kept is None:
            raise self._refusal(request, StateRefused("its journal is not in the store"))
        spilled = _spilled.decode(kept)
        state.journal, state.answers, state.manual = spilled.journal, spilled.answers, spilled.manual
        state.journal_id = None

    def keep_until(self, state: CallState) -> float:
        """Until when the round that follows a state must be remembered.

        That is, until no token that leads to this round can be used any more. There may be more than one:
        each round before it may have been sent again, late, if no step was run in it. If none of them has run
        for `answer_seconds` beyond its own token's time, every token of this round has expired by then.
        """
        limits = self.limits
        last = state.expires + (state.round - 1) * 2 * limits.answer_seconds
        return min(last, state.started + limits.flow_seconds) + CLOCK_SKEW

    def seal(self, state: CallState) -> str | None:
        """A token for the next round; None if it would be too large: then call `spill`."""
        state.issued = self._clock()
        state.expires = state.issued + self.limits.answer_seconds
        state.round += 1
        token = self._keys().seal(encode_state(state))
        if len(token) > self.limits.state_bytes:
            return None
        record(STATE_SIZE, len(token), {"ekiden.state.stored": False})
        return token

    async def spill(self, state: CallState, client: str = "") -> str:
        """Put the journal into the store, and return a token that refers to it. `client` is an address."""
        if self._store is None:
            size = len(self._keys().seal(encode_state(state)))
            raise UsageError(
                f"the state of {state.target!r} has {size} bytes, {self.limits.state_bytes} allowed. "
                f"The biggest entries: {_biggest(state)}. Keep less, or give the server a store="
            )
        spilled = msgspec.msgpack.encode(Spilled(state.journal, state.answers, state.manual))
        times = {"now": state.issued, "expires": state.expires}
        self._room.take(state.principal, len(spilled), **times, client=client)
        state.journal_id = f"{state.flow}.{state.round}.{secrets.token_urlsafe(6)}"
        await self._store.put_journal(state.journal_id, spilled, expires=state.expires)
        state.journal, state.answers, state.manual = {}, None, None
        token = self._keys().seal(encode_state(state))
        record(STATE_SIZE, len(token), {"ekiden.state.stored": True})
        return token

    def _refusal(self, request: Request, refused: StateRefused) -> InvalidParams:
        """The error that every refused token gets; the reason goes to the log."""
        self._refused.warn(request.method, printable(request.name or ""), str(refused))
        add(STATE_REFUSED, {"reason": str(refused).partition(":")[0]})
        return InvalidParams(_REFUSED, data={**RESTART})


def _biggest(state: CallState) -> str:
    sizes = {key[2:]: len(msgspec.msgpack.encode(entry.value)) for key, entry in state.journal.items()}
    sizes.update({key: len(msgspec.msgpack.encode(value)) for key, value in (state.answers or {}).items()})
    if state.manual is not None:
        sizes["request_state"] = len(state.manual)
    largest: Mapping[str, int] = dict(sorted(sizes.items(), key=lambda item: -item[1])[:3])
    return ", ".join(f"{key} ({size} bytes)" for key, size in largest.items()) or "none"
