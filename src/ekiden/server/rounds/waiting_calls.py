"""Calls that wait for people: a page asks what the client cannot be asked, and the call goes on.

Where a round ends with a question that its client cannot show, or that is for somebody else, the question
goes to the store, and the state of the call with it. A client with URL mode is sent to the page; any other is
told in words. When the client comes back, or the same call is made again by the same principal, the round
that follows is run with the answers that people gave: the same flow, the same journal, the same ledger.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import InsufficientScope, InvalidParams, InvalidRequest, ProtocolError
from ekiden.rounds.asks import ELICIT, Ask, declares
from ekiden.rounds.call_state import CallState, encode_state
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Suspended
from ekiden.server.people.people import Kept, People, ToAsk, call_id, client_title
from ekiden.server.people.words import Waiting, in_words
from ekiden.server.rounds.call import Call
from ekiden.server.rounds.telling import tell_of_people, tell_story
from ekiden.server.sealing.room import Room
from ekiden.server.tasks.with_people import is_for_a_page
from ekiden.wire.json import JsonObject, canonical, encode, is_object
from ekiden.wire.jsonrpc import RESTART
from ekiden.wire.modern import Request

__all__ = ["RoundRunner", "WaitingCalls"]

_URL_MODE: Final[JsonObject] = {"elicitation": {"url": {}}}
_KINDS: Final = {"tools/call": "the tool", "prompts/get": "the prompt", "resources/read": "the resource"}
_BY_CLIENT: Final = "the client's user"
_ROW_BYTES: Final = 4096
"""What a row counts beside its content. A question is more to a person than its bytes are to the store."""


class RoundRunner(Protocol):
    """What this needs of `Rounds`."""

    async def opened(self, request: Request) -> CallState:
        """The state that a request brings."""
        ...

    def go_on(
        self, call: Call, state: CallState, responses: Mapping[str, object], token: str
    ) -> Coroutine[Any, Any, Outcome]:
        """Run the round that follows a state."""
        ...

    def first_round(self, call: Call, responses: Mapping[str, object]) -> Coroutine[Any, Any, Outcome]:
        """Begin a call."""
        ...


class WaitingCalls:
    """The calls of one server that wait for people."""

    def __init__(
        self,
        people: People,
        principal_of: Callable[[Request], str],
        owner_of: Callable[[Request], str],
        room: Room,
    ) -> None:
        self.people = people
        self._room = room
        self.askable = people.askable
        self._principal_of = principal_of
        self._owner_of = owner_of

    # Coming to a question

    async def put_all(
        self, call: Call, state: CallState, ended: Suspended, requests: dict[str, JsonObject]
    ) -> Outcome | None:
        """Put on pages what the client cannot be asked. What is left in `requests` goes to the client.

        Returns how the round ends if nothing is left, else None.
        """
        declared = call.request.meta.capabilities
        paged = {key: ask for key, ask in ended.asks.items() if is_for_a_page(declared, ask)}
        if not paged:
            return None
        state.paged = list(paged)
        for key in paged:
            del requests[key]
        ends = max(self.people.expiry(ask) for ask in paged.values())
        following = msgspec.structs.replace(state, round=state.round + 1)
        size = _size(following, paged)
        self._room.check(state.principal, size, now=self.people.clock())
        flow = await self.people.keep_call(self._id(call.request), following, until=ends)
        if flow != state.flow:
            # The same call waits already, and that one goes on: nobody is asked twice.
            return await self._in_words(call, (await self.people.of_call(flow)).values())
        self._room.add(state.principal, size, expires=ends)
        asks = _about(call.request, state)
        kept = {key: await self.people.put(ask, key, asks, call.answered) for key, ask in paged.items()}
        for key, each in kept.items():
            if not each.inquiry.persons and declares(declared, _URL_MODE):
                requests[key] = await self._as_page(each)
        if requests or ended.pauses:
            return None
        return await self._in_words(call, kept.values())

    async def _as_page(self, kept: Kept) -> JsonObject:
        message = kept.inquiry.params.get("message", "")
        params = {"mode": "url", "message": message, "url": await self.people.link(kept)}
        return {"method": ELICIT, "params": params}

    async def _in_words(self, call: Call, waiting: Any) -> Outcome:
        told = [
            Waiting(each.inquiry, None if each.inquiry.persons else await self.people.link(each))
            for each in waiting
            if each.inquiry.state == "open"
        ]
        tell_of_people([each.inquiry for each in told])
        method = call.request.method
        text = in_words(told, f"{_KINDS[method]} {call.request.name!r}")
        if method != "tools/call":
            return Failed(InvalidRequest(text))
        definition = getattr(call.ending, "definition", {})
        # A result without structured content would break the output schema, unless it is an error.
        is_error = {"isError": True} if "outputSchema" in definition else {}
        return Complete({"content": [{"type": "text", "text": text}], **is_error})

    # Going on

    async def run(self, call: Call, rounds: RoundRunner) -> Outcome:
        """Run one round of a call; one that is made again goes on from where it waits."""
        request = call.request
        responses: Any = request.params.get("inputResponses", {})
        if not is_object(responses):
            raise InvalidParams("Invalid params: `inputResponses` must be an object")
        if "requestState" in request.params:
            state = await rounds.opened(request)
        else:
            found = await self.people.waiting_call(self._id(request))
            if found is None:
                return await rounds.first_round(call, responses)
            state, responses = found, {}
        if state.paged is not None:
            waits = await self._look(call, state, responses)
            if waits is not None:
                return waits
        return await self._follow(call, state, responses, rounds)

    async def _follow(
        self, call: Call, state: CallState, responses: Mapping[str, object], rounds: RoundRunner
    ) -> Outcome:
        """Run the round that follows; forget that the call waits, once it has ended."""
        own_id, flow, number = self._id(call.request), state.flow, state.round
        try:
            # The same history, whether the client brings its token or makes the call again.
            outcome = await rounds.go_on(call, state, responses, f"{flow}.{number}")
        except ProtocolError as error:
            if not isinstance(error, InsufficientScope):
                await self.people.drop_call(own_id, flow, number)
            raise
        is_lost = isinstance(outcome, Failed) and outcome.error.data != RESTART
        if not isinstance(outcome, Interim) and not is_lost:
            await self.people.drop_call(own_id, flow, number)
        return outcome

    async def _look(self, call: Call, state: CallState, responses: Mapping[str, object]) -> Outcome | None:
        """Look for the answers of people, and wait a little; how the round ends if there is nothing new."""
        paged = frozenset(state.paged or ())
        kept = await self.people.of_call(state.flow)
        for key in paged & kept.keys() & responses.keys():
            await self._said(kept[key], responses[key])
        own = any(key not in paged for key in state.asked) and any(key in state.asked for key in responses)

        def is_new(found: dict[str, Kept]) -> bool:
            return own or bool(state.pauses) or any(_is_answered(found, key, state) for key in paged)

        kept = await self.people.wait(state.flow, is_new)
        answered = {key: kept[key] for key in paged if _is_answered(kept, key, state)}
        waiting = [kept[key] for key in paged if key in kept and key not in answered]
        call.from_people = {key: each.inquiry.answer for key, each in answered.items()}
        call.answered = frozenset(each.row.id for each in answered.values())
        if not is_new(kept) and waiting:
            tell_story(state)
            return await self._in_words(call, waiting)
        return None

    async def _said(self, kept: Kept, response: object) -> None:
        """The client has said no to a page for its user, or that it was dismissed: that is an answer."""
        action = response.get("action") if is_object(response) else None
        if action in ("decline", "cancel") and not kept.inquiry.persons:
            await self.people.answer(kept.row.id, {"action": action}, by=_BY_CLIENT)

    def _id(self, request: Request) -> str:
        """The id of a waiting call: the same for the same call by the same principal."""
        arguments = canonical(request.params.get("arguments", {}))
        # A principal may be called like the address or the connection of somebody who has none.
        whose = (self._principal_of(request), self._owner_of(request))
        about = (self.people.audience, *whose, request.method, request.name or "")
        return call_id(*(part.encode() for part in about), arguments)


def _size(state: CallState, paged: Mapping[str, Ask]) -> int:
    """The bytes that a call takes of the store while it waits, about."""
    asked = sum(len(encode(dict(ask.params or {}))) for ask in paged.values())
    return len(encode_state(state)) + asked + _ROW_BYTES * (1 + len(paged))


def _about(request: Request, state: CallState) -> ToAsk:
    return ToAsk(
        flow=state.flow,
        method=request.method,
        target=request.name or "",
        principal=state.principal,
        client=client_title(request.meta.client_info),
    )


def _is_answered(found: Mapping[str, Kept], key: str, state: CallState) -> bool:
    """Whether a question has an answer, and is the one that the round ended with."""
    kept = found.get(key)
    asked = state.asked.get(key, "").partition(" ")[0]
    return kept is not None and kept.inquiry.state == "answered" and asked.endswith(kept.inquiry.digest)
