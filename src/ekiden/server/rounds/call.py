"""One request with the handler that answers it, and the arguments that it is called with."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import InsufficientScope
from ekiden.rounds.journal import STEP, Entry
from ekiden.rounds.leg import Leg
from ekiden.rounds.outcome import Suspended
from ekiden.server.handlers import Handler
from ekiden.server.registration.results import Ending
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, copied
from ekiden.wire.modern import Request

__all__ = ["Call", "append", "step_up", "unshared"]

_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None)})


class Call(msgspec.Struct, gc=False):
    """One request, with the handler that answers it."""

    request: Request
    stream: Stream
    state: object
    handler: Handler
    raw: JsonObject
    """The arguments as the client sent them."""
    bound: dict[str, Any]
    """The arguments as the handler gets them, validated and converted."""
    bind: Callable[[dict[str, Any]], dict[str, Any]]
    """Makes `bound` from `raw`, for another run of the handler."""
    title: str
    """Names the handler in logs and errors."""
    ending: Ending
    from_people: dict[str, Any] | None = None
    """Answers that people gave on a page, by key."""
    answered: frozenset[str] = frozenset()
    """The ids of the questions that those answers belong to."""


def unshared(arguments: JsonObject) -> JsonObject:
    """Arguments that no other run of the handler can change: a copy, unless all values are immutable."""
    for value in arguments.values():
        if type(value) not in _IMMUTABLE:
            own: JsonObject = copied(arguments)
            return own
    return arguments


def append(journal: dict[str, Entry], entries: Mapping[str, Entry]) -> None:
    """Add committed entries at the end, in their order; those that the journal has already move there."""
    for key, entry in entries.items():
        journal.pop(key, None)
        journal[key] = entry


def step_up(
    call: Call, leg: Leg, lacks: Mapping[str, tuple[str, ...]], ended: Suspended, before: Mapping[str, Entry]
) -> None:
    """Refuse a round that needs more scopes, unless something would be lost with it.

    A refusal carries no state. So what the client must bring back, answers that it has to give and steps that
    have run, goes out in an interim result first; the round after that is refused. A response that streams
    already has a status, and ends in the same way.
    """
    wanted = [name for name in ended.pauses if name in lacks]
    has_more = bool(ended.asks) or len(wanted) < len(ended.pauses)
    has_run = any(key.startswith(STEP) and key not in before for key in leg.replay.journal.entries)
    streams = getattr(call.stream, "has_begun", False) and not any(name in before for name in wanted)
    if wanted and not (has_more or has_run or streams):
        scopes = call.handler.scopes.union(*(lacks[name] for name in wanted))
        raise InsufficientScope(sorted(scopes))
