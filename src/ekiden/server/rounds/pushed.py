"""A call of a client of 2025: its handler runs once, and what it asks is pushed to the client.

The manual way works as well: what a handler asks with `InputRequired` is pushed, and the handler is
called again with the answers, as a client of 2026 would call it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import CannotAsk, InvalidRequest
from ekiden.rounds.asks import declares
from ekiden.rounds.claims import Claims
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.rounds.pushing import Push, undeclared
from ekiden.server.context import Context
from ekiden.server.legacy.session import AskingStream
from ekiden.server.questions.input_required import InputRequired, capabilities_for, spelled_requests
from ekiden.server.registration.results import tool_error
from ekiden.server.rounds.call import Call
from ekiden.server.sealing.tokens import Sealer
from ekiden.wire.json import JsonObject, is_object

__all__ = ["PushedCalls"]

_log = logging.getLogger(__name__)

_MOST_ROUNDS: Final = 10
"""How often a handler may return `InputRequired`: as often as clients of 2026 call again by default."""
_IDLE_SECONDS: Final = 0.02
"""The first pause before a handler that returned a state without questions is called again; it doubles."""


class PushedCalls:
    """Runs the calls of clients with a session."""

    def __init__(self, sealer: Sealer, clock: Callable[[], float]) -> None:
        self._sealer = sealer
        self._clock = clock

    async def run(self, call: Call) -> Outcome:
        """Run a whole call."""
        claims = self._sealer.first(call.request)
        responses: JsonObject = {}
        pages: list[str] = []
        for number in range(_MOST_ROUNDS + 1):
            try:
                ended = await self._attempt(call, claims, responses, pages)
                if not isinstance(ended, InputRequired):
                    return ended
                if number == _MOST_ROUNDS:
                    break
                responses = await self._resolve(call, claims, ended, pages)
            except CannotAsk as error:
                return _refused(call.request.method, error)
            if not responses:
                await asyncio.sleep(min(1.0, _IDLE_SECONDS * 2**number))
        _log.error("%s asked %d times without coming to an end", call.title, _MOST_ROUNDS)
        return _refused(call.request.method, CannotAsk(f"The call did not end within {_MOST_ROUNDS} rounds"))

    async def _attempt(
        self, call: Call, claims: Claims, responses: Mapping[str, object], pages: list[str]
    ) -> Outcome | InputRequired:
        push = Push(
            call.title,
            lambda method, params: self._ask(call, method, params, pages),
            capabilities=call.request.meta.capabilities,
            clock=self._clock,
            flow=claims.flow,
            can_background=call.handler.task != "never",
        )
        context: Context[Any] = Context(
            call.request, call.stream, call.state, push, claims, responses, call.handler.function
        )
        if call.handler.context is not None:
            call.given.bound[call.handler.context] = context
        ended = await _ended(call, push.run(call.handler.call(**call.given.bound)))
        if isinstance(ended, InputRequired):
            if push.style == "asks":
                raise mixed_styles(call.title)
            claims.answers = context.raw_responses() or None
            return ended
        await self._report_visited(call, pages, ended)
        return ended

    async def _resolve(
        self, call: Call, claims: Claims, manual: InputRequired, pages: list[str]
    ) -> JsonObject:
        """Push the questions of an `InputRequired`, all at once; returns the answers by key."""
        requests = spelled_requests(manual)
        for request in requests.values():
            if not declares(call.request.meta.capabilities, needed := capabilities_for(request)):
                raise CannotAsk(undeclared(needed))
        asking = [
            asyncio.ensure_future(self._ask(call, request["method"], request.get("params"), pages))
            for request in requests.values()
        ]
        try:
            answers = await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()
        claims.asked = {key: request["method"] for key, request in requests.items()}
        claims.manual = manual.request_state
        claims.round += 1
        return dict(zip(requests, answers, strict=True))

    async def _ask(self, call: Call, method: str, params: Mapping[str, Any] | None, pages: list[str]) -> Any:
        stream: AskingStream = call.stream  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  sessions give no other
        page = secrets.token_urlsafe(16)
        answer = await stream.ask(method, params, page)
        is_page = params is not None and params.get("mode") == "url"
        if is_page and is_object(answer) and answer.get("action") == "accept":
            pages.append(page)
        return answer

    async def _report_visited(self, call: Call, pages: list[str], outcome: Outcome) -> None:
        """After a successful call, notify the client that the pages which the user opened are done."""
        if isinstance(outcome, Complete) and not outcome.as_dict().get("isError"):
            for page in pages:
                await call.stream.notify("notifications/elicitation/complete", {"elicitationId": page})


async def _ended(call: Call, run: Coroutine[Any, Any, Any]) -> Outcome | InputRequired:
    try:
        value = await run
        return value if isinstance(value, InputRequired) else call.ending.complete(value)
    except BaseException as error:
        return call.ending.failed(error)


def _refused(method: str, error: CannotAsk) -> Outcome:
    if method == "tools/call":
        return tool_error(str(error))
    return Failed(InvalidRequest(str(error)))
