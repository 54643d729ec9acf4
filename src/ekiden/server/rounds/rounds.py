"""A call over its rounds: open the state, run the handler over its journal, seal the next state.

This connects a leg, which does no I/O, with keys, the store, the clock and parked handlers. A call
without state whose handler takes no `Context` does not come here.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import InternalError, InvalidParams, NonDeterminismError
from ekiden.rounds.asks import RoundQuestions
from ekiden.rounds.call_state import CallState
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.journal import UNKNOWN_BRANCH, Entry, Journal
from ekiden.rounds.leg import BACKGROUND, Leg, Suspended
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, untraced
from ekiden.rounds.replay import Replay
from ekiden.server.context import Context
from ekiden.server.making import Making
from ekiden.server.people.people import People
from ekiden.server.questions.gate import through_the_gate
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.questions.questions import check_answers
from ekiden.server.registration.registry import Registry
from ekiden.server.rounds import telling
from ekiden.server.rounds.by_hand import asked_by_hand
from ekiden.server.rounds.call import Call, append, step_up, unshared
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.server.rounds.parked import ParkingLot
from ekiden.server.rounds.pushed import PushedCalls
from ekiden.server.rounds.pushed_waiting import run_pushed
from ekiden.server.rounds.waiting_calls import WaitingCalls
from ekiden.server.sealing.tokens import Sealer
from ekiden.server.tasks.methods import TaskMethods
from ekiden.server.tasks.tasks import Tasks
from ekiden.server.tasks.with_people import TaskPeople
from ekiden.signals import Ended, Restart
from ekiden.telemetry.context import first_trace
from ekiden.telemetry.rounds import call_ended, count_reasks
from ekiden.transports.server.shares import named_by
from ekiden.wire import versions
from ekiden.wire.json import JsonObject
from ekiden.wire.jsonrpc import RESTART
from ekiden.wire.modern import Request

__all__ = ["Rounds"]

_log = logging.getLogger(__name__)

_NO_RESPONSES: Final[JsonObject] = {}

_DIFFERS: Final = "The handler does not replay as in its earlier rounds: restart the call"


class Rounds:
    """Runs calls of one server."""

    def __init__(self, sealer: Sealer, once: Once, clock: Callable[[], float]) -> None:
        self._sealer = sealer
        self.once = once
        self._clock = clock
        limits = sealer.limits
        self.watch: Callable[[Leg], None] | None = None
        """Called with every leg before it runs; for tests."""
        self.records = False
        """Whether what happens is told to the current story."""
        self.making = Making(self.owner_of)
        """Makes outcomes of what handlers return."""
        self.pushed = PushedCalls(sealer, clock, self.making)
        """Runs the calls of clients of 2025, to which questions are pushed."""
        self.tasks: Tasks | None = None
        """The tasks of the server; None if its store keeps none."""
        self.task_methods: TaskMethods | None = None
        self.people: WaitingCalls | None = None
        """Puts questions to people on pages; None if the server has none."""
        self.stored = sealer.stored
        """Whether there is a store at all."""
        self.parking = ParkingLot(most=limits.parked_calls, seconds=limits.answer_seconds)

    def owner_of(self, request: Request) -> str:
        """Who sends a request, as far as clients are told apart: by principal, address or connection."""
        return self._sealer.principal_of(request) or named_by(request.address) or request.session or ""

    def principal_of(self, request: Request) -> str:
        """The principal of a request; empty if the server does not distinguish them."""
        return self._sealer.principal_of(request)

    def adopt_principal(self, principal_of: Callable[[Request], str]) -> None:
        """Distinguish principals as the server around this one does, unless it has its own way."""
        if not self._sealer.tells_apart:
            self._sealer.tell_apart(principal_of)
            if self.tasks is not None:
                self.tasks.tell_apart(principal_of)

    def offer_tasks(self, tasks: Tasks, registry: Registry) -> None:
        """Let calls become tasks, which `task_methods` answers for."""
        self.tasks = tasks
        self.task_methods = TaskMethods(tasks, registry)

    def askable(self, request: Request) -> Mapping[str, Any]:
        """What can be asked in a call: what its client declared, and on pages."""
        declared = request.meta.capabilities
        return declared if self.people is None else self.people.askable(declared)

    def ask_people(self, people: People) -> None:
        """Let people answer on pages what no client can be asked."""
        self.people = WaitingCalls(people, self.principal_of, self.owner_of, self._sealer.limits.room())
        if self.tasks is not None:
            self.tasks.people = TaskPeople(people, self.tasks.store)

    def run(self, call: Call) -> Coroutine[Any, Any, Outcome]:
        """Run one round of a call."""
        if self.records:
            telling.hold_story()
        if self.people is not None:
            return self.people.run(call, self)
        request, params = call.request, call.request.params
        responses: Any = params.get("inputResponses", _NO_RESPONSES)
        if responses.__class__ is not dict:
            raise InvalidParams("Invalid params: `inputResponses` must be an object")
        if "requestState" not in params:
            return self.first_round(call, responses)
        token = params["requestState"]
        state = self._sealer.open(token, request)
        if state.journal_id is not None:
            return self._fetched_round(call, responses, token)
        if state.trace is not None:
            telling.link_first_span(state.trace, request)
        return self.go_on(call, state, responses, token)

    def first_round(self, call: Call, responses: Mapping[str, object]) -> Coroutine[Any, Any, Outcome]:
        """Begin a call."""
        state = self._sealer.first(call.request)
        if self.records:
            telling.tell_story(state)
        asked: dict[str, str] | None = {} if call.handler.once is True else None
        if self.tasks is not None and call.handler.task in ("optional", "required"):
            return self._first_or_task(self.tasks, call, state, responses, asked)
        # A first round has no token by which a repeat could be recognised, so it needs no claim.
        return self._run_leg(call, state, responses, asked, None)

    async def _first_or_task(
        self,
        tasks: Tasks,
        call: Call,
        state: CallState,
        responses: Mapping[str, object],
        asked: dict[str, str] | None,
    ) -> Outcome:
        if call.request.meta.protocol_version == versions.MODERN:
            task = await tasks.from_start(call.request, state, required=call.handler.task == "required")
            if task is not None:
                return task
        return await self._run_leg(call, state, responses, asked, None)

    def run_pushed(self, call: Call) -> Coroutine[Any, Any, Outcome]:
        """Run a call of a client of 2025, to which questions are pushed."""
        if self.people is None:
            return self.pushed.run(call)
        if self.records:
            telling.hold_story()
        return run_pushed(call, self.people, self)

    async def legacy_task(self, call: Call) -> Outcome | None:
        """Create a task for a call if a client with a handshake asks for one; else None."""
        if self.task_methods is None or call.request.method != "tools/call":
            return None
        state = self._sealer.first(call.request)
        return await self.task_methods.legacy.begin(call.request, state, call.handler, call.stream)

    async def _fetched_round(self, call: Call, responses: Mapping[str, object], token: str) -> Outcome:
        return await self.go_on(call, await self.opened(call.request), responses, token)

    async def opened(self, request: Request) -> CallState:
        """The state that a request brings, with what of it is in the store."""
        state = self._sealer.open(request.params["requestState"], request)
        if state.journal_id is not None:
            await self._sealer.fetch(state, request)
        if state.trace is not None:
            telling.link_first_span(state.trace, request)
        return state

    def go_on(
        self, call: Call, state: CallState, responses: Mapping[str, object], token: str
    ) -> Coroutine[Any, Any, Outcome]:
        """Run the round that follows a state. `token` and the responses are its history."""
        if self.records:
            telling.tell_story(state)
        handler = call.handler
        if state.paged is not None:
            # What people answer on a page counts from there, and not as the client tells it.
            responses = {key: value for key, value in responses.items() if key not in state.paged}
            responses.update(call.from_people or {})
            state.paged = None
        if state.parked is not None:
            return self._resume(call, state, responses)
        check_answers(state.asked, responses)
        for pause in state.pauses:
            state.journal[pause] = Entry("pause", "", None, UNKNOWN_BRANCH)
        if handler.once is False or handler.parked:
            return self._run_leg(call, state, responses, state.asked, None)
        call.raw = unshared(call.raw)  # What its first run does to them does not count if it runs again.
        round_id = f"{state.flow}.{state.round}"
        # A call that waits for people can be made again while its questions are kept, token or not.
        keep_until = self._sealer.keep_until if self.people is None else None
        memory = RoundClaim(self.once, round_id, token, responses, state, call.request, keep_until)
        if handler.once is not True and self.once.ledger.is_new(round_id):
            return self._run_leg(call, state, responses, state.asked, memory)
        return self._unless_recorded(call, state, responses, memory)

    async def _unless_recorded(
        self, call: Call, state: CallState, responses: Mapping[str, object], memory: RoundClaim
    ) -> Outcome:
        """Run a round that may have run before: its recorded outcome, if there is one."""
        recorded = await memory.recorded(strictly=call.handler.once is True)
        if recorded is not None:
            # The client may declare less than it did.
            return through_the_gate(call.request.method, call.request.meta.capabilities, recorded)
        if memory.claimed is not None:
            append(state.journal, memory.claimed.entries)
        return await self._run_leg(call, state, responses, state.asked, memory)

    def _new_leg(
        self,
        call: Call,
        state: CallState,
        responses: Mapping[str, object],
        asked: Mapping[str, str] | None,
        memory: RoundClaim | None,
    ) -> tuple[Leg, Context[Any]]:
        """Make the leg of a round; returns it, and its context."""
        request, handler, title = call.request, call.handler, call.title
        if handler.parked:
            self.parking.check_room(self.owner_of(request))
        replay = Replay(
            HandlerTask(title),
            Journal.of(state.journal.copy()) if state.journal else Journal(),
            RoundQuestions(title, responses, asked, self.askable(request)),
            self._clock,
            state.flow,
            memory,
            not state.round or state.is_by_hand,
            handler.parked,
        )
        can_background: bool | None = None
        if handler.task != "never":
            can_background = self.tasks is not None and self.tasks.wanted_by(request)
        leg = Leg(replay, state.pauses, can_background)
        if self.watch is not None:
            self.watch(leg)
        if self.records:
            telling.tell_story(state, leg)
        context = Context(request, call.stream, call.state, leg, state, responses, handler.function)
        if handler.context is not None:
            call.bound[handler.context] = context
        return leg, context

    async def _resume(self, call: Call, state: CallState, responses: Mapping[str, object]) -> Outcome:
        ticket, state.parked = state.parked or "", None
        values = self.parking.peek(ticket).leg.read(responses)
        parked = self.parking.take(ticket)
        if self.records:
            telling.tell_story(state, parked.leg)
        context: Context[Any] = parked.context
        context.rebind(call.request, call.stream)
        try:
            ended = self._made(call, await parked.leg.go_on(values, self.askable(call.request)))
            if type(ended) is not Complete and isinstance(ended, Coroutine):
                ended = await ended
        except BaseException as error:
            ended = call.ending.failed(error)
        outcome = await self._end_round(call, state, parked.leg, context, ended)
        call_ended(call.request, state.round, outcome)
        return outcome

    def _made(
        self, call: Call, value: object
    ) -> Outcome | Suspended | InputRequired | Coroutine[Any, Any, Outcome]:
        """What a handler's value means; to be awaited if others have their turn before."""
        if type(value) is Suspended:
            return value
        if (made := self.making.at_once(call.handler, call.ending, value)) is not None:
            return made
        return self.making.in_turn(call.handler, call.ending, value, call.request)

    async def _run_leg(
        self,
        call: Call,
        state: CallState,
        responses: Mapping[str, object],
        asked: Mapping[str, str] | None,
        memory: RoundClaim | None,
    ) -> Outcome:
        """Run the handler over its journal, to the end of its round; record the outcome if claimed."""
        outcome: Outcome
        while True:
            try:
                leg, context = self._new_leg(call, state, responses, asked, memory)
                replay = leg.replay
                try:
                    if not replay.task.start(leg.whole(call.handler.call, call.bound)):
                        await replay.task.settled()
                    telling.report_rerun(call.title, replay.rerun_seconds, self._sealer.limits)
                    ended = self._made(call, replay.conclude())
                    if type(ended) is not Complete and isinstance(ended, Coroutine):
                        ended = await ended
                except Restart as restart:
                    append(state.journal, restart.entries)
                    call.bound = call.bind(unshared(call.raw))
                    continue
                except BaseException as error:
                    replay.forget()  # Nobody has concluded it, if the client has left.
                    ended = call.ending.failed(error)
                outcome = (
                    ended
                    if type(ended) is Complete
                    else await self._end_round(call, state, leg, context, ended)
                )
            except NonDeterminismError as error:
                _log.error("%s", untraced(error))
                outcome = Failed(InternalError(_DIFFERS, data={**RESTART}))
            except BaseException as error:
                if memory is not None:
                    await memory.release()
                if not isinstance(error, Ended):
                    raise
                return through_the_gate(call.request.method, call.request.meta.capabilities, error.outcome)
            call_ended(call.request, state.round, outcome)
            return outcome if memory is None or memory.claimed is None else await memory.finish(outcome)

    async def _end_round(
        self,
        call: Call,
        state: CallState,
        leg: Leg,
        context: Context[Any],
        ended: Outcome | Suspended | InputRequired,
    ) -> Outcome:
        """The outcome of a leg that has ended. An interim one carries the sealed state of the next round."""
        before, state.journal = state.journal, leg.replay.journal.entries
        if isinstance(ended, Suspended):
            if BACKGROUND in ended.pauses and (task := await self._in_background(call, state, leg, ended)):
                return task
            requests = self._suspended(call, state, leg, context, ended, before)
            if self.people is not None:
                words = await self.people.put_all(call, state, ended, requests)
                if words is not None:
                    return words
        elif isinstance(ended, InputRequired):
            requests = asked_by_hand(call, state, leg, context, ended)
            if ended.request_state is None and not state.answers and not state.journal:
                return Interim(requests, None)
        else:
            return ended
        if not state.round:
            state.trace = first_trace(call.request.meta.fields)
        elif state.round == telling.MANY_ROUNDS:
            telling.warn_of_many(leg.handler)
        sealed = self._sealer.seal(state) or await self._sealer.spill(state, named_by(call.request.address))
        return Interim(requests, sealed)

    def _suspended(
        self,
        call: Call,
        state: CallState,
        leg: Leg,
        context: Context[Any],
        ended: Suspended,
        before: Mapping[str, Entry],
    ) -> dict[str, JsonObject]:
        """The questions of a leg that waits for answers. The state says what it waits for."""
        if leg.lacks:
            step_up(call, leg, leg.lacks, ended, before)
        if leg.was_manual or leg.style == "manual":
            state.answers = context.raw_responses() or None
        if state.asked:
            count_reasks(call.request, ended.asks, state.asked)
        requests: dict[str, JsonObject] = {}
        asked: dict[str, str] = {}
        for key, ask in ended.asks.items():
            requests[key] = ask.request()
            asked[key] = ask.label()
        state.asked, state.pauses = asked, ended.pauses
        if call.handler.parked:
            owner, session = self.owner_of(call.request), getattr(call.stream, "session", None)
            ticket = self.parking.park(leg, context, owner, session, state.round)
            state.parked, state.journal = ticket, {}
        return requests

    async def _in_background(
        self, call: Call, state: CallState, leg: Leg, ended: Suspended
    ) -> Outcome | None:
        """The task that a call becomes; None if it has to wait for answers first."""
        ended.pauses.remove(BACKGROUND)
        if ended.asks or ended.pauses or self.tasks is None:
            return None
        state.journal[BACKGROUND] = Entry("pause", "", None, UNKNOWN_BRANCH)
        return await self.tasks.create(call.request, state, state.journal, leg.wishes)
