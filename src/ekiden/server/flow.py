"""A call over its rounds: open the state, run the handler over its journal, seal what goes on.

This is where a leg meets the world: keys, the store, the clock, the parking lot. A call whose
handler takes no `Context` and brings no state never comes here.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import InternalError, InvalidParams, MissingCapability, NonDeterminismError
from ekiden.rounds.asks import declares
from ekiden.rounds.claims import Claims
from ekiden.rounds.journal import Entry, Journal, fingerprint
from ekiden.rounds.leg import Ended, Leg, Restart, Suspended, mixed_styles
from ekiden.rounds.outcome import Failed, Interim, Outcome
from ekiden.server.context import Context
from ekiden.server.handlers import Handler
from ekiden.server.manual import InputRequired, capabilities_for, spelled_requests
from ekiden.server.once import Once, RoundClaim
from ekiden.server.parked import ParkingLot
from ekiden.server.push import PushedCalls
from ekiden.server.sealing import Sealer
from ekiden.telemetry.counts import record
from ekiden.telemetry.spans import link_to
from ekiden.transports.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import canonical, is_object
from ekiden.wire.modern import Request

__all__ = ["Call", "Conclude", "Flows"]

_log = logging.getLogger("ekiden.rounds")

Conclude: TypeAlias = Callable[[Awaitable[Any]], Awaitable[Outcome | Suspended | InputRequired]]
"""How a kind of handler turns its value, or what it raised, into an outcome."""

_ABSENT: Final = object()
_GIVE_UP: Final = 10
"""Interim results after which clients give up by default; all official SDKs agree on it."""


class Call(msgspec.Struct):
    """One request, with the handler that answers it."""

    request: Request
    stream: Stream
    state: Any
    handler: Handler
    arguments: dict[str, Any]
    title: str
    """The handler in words, for logs and errors."""
    conclude: Conclude


class Flows:
    """Runs calls of one server."""

    def __init__(self, sealer: Sealer, once: Once, clock: Callable[[], float]) -> None:
        self._sealer = sealer
        self._once = once
        self._clock = clock
        limits = sealer.limits
        self.watch: Callable[[Leg], None] | None = None
        """Told of every leg before it runs; for tests."""
        self._pushed = PushedCalls(sealer, clock)
        self.parking = ParkingLot(most=limits.parked_calls, seconds=limits.answer_seconds)

    async def run(self, call: Call) -> Outcome:
        """One round of a call, or all of it where the client can be asked while it runs."""
        if call.request.meta.protocol_version in versions.LEGACY:
            return await self._pushed.run(call)
        responses = _responses(call.request.params)
        token = call.request.params.get("requestState", _ABSENT)
        if token is _ABSENT:
            claims = self._sealer.first(call.request)
            return await self._round(call, claims, responses, first=True)
        claims = await self._sealer.open(token, call.request)
        if claims.trace is not None:
            link_to(claims.trace)
        if claims.parked is not None:
            return await self._resume(call, claims, responses)
        return await self._round(call, claims, responses, first=False)

    async def _round(
        self, call: Call, claims: Claims, responses: Mapping[str, Any], *, first: bool
    ) -> Outcome:
        memory = self._memory(call, claims, responses, first=first)
        if memory is not None and (recorded := memory.recorded()) is not None:
            return recorded
        for pause in claims.pauses:
            claims.journal[pause] = Entry("pause", "", None, True)
        if call.handler.parked:
            self.parking.check_room()
        if memory is not None and call.handler.once is True:
            try:
                await memory.own()
            except Ended as ended:
                return ended.outcome
        while True:
            try:
                return await self._attempt(call, claims, responses, memory, first=first)
            except Restart as restart:
                claims.journal.update(restart.draws)

    async def _attempt(
        self,
        call: Call,
        claims: Claims,
        responses: Mapping[str, Any],
        memory: RoundClaim | None,
        *,
        first: bool,
    ) -> Outcome:
        leg = Leg(
            call.title,
            Journal(dict(claims.journal)),
            responses=responses,
            asked=None if first and call.handler.once is not True else claims.asked,
            fresh=first,
            capabilities=call.request.meta.capabilities,
            clock=self._clock,
            flow=claims.flow,
            memory=memory,
            parked=call.handler.parked,
        )
        if self.watch is not None:
            self.watch(leg)
        context = Context(call.request, call.stream, call.state, leg, claims, responses)
        arguments = call.arguments
        if call.handler.context is not None:
            arguments[call.handler.context] = context
        run = self._timed(leg, call.handler.call(**arguments), first=first)
        return await self._end(call, claims, leg, context, run, memory)

    async def _resume(self, call: Call, claims: Claims, responses: Mapping[str, Any]) -> Outcome:
        ticket, claims.parked = claims.parked or "", None
        values = self.parking.peek(ticket).leg.read(responses)
        parked = self.parking.take(ticket)
        context: Context[Any] = parked.context
        context.rebind(call.request, call.stream)
        run = parked.leg.resume(values, call.request.meta.capabilities)
        return await self._end(call, claims, parked.leg, context, run, None)

    def _memory(
        self, call: Call, claims: Claims, responses: Mapping[str, Any], *, first: bool
    ) -> RoundClaim | None:
        # The first call has no token that a repeat could bring again, and a parked one is resumed once.
        if first or call.handler.once is False or call.handler.parked:
            return None
        return self._once.claim(claims.flow, claims.round, fingerprint(canonical(responses)))

    async def _timed(self, leg: Leg, handler: Coroutine[Any, Any, Any], *, first: bool) -> Any:
        """Run the leg; say how long it took to come to where it was before."""
        if first:
            return await leg.run(handler)
        started = time.perf_counter()

        def arrived() -> None:
            seconds = time.perf_counter() - started
            record("ekiden.round.rerun.duration", seconds, {"handler": leg.handler})
            if seconds > self._sealer.limits.rerun_seconds:
                _log.warning(
                    "%s spent %.0f ms on what earlier rounds did already; put its slow parts into ctx.step",
                    leg.handler,
                    seconds * 1000,
                )

        leg.on_fresh = arrived
        return await leg.run(handler)

    async def _end(
        self,
        call: Call,
        claims: Claims,
        leg: Leg,
        context: Context[Any],
        run: Coroutine[Any, Any, Any],
        memory: RoundClaim | None,
    ) -> Outcome:
        try:
            ended = await call.conclude(run)
            outcome = await self._outcome(call, claims, leg, context, ended)
        except Restart:
            raise
        except Ended as recorded:
            if memory is not None:
                await memory.release()
            return recorded.outcome
        except NonDeterminismError as error:
            _log.error("%s", error)
            outcome = Failed(
                InternalError("The handler does not replay as in its earlier rounds: restart the call")
            )
        except BaseException:
            if memory is not None:
                await memory.release()
            raise
        if memory is not None:
            await memory.finish(outcome)
        return outcome

    async def _outcome(
        self,
        call: Call,
        claims: Claims,
        leg: Leg,
        context: Context[Any],
        ended: Outcome | Suspended | InputRequired,
    ) -> Outcome:
        claims.journal = leg.journal.entries
        if isinstance(ended, Suspended):
            requests = {key: ask.request() for key, ask in ended.asks.items()}
            claims.asked = {key: ask.digest for key, ask in ended.asks.items()}
            claims.pauses = ended.pauses
            if call.handler.parked:
                claims.parked, claims.journal = self.parking.park(leg, context), {}
        elif isinstance(ended, InputRequired):
            requests = self._manual(call, claims, leg, context, ended)
            if ended.request_state is None and not claims.answers and not claims.journal:
                return Interim(requests, None)
        else:
            return ended
        self._warn_of_length(leg.handler, claims.round + 1)
        return Interim(requests, await self._sealer.seal(claims))

    def _manual(
        self, call: Call, claims: Claims, leg: Leg, context: Context[Any], ended: InputRequired
    ) -> dict[str, dict[str, Any]]:
        if leg.style == "asks":
            raise mixed_styles(leg.handler)
        requests = spelled_requests(ended)
        for request in requests.values():
            if not declares(call.request.meta.capabilities, needed := capabilities_for(request)):
                raise MissingCapability(needed)
        claims.answers = context.raw_responses() or None
        claims.asked = {key: request["method"] for key, request in requests.items()}
        claims.pauses = []
        claims.manual = ended.request_state
        return requests

    def _warn_of_length(self, handler: str, rounds: int) -> None:
        if rounds >= _GIVE_UP - 2:
            _log.warning(
                "%s has ended %d rounds; clients give up after %d by default", handler, rounds, _GIVE_UP
            )


def _responses(params: dict[str, Any]) -> dict[str, Any]:
    responses = params.get("inputResponses", {})
    if not is_object(responses):
        raise InvalidParams("Invalid params: `inputResponses` must be an object")
    return responses
