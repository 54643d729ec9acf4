"""A call over its rounds: open the state, run the handler over its journal, seal the next state.

This connects a leg, which does no I/O, with keys, the store, the clock and parked handlers. A call
without state whose handler takes no `Context` does not come here.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import Ended, InternalError, InvalidParams, MissingCapability, NonDeterminismError, Restart
from ekiden.rounds.asks import RoundQuestions, declares
from ekiden.rounds.claims import Claims
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.journal import UNKNOWN_BRANCH, Entry, Journal
from ekiden.rounds.leg import BACKGROUND, Leg, Suspended
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome
from ekiden.rounds.replay import Replay
from ekiden.server.context import Context
from ekiden.server.questions.input_required import InputRequired, capabilities_for, spelled_requests
from ekiden.server.questions.questions import check_answers
from ekiden.server.registration.registry import Registry
from ekiden.server.rounds.call import Call
from ekiden.server.rounds.once import Once, RoundClaim
from ekiden.server.rounds.parked import ParkingLot
from ekiden.server.rounds.pushed import PushedCalls
from ekiden.server.sealing.tokens import Sealer
from ekiden.server.tasks.methods import TaskMethods
from ekiden.server.tasks.tasks import Tasks
from ekiden.telemetry.counts import record
from ekiden.telemetry.spans import link_to
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, copied

__all__ = ["Rounds"]

_log = logging.getLogger(__name__)

_NO_RESPONSES: Final[JsonObject] = {}

_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None)})

_GIVE_UP: Final = 10
"""Interim results after which clients give up by default; all official SDKs agree on it."""


class Rounds:
    """Runs calls of one server."""

    def __init__(self, sealer: Sealer, once: Once, clock: Callable[[], float]) -> None:
        self._sealer = sealer
        self.once = once
        self._clock = clock
        limits = sealer.limits
        self.watch: Callable[[Leg], None] | None = None
        """Called with every leg before it runs; for tests."""
        self.pushed = PushedCalls(sealer, clock)
        """Runs the calls of clients of 2025, to which questions are pushed."""
        self.tasks: Tasks | None = None
        """The tasks of the server; None if its store keeps none."""
        self.task_methods: TaskMethods | None = None
        self.stored = sealer.stored
        """Whether there is a store at all."""
        self.parking = ParkingLot(most=limits.parked_calls, seconds=limits.answer_seconds)

    def offer_tasks(self, tasks: Tasks, registry: Registry) -> None:
        """Let calls become tasks, and answer the `tasks/` methods."""
        self.tasks = tasks
        self.task_methods = TaskMethods(tasks, registry)

    def run(self, call: Call) -> Coroutine[Any, Any, Outcome]:
        """Run one round of a call."""
        params = call.request.params
        responses: Any = params.get("inputResponses", _NO_RESPONSES)
        if responses.__class__ is not dict:
            raise InvalidParams("Invalid params: `inputResponses` must be an object")
        if "requestState" in params:
            return self._later_round(call, responses)
        claims = self._sealer.first(call.request)
        asked: dict[str, str] | None = {} if call.handler.once is True else None
        if self.tasks is not None and call.handler.task in ("optional", "required"):
            return self._first_or_task(self.tasks, call, claims, responses, asked)
        # A first round has no token by which a repeat could be recognised, so it needs no claim.
        return self._run_leg(call, claims, responses, asked, None)

    async def _first_or_task(
        self,
        tasks: Tasks,
        call: Call,
        claims: Claims,
        responses: Mapping[str, object],
        asked: dict[str, str] | None,
    ) -> Outcome:
        if call.request.meta.protocol_version == versions.MODERN:
            task = await tasks.from_start(call.request, claims, required=call.handler.task == "required")
            if task is not None:
                return task
        return await self._run_leg(call, claims, responses, asked, None)

    async def legacy_task(self, call: Call) -> Outcome | None:
        """Create a task for a call if a client with a handshake asks for one; else None."""
        if self.task_methods is None or call.request.method != "tools/call":
            return None
        claims = self._sealer.first(call.request)
        return await self.task_methods.legacy.begin(call.request, claims, call.handler, call.stream)

    async def _later_round(self, call: Call, responses: Mapping[str, object]) -> Outcome:
        """Run a round after the first."""
        request, handler = call.request, call.handler
        claims = self._sealer.open(request.params["requestState"], request)
        if claims.journal_id is not None:
            await self._sealer.fetch(claims, request)
        if claims.trace is not None:
            link_to(claims.trace)
        if claims.parked is not None:
            return await self._resume(call, claims, responses)
        check_answers(claims.asked, responses)
        memory = None
        if handler.once is not False and not handler.parked:
            memory = RoundClaim(
                self.once, f"{claims.flow}.{claims.round}", request.params["requestState"], responses
            )
            recorded = await (memory.recorded_for_certain() if handler.once is True else memory.look())
            if recorded is not None:
                return recorded
        for pause in claims.pauses:
            claims.journal[pause] = Entry("pause", "", None, UNKNOWN_BRANCH)
        if memory is not None and memory.claimed is not None:
            _append(claims.journal, memory.claimed.entries)
        raw = _unshared(call.given.raw)
        while True:
            try:
                return await self._run_leg(call, claims, responses, claims.asked, memory)
            except Restart as restart:
                _append(claims.journal, restart.entries)
                call.given.bound = call.given.bind(_unshared(raw))

    def _new_leg(
        self,
        call: Call,
        claims: Claims,
        responses: Mapping[str, object],
        asked: Mapping[str, str] | None,
        memory: RoundClaim | None,
    ) -> tuple[Leg, Context[Any], Coroutine[Any, Any, Any]]:
        """Make the leg of a round; returns it, its context, and the coroutine that runs it."""
        request, handler = call.request, call.handler
        if handler.parked:
            self.parking.check_room()
        replay = Replay(
            HandlerTask(call.title),
            Journal.of(claims.journal.copy()) if claims.journal else Journal(),
            RoundQuestions(call.title, responses, asked, request.meta.capabilities),
            self._clock,
            claims.flow,
            memory,
            not claims.round,
            self._caught_up,
            handler.parked,
        )
        leg = Leg(replay, claims.pauses)
        if handler.task == "never":
            leg.can_background = None
        elif self.tasks is not None:
            leg.can_background = self.tasks.wanted_by(request)
        if self.watch is not None:
            self.watch(leg)
        context = Context(request, call.stream, call.state, leg, claims, responses, handler.function)
        if handler.context is not None:
            call.given.bound[handler.context] = context
        return leg, context, leg.run(handler.call(**call.given.bound))

    async def _resume(self, call: Call, claims: Claims, responses: Mapping[str, object]) -> Outcome:
        ticket, claims.parked = claims.parked or "", None
        values = self.parking.peek(ticket).leg.read(responses)
        parked = self.parking.take(ticket)
        context: Context[Any] = parked.context
        context.rebind(call.request, call.stream)
        try:
            ended = _returned(call, await parked.leg.go_on(values, call.request.meta.capabilities))
        except BaseException as error:
            ended = call.ending.failed(error)
        return await self._end_round(call, claims, parked.leg, context, ended)

    def _caught_up(self, title: str, seconds: float) -> None:
        """Replay has caught up with the earlier rounds: record how long it took."""
        record("ekiden.round.rerun.duration", seconds, {"handler": title})
        if seconds > self._sealer.limits.rerun_seconds:
            _log.warning(
                "%s took %.0f ms to repeat what earlier rounds did; put its slow parts into ctx.step",
                title,
                seconds * 1000,
            )

    async def _run_leg(
        self,
        call: Call,
        claims: Claims,
        responses: Mapping[str, object],
        asked: Mapping[str, str] | None,
        memory: RoundClaim | None,
    ) -> Outcome:
        """Run the handler once, over its journal, to the end of its round; record the outcome if claimed."""
        outcome: Outcome
        try:
            leg, context, run = self._new_leg(call, claims, responses, asked, memory)
            try:
                ended = _returned(call, await run)
            except BaseException as error:
                ended = call.ending.failed(error)
            if type(ended) is Complete:
                outcome = ended
            else:
                outcome = await self._end_round(call, claims, leg, context, ended)
        except Restart:
            raise
        except Ended as recorded:
            if memory is not None:
                await memory.release()
            outcome = recorded.outcome
            return outcome
        except NonDeterminismError as error:
            _log.error("%s", error)
            outcome = Failed(
                InternalError("The handler does not replay as in its earlier rounds: restart the call")
            )
        except BaseException:
            if memory is not None:
                await memory.release()
            raise
        return outcome if memory is None or memory.claimed is None else await memory.finish(outcome)

    async def _end_round(
        self,
        call: Call,
        claims: Claims,
        leg: Leg,
        context: Context[Any],
        ended: Outcome | Suspended | InputRequired,
    ) -> Outcome:
        """The outcome of a leg that has ended. An interim one carries the sealed state of the next round."""
        claims.journal = leg.replay.journal.entries
        if isinstance(ended, Suspended):
            if ended.pauses and BACKGROUND in ended.pauses:
                ended.pauses.remove(BACKGROUND)
                if not ended.asks and not ended.pauses and self.tasks is not None:
                    claims.journal[BACKGROUND] = Entry("pause", "", None, UNKNOWN_BRANCH)
                    return await self.tasks.create(call.request, claims, claims.journal, leg.wishes)
            requests: dict[str, JsonObject] = {}
            claims.asked = {}
            for key, ask in ended.asks.items():
                requests[key] = ask.request()
                claims.asked[key] = ask.label()
            claims.pauses = ended.pauses
            if call.handler.parked:
                claims.parked, claims.journal = (
                    self.parking.park(leg, context, getattr(call.stream, "session", None)),
                    {},
                )
        elif isinstance(ended, InputRequired):
            requests = self._manual(call, claims, leg, context, ended)
            if ended.request_state is None and not claims.answers and not claims.journal:
                return Interim(requests, None)
        else:
            return ended
        if claims.round == _GIVE_UP - 3:  # Warn once per call, before clients give up.
            self._warn_of_length(leg.handler, claims.round + 1)
        return Interim(requests, self._sealer.seal(claims) or await self._sealer.spill(claims))

    def _manual(
        self, call: Call, claims: Claims, leg: Leg, context: Context[Any], ended: InputRequired
    ) -> dict[str, JsonObject]:
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
        _log.warning("%s has ended %d rounds; clients give up after %d by default", handler, rounds, _GIVE_UP)


def _append(journal: dict[str, Entry], entries: Mapping[str, Entry]) -> None:
    """Add committed entries at the end, in their order; those that the journal has already move there."""
    for key, entry in entries.items():
        journal.pop(key, None)
        journal[key] = entry


def _unshared(arguments: JsonObject) -> JsonObject:
    """Arguments that no other run of the handler can change: a copy, unless all values are immutable."""
    are_immutable = _IMMUTABLE.issuperset(map(type, arguments.values()))
    values: JsonObject = arguments if are_immutable else copied(arguments)
    return values


def _returned(call: Call, value: object) -> Outcome | Suspended | InputRequired:
    """The outcome of the handler's value; a value that only ends the round is returned as it is."""
    if type(value) is Suspended or isinstance(value, InputRequired):
        return value
    return call.ending.complete(value)
