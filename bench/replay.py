"""`python -m bench.replay REPEATS`: what a replayed effect costs, measured inside one process.

A handler with 10 effects and one with 110 are run over journals that know them all; the difference,
over a hundred, is the price of one. CPU time, so that other work on the machine does not count.
Prints the figures as JSON.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from statistics import median
from typing import Any, Final

from bench.apps.ekiden_app import KEYS, survey
from ekiden import Context, Server
from ekiden.rounds.asks import RoundQuestions
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.leg import Leg, Suspended
from ekiden.rounds.replay import Replay
from ekiden.testing import ScriptedClient

_SHORT: Final = 10
_LONG: Final = 110
_RUNS: Final = 20
"""Runs of the handler whose time is taken together."""
_ACCEPT: Final = {"action": "accept", "content": {"ok": True}}

Handler = Callable[[int, Any], Coroutine[Any, Any, str]]


def double(number: int) -> int:
    return 2 * number


async def tally(count: int, ctx: Context) -> str:
    """A handler whose effects are steps."""
    return str([await ctx.step(double, number) for number in range(count)])


async def main(repeats: int) -> None:
    logging.disable(logging.WARNING)  # A call of more than ten rounds is warned of, in every round.
    figures = {
        "ask_us": await _slope(_replays, survey, repeats),
        "step_us": await _slope(_replays, tally, repeats),
        "round_us": await _slope(_last_rounds, survey, repeats),
        "token_bytes": await _token_sizes(_LONG),
    }
    print(json.dumps(figures))


Prepare = Callable[[Handler, int], Awaitable[Callable[[], Awaitable[None]]]]


async def _slope(prepare: Prepare, handler: Handler, repeats: int) -> list[float]:
    """Microseconds that one more replayed effect takes, once for every repeat."""
    short, long = await prepare(handler, _SHORT), await prepare(handler, _LONG)
    await _seconds(short), await _seconds(long)
    slopes: list[float] = []
    for _ in range(repeats):
        difference = await _seconds(long) - await _seconds(short)
        slopes.append(difference / (_LONG - _SHORT) * 1e6)
    return slopes


async def _seconds(run: Callable[[], Awaitable[None]]) -> float:
    taken: list[float] = []
    for _ in range(_RUNS):
        started = time.process_time()
        await run()
        taken.append(time.process_time() - started)
    return median(taken)


# The engine alone: a leg over a journal


async def _replays(handler: Handler, count: int) -> Callable[[], Awaitable[None]]:
    entries = await _full_journal(handler, count)
    expected = await _run_leg(handler, count, dict(entries), {})

    async def run() -> None:
        if await _run_leg(handler, count, dict(entries), {}) != expected:
            raise AssertionError("a replay came to another end")

    return run


async def _full_journal(handler: Handler, count: int) -> dict[str, Entry]:
    """The journal of a handler that has come to its end, round by round."""
    entries: dict[str, Entry] = {}
    ended = await _run_leg(handler, count, entries, {})
    while isinstance(ended, Suspended):
        ended = await _run_leg(handler, count, entries, dict.fromkeys(ended.asks, _ACCEPT))
    return entries


async def _run_leg(handler: Handler, count: int, entries: dict[str, Entry], responses: dict[str, Any]) -> Any:
    questions = RoundQuestions("bench", responses, None, {"elicitation": {"form": {}}})
    leg = Leg(Replay(HandlerTask("bench"), Journal.of(entries), questions, time.time))
    nothing: Any = None  # A handler that only asks and steps looks at nothing of its request.
    ctx = Context(nothing, nothing, nothing, leg, nothing, responses)
    return await leg.run(partial(handler, count, ctx), {})


# The whole of it: the last round of a call, its token opened


async def _last_rounds(handler: Handler, count: int) -> Callable[[], Awaitable[None]]:
    client = _client(handler)
    params = {"name": handler.__name__, "arguments": {"rounds": count}}
    await client.call("tools/call", params)
    last = {**params, **client.answer(client.rounds[-2])}

    async def run() -> None:
        await client.round("tools/call", last)

    return run


async def _token_sizes(rounds: int) -> list[int]:
    client = _client(survey)
    await client.call_tool("survey", {"rounds": rounds})
    return [len(seen.state) for seen in client.rounds if seen.state is not None]


def _client(handler: Handler) -> ScriptedClient:
    server = Server("bench", version="1", keys=KEYS)
    server.add_tool(handler)
    return ScriptedClient(server, lambda key, request: _ACCEPT, max_rounds=_LONG + 1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
