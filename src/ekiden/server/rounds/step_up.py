"""A round that needs more scopes than its caller has: refused at once, or after what it has done is safe."""

from collections.abc import Mapping

from ekiden.errors import InsufficientScope
from ekiden.rounds.journal import STEP, Entry
from ekiden.rounds.leg import Leg, Suspended
from ekiden.server.rounds.call import Call

__all__ = ["step_up"]


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
