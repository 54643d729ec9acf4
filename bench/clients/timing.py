"""How every client is measured: the same calls, the same clock, the same command line.

`python -m bench.clients.<name>_client URL [--rounds N ...] [--calls N] [--at-once N]` makes calls and
prints what they took as JSON, by the number of rounds. No rounds: `greet`, which asks nothing.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

Call = Callable[[str, dict[str, Any]], Awaitable[str]]
"""Calls a tool to its end, and gives its text."""

MOST_ROUNDS: Final = 200
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WARM_UP: Final = 0.2
"""The part of the calls that is made before, and not counted."""


def text_of(content: Sequence[Any]) -> str:
    """The text of a result that is one text."""
    text: str = content[0].text
    return text


def measure(connect: Callable[[str], AbstractAsyncContextManager[Call]]) -> None:
    """Do what the command line says."""
    asyncio.run(_measure(connect, _options()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, nargs="+", default=[0], help="rounds that ask, of a call")
    parser.add_argument("--calls", type=int, nargs="+", default=[100], help="calls for each of --rounds")
    parser.add_argument("--at-once", type=int, default=1, help="calls that are under way at the same time")
    parser.add_argument("--server", type=int, help="the server's process, whose CPU time is told, too")
    return parser.parse_args()


async def _measure(connect: Callable[[str], AbstractAsyncContextManager[Call]], options: Any) -> None:
    async with connect(options.url) as call:
        work = list(zip(options.rounds, options.calls, strict=True))
        for rounds, calls in work:
            await _make(call, rounds, max(1, int(calls * _WARM_UP)), options.at_once)
        spent, started = _cpu(options.server), time.perf_counter()
        taken = {rounds: await _make(call, rounds, calls, options.at_once) for rounds, calls in work}
        seconds = time.perf_counter() - started
        busy = (_cpu(options.server) - spent) / seconds
    print(json.dumps({"taken": taken, "seconds": seconds, "server_busy": busy}))


async def _make(call: Call, rounds: int, calls: int, at_once: int) -> list[float]:
    left = iter(range(calls))
    tool, arguments, expected = _work(rounds)
    taken: list[float] = []

    async def caller() -> None:
        for _ in left:
            started = time.perf_counter()
            text = await call(tool, arguments)
            taken.append(time.perf_counter() - started)
            if text != expected:
                raise AssertionError(f"{tool} gave {text!r}")

    async with asyncio.TaskGroup() as callers:
        for _ in range(at_once):
            callers.create_task(caller())
    return taken


def _work(rounds: int) -> tuple[str, dict[str, Any], str]:
    if rounds:
        return "survey", {"rounds": rounds}, f"{rounds} guests"
    return "greet", {"name": "World"}, "Hello, World!"


def _cpu(pid: int | None) -> float:
    """CPU seconds of the server so far; `bench.process` needs what not every environment has."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
