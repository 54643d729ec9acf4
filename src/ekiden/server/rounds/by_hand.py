"""The questions of a handler that returns `InputRequired`: it keeps its own state from round to round."""

from typing import Any

from ekiden.errors import MissingCapability
from ekiden.rounds.asks import declares
from ekiden.rounds.call_state import CallState
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.leg import Leg
from ekiden.server.context import Context
from ekiden.server.questions.input_required import InputRequired, capabilities_for, spelled_requests, words_of
from ekiden.server.rounds.call import Call
from ekiden.wire.json import JsonObject

__all__ = ["asked_by_hand"]


def asked_by_hand(
    call: Call, state: CallState, leg: Leg, context: Context[Any], ended: InputRequired
) -> dict[str, JsonObject]:
    """What it asks, as the client gets it. The state says what it waits for."""
    if leg.style == "asks":
        raise mixed_styles(leg.handler)
    requests = spelled_requests(ended)
    for request in requests.values():
        if not declares(call.request.meta.capabilities, needed := capabilities_for(request)):
            raise MissingCapability(needed, question=words_of(request))
    state.answers = (context.raw_responses() or None) if ended.keeps_answers else None
    state.asked = {key: request["method"] for key, request in requests.items()}
    state.pauses = []
    state.manual = ended.request_state
    return requests
