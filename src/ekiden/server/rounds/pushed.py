"""A call of a client of 2025: its handler runs once, and what it asks is pushed to the client.

The manual way works as well: what a handler asks with `InputRequired` is pushed, and the handler is
called again with the answers, as a client of 2026 would call it.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import CannotAsk, InvalidRequest
from ekiden.rounds.asks import declares, not_asked
from ekiden.rounds.call_state import CallState
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, untraced
from ekiden.rounds.pushing import Push
from ekiden.server.context import Context
from ekiden.server.handlers import limit_paused
from ekiden.server.legacy.session import AskingStream
from ekiden.server.making import Making
from ekiden.server.questions.input_required import (
    InputRequired,
    capabilities_for,
    spelled_requests,
    words_of,
)
from ekiden.server.registration.results import tool_error
from ekiden.server.rounds.call import Call
from ekiden.server.sealing.tokens import Sealer
from ekiden.stories.telling import Story, current_story
from ekiden.telemetry.metrics import REASKS, add, of_call
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.modern import Request

__all__ = ["MOST_ROUNDS", "PushedCalls", "Questions", "push_rounds"]

_log = logging.getLogger(__name__)

MOST_ROUNDS: Final = 10
"""How often a handler may return `InputRequired`: as often as clients of 2026 call again by default."""
_IDLE_SECONDS: Final = 0.02
"""The first pause before a handler that returned a state without questions is called again; it doubles."""


class Questions:
    """Pushes the questions of one call to its client."""

    def __init__(self, stream: Stream, capabilities: Mapping[str, Any]) -> None:
        self._stream: AskingStream = stream  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  sessions give no other
        self._capabilities = capabilities
        self._pages: list[str] = []
        """The pages that the user has opened."""

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Any:
        """The client's answer. Raises `CannotAsk` if there is none."""
        page = secrets.token_urlsafe(16)
        with limit_paused():
            answer = await self._stream.ask(method, params, page)
        is_page = params is not None and params.get("mode") == "url"
        if is_page and is_object(answer) and answer.get("action") == "accept":
            self._pages.append(page)
        return answer

    async def ask_all(self, requests: Mapping[str, Mapping[str, Any]]) -> JsonObject:
        """Push the questions of an interim result, all at once; returns the answers by key."""
        for request in requests.values():
            if not declares(self._capabilities, needed := capabilities_for(request)):
                raise CannotAsk(not_asked(needed, words_of(request)))
        asking = [
            asyncio.ensure_future(self.ask(request["method"], request.get("params")))
            for request in requests.values()
        ]
        try:
            answers = await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()
        return dict(zip(requests, answers, strict=True))

    async def report_visited(self, outcome: Outcome) -> None:
        """After a successful call, notify the client that the pages which the user opened are done."""
        if isinstance(outcome, Complete) and not outcome.as_dict().get("isError"):
            for page in self._pages:
                await self._stream.notify("notifications/elicitation/complete", {"elicitationId": page})


async def pause_before(number: int, answers: Mapping[str, object]) -> None:
    """Wait a little before the next round, if the last one asked nothing."""
    if not answers:
        await asyncio.sleep(min(1.0, _IDLE_SECONDS * 2**number))


async def push_rounds(
    method: str, title: str, questions: Questions, run: Callable[[JsonObject | None], Awaitable[Outcome]]
) -> Outcome:
    """Run rounds until one asks nothing more. What they ask is pushed.

    `run` gets what a client of 2026 would bring to the next round; None in the first.
    """
    brought: JsonObject | None = None
    number = 0
    while True:
        outcome = await run(brought)
        if not isinstance(outcome, Interim):
            await questions.report_visited(outcome)
            return outcome
        if number == MOST_ROUNDS:
            return endless(method, title)
        try:
            answers = await questions.ask_all(outcome.requests)
        except CannotAsk as error:
            return cannot_ask(method, error)
        brought = {"inputResponses": answers}
        if outcome.state is not None:
            brought["requestState"] = outcome.state
        await pause_before(number, answers)
        number += 1


