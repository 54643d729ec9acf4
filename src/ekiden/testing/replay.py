"""Checks that a handler does the same when it is replayed.

`check_replay` calls a tool as clients do: round by round, and the handler starts from the top in every round.
Every round must repeat what the round before did. Then the handler is run once more over the journal of
the whole call: it must do exactly the same effects again, and return the same result.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ekiden.errors import CallFailed, ReplayDiffers
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.leg import Leg
from ekiden.server.server import Server
from ekiden.testing.answers import Script
from ekiden.testing.client import ScriptedClient
from ekiden.wire.json import JsonObject

__all__ = ["check_replay"]

_MOST_ROUNDS = 50
"""A call with more rounds probably asks something new in each of them."""


async def check_replay(
    make: Callable[[], Server], tool: str, arguments: Mapping[str, Any], answers: Script
) -> JsonObject:
    """Call a tool, and replay it as a whole; its result. Raises `ReplayDiffers` if two runs differ."""
    legs: list[Leg] = []

    def watch(leg: Leg) -> None:
        leg.replay.trace = []
        legs.append(leg)

    server = make()
    server.observe(tool, watch)
    client = ScriptedClient(server, answers, max_rounds=_MOST_ROUNDS)
    async with server.running():
        try:
            result = await client.call_tool(tool, arguments)
        except CallFailed as failed:
            if not legs:  # It was refused before its handler ran.
                raise
            _compare_all(legs)
            raise ReplayDiffers(
                len(legs[-1].replay.trace or ()), "the end of the call", str(failed)
            ) from failed
    _compare_all(legs)
    straight, replayed = await _replay(make(), tool, arguments, legs[-1])
    _compare(straight, replayed.trace or (), whole=True)
    if result != replayed.result:
        raise ReplayDiffers(len(straight), f"the result {result}", f"the result {replayed.result}")
    return result


class _Replayed:
    """A run over the journal of an earlier one."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self.trace: list[str] = []
        self.result: JsonObject = {}

    def watch(self, leg: Leg) -> None:
        leg.replay.journal = Journal.of(dict(self._entries))
        leg.replay.trace = self.trace


async def _replay(
    server: Server, tool: str, arguments: Mapping[str, Any], last: Leg
) -> tuple[Sequence[str], _Replayed]:
    replayed = _Replayed(last.replay.journal.entries)
    server.observe(tool, replayed.watch)
    async with server.running():
        one_round = ScriptedClient(server, {})
        try:
            round_ = await one_round.round("tools/call", {"name": tool, "arguments": dict(arguments)})
            replayed.result = round_.result
        except CallFailed as failed:
            replayed.result = {"error": str(failed)}
    return last.replay.trace or (), replayed


def _compare_all(legs: Sequence[Leg]) -> None:
    for one, other in pairwise(legs):
        _compare(one.replay.trace or (), other.replay.trace or (), whole=False)


def _compare(straight: Sequence[str], replayed: Sequence[str], *, whole: bool) -> None:
    """Every effect of one run must be in the other; concurrent branches may change their order."""
    missing, extra = Counter(straight) - Counter(replayed), Counter(replayed) - Counter(straight)
    for position, effect in enumerate(straight):
        if effect in missing:
            instead = next((other for other in replayed if other in extra), "nothing more")
            raise ReplayDiffers(position, effect, instead)
    if whole and extra:
        position = next(number for number, effect in enumerate(replayed) if effect in extra)
        raise ReplayDiffers(position, "nothing more", replayed[position])
