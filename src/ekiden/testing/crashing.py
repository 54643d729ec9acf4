"""Crash points: kill a process, as by `kill -9`, right before or right after it commits something.

    crash_at(store.tasks, "before commit 2")

kills the process when it is about to commit something for the second time. "after" is when the commit is
durable, and no watcher knows of it yet. The moves: `create`, `claim`, `commit` (a step, or the deadline of a
sleep), `publish`, `suspend`, `answer`, `finish`, `cancel`, `stop`, `tidied`, `release`. The creator of a
task may begin it without a `claim`.
"""

import functools
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ekiden.errors import UsageError
from ekiden.tasks.store import TaskStore

__all__ = ["CRASH_POINTS", "crash_at"]

_METHODS: Final = {"create": "insert", "claim": "claim_all", "commit": "append"}

CRASH_POINTS: Final = (
    "create",
    "claim",
    "commit",
    "publish",
    "suspend",
    "answer",
    "finish",
    "cancel",
    "stop",
    "tidied",
    "release",
)


def crash_at(store: TaskStore, point: str) -> None:
    """Kill this process at a point: `before` or `after`, one of the moves, and at which time."""
    match point.split():
        case ["before" | "after" as when, move] if move in CRASH_POINTS:
            number = 1
        case ["before" | "after" as when, move, count] if move in CRASH_POINTS and count.isdigit():
            number = int(count)
        case _:
            raise UsageError(f"{point!r} is not a crash point: write `before commit` or `after suspend 2`")
    name = _METHODS.get(move, move)
    setattr(store, name, _deadly(getattr(store, name), when, number))


def _deadly(method: Callable[..., Awaitable[Any]], when: str, number: int) -> Callable[..., Awaitable[Any]]:
    calls = 0

    @functools.wraps(method)
    async def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return await method(*arguments, **keywords)
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await method(*arguments, **keywords)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call
