"""Does a handler take the same way when it is replayed?

`check_replay` calls a handler twice: once straight through, its coroutine kept alive between rounds,
and once as it runs in the field, from the top in every round. Both runs note every effect. If
the handler is deterministic between its effects, the notes are equal.
"""

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from ekiden.errors import EkidenError
from ekiden.rounds.leg import Leg
from ekiden.server.server import Server
from ekiden.testing.answers import Script
from ekiden.testing.client import ScriptedClient

__all__ = ["ReplayDiffers", "check_replay"]


class ReplayDiffers(EkidenError):
    """The two runs did different things; `straight` and `replayed` are the first effects that differ."""

    def __init__(self, position: int, straight: str, replayed: str) -> None:
        super().__init__(
            f"Effect {position + 1} differs: straight through it is {straight}, replayed it is {replayed}. "
            "Whatever varies between rounds (time, ids, I/O) belongs into ctx.now, ctx.uuid or ctx.step"
        )
        self.position = position
        self.straight = straight
        self.replayed = replayed


async def check_replay(
    make: Callable[[], Server], tool: str, arguments: Mapping[str, Any], answers: Script
) -> dict[str, Any]:
    """Run a tool both ways; its result if they agree, else `ReplayDiffers`."""
    straight_result, straight = await _run(make(), tool, arguments, answers, parked=True)
    replayed_result, replayed = await _run(make(), tool, arguments, answers, parked=False)
    for position, (one, other) in enumerate(zip_longest(straight, replayed, fillvalue="nothing more")):
        if one != other:
            raise ReplayDiffers(position, one, other)
    if straight_result != replayed_result:
        raise ReplayDiffers(len(straight), f"the result {straight_result}", f"the result {replayed_result}")
    return replayed_result


async def _run(
    server: Server, tool: str, arguments: Mapping[str, Any], answers: Script, *, parked: bool
) -> tuple[dict[str, Any], list[str]]:
    legs: list[Leg] = []

    def watch(leg: Leg) -> None:
        leg.trace = []
        legs.append(leg)

    server.observe(tool, watch, parked=parked)
    async with server.running():
        result = await ScriptedClient(server, answers).call_tool(tool, arguments)
    return result, legs[-1].trace or []