class PushedCalls:
    """Runs the calls of clients with a session."""

    def __init__(self, sealer: Sealer, clock: Callable[[], float], making: Making) -> None:
        self._sealer = sealer
        self._clock = clock
        self._making = making

    def context_of_completion(self, request: Request, stream: Stream, state: object) -> Context[Any]:
        """The context for a completion: it has the request and the state, and cannot ask anything."""
        capabilities = request.meta.capabilities
        push = Push("A completion", _nobody, capabilities=capabilities, clock=self._clock, flow="")
        return Context(request, stream, state, push, self._sealer.first(request), {})

    async def run(self, call: Call) -> Outcome:
        """Run a whole call."""
        state = self._sealer.first(call.request)
        responses: JsonObject = {}
        questions = Questions(call.stream, call.request.meta.capabilities)
        number = 0
        while True:
            try:
                ended = await self._attempt(call, state, responses, questions)
                if not isinstance(ended, InputRequired):
                    return ended
                if number == MOST_ROUNDS:
                    return endless(call.request.method, call.title)
                responses = await _resolved(state, ended, questions)
            except CannotAsk as error:
                return cannot_ask(call.request.method, error)
            await pause_before(number, responses)
            number += 1

    async def _attempt(
        self, call: Call, state: CallState, responses: Mapping[str, object], questions: Questions
    ) -> Outcome | InputRequired:
        push = Push(
            call.title,
            questions.ask,
            capabilities=call.request.meta.capabilities,
            clock=self._clock,
            flow=state.flow,
            can_background=call.handler.task != "never",
            watcher=_told(state),
        )
        context: Context[Any] = Context(
            call.request, call.stream, call.state, push, state, responses, call.handler.function
        )
        if call.handler.context is not None:
            call.bound[call.handler.context] = context
        ended = await self._ended(call, push.run(call.handler.call(**call.bound)))
        if push.reasked:
            add(REASKS, of_call(call.request.method, call.request.name), push.reasked)
        if isinstance(ended, InputRequired):
            if push.style == "asks":
                raise mixed_styles(call.title)
            state.answers = (context.raw_responses() or None) if ended.keeps_answers else None
            return ended
        await questions.report_visited(ended)
        return ended

    async def _ended(self, call: Call, run: Coroutine[Any, Any, Any]) -> Outcome | InputRequired:
        try:
            value = await run
            ended = self._making.at_once(call.handler, call.ending, value)
            if ended is None:
                making = self._making.in_turn(call.handler, call.ending, value, call.request)
                del value  # If it is given up while it waits, it is to be forgotten at once.
                ended = await making
            return ended
        except BaseException as error:
            return call.ending.failed(error)


def _told(state: CallState) -> Story | None:
    """The story of the call, which is told that its handler begins to run; None if nothing is recorded."""
    if (story := current_story.get()) is not None:
        story.belongs_to(state.flow, state.round, state.started)
        story.leg()
    return story


async def _resolved(state: CallState, manual: InputRequired, questions: Questions) -> JsonObject:
    """Push the questions of an `InputRequired`; returns the answers by key."""
    requests = spelled_requests(manual)
    answers = await questions.ask_all(requests)
    state.asked = {key: request["method"] for key, request in requests.items()}
    state.manual = manual.request_state
    state.round += 1
    return answers


async def _nobody(method: str, params: Mapping[str, Any] | None) -> Any:
    raise CannotAsk(f"A completion cannot ask: {method} is for tools, prompts and resources")


def endless(method: str, title: str) -> Outcome:
    """The outcome of a call that has asked too often."""
    _log.error("%s asked %d times without coming to an end", title, MOST_ROUNDS)
    return cannot_ask(method, CannotAsk(f"The call did not end within {MOST_ROUNDS} rounds"))


def cannot_ask(method: str, error: CannotAsk) -> Outcome:
    """The outcome of a call whose client cannot be asked."""
    untraced(error)
    if method == "tools/call":
        return tool_error(str(error))
    return Failed(InvalidRequest(str(error)))
