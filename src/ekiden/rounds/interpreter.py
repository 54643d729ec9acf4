"""What a `Context` needs of an interpreter of its effects, what that needs of a step, and what all refuse."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import NonDeterminismError, UsageError
from ekiden.rounds.asks import Ask
from ekiden.rounds.journal import Entry

__all__ = [
    "Interpreter",
    "Retry",
    "Step",
    "Watcher",
    "check_key",
    "log_failed_afterwards",
    "log_other_sleep",
    "mixed_styles",
    "not_for_tasks",
    "not_in_a_step",
    "not_in_a_thread",
]

_log = logging.getLogger(__name__)

_LONGEST_KEY: Final = 1000
"""Bytes. Databases do not index much longer ones."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy for `ctx.step(..., retry=Retry(attempts=5))`.

    The waits grow from `seconds` by `factor` up to `most_seconds`. In a task they are durable: a worker that
    dies does not start the count anew, and a long wait holds nothing in memory.
    """

    attempts: int = 3
    seconds: float = 1.0
    factor: float = 2.0
    most_seconds: float = 60.0
    on: tuple[type[Exception], ...] = (Exception,)
    """The exceptions that are worth another try."""

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        wait = self.seconds * self.factor ** min(failures - 1, 64)
        return min(wait, self.most_seconds)


class Step(Protocol):
    """A step that can be run and recorded."""

    name: str
    digest: str
    """Fingerprint of its function and arguments."""
    retry: Retry | None

    @property
    def about(self) -> str:
        """The step in words: function, arguments, module and line."""
        ...

    @property
    def running(self) -> asyncio.Future[Any] | None:
        """The thread that goes on although its step was cut short, if there is one."""
        ...

    def prepare(self) -> None:
        """Get ready to run. What the handler does to the arguments from now on does not reach the step."""
        ...

    async def perform(self) -> Entry:
        """Run it, as often as its policy says; what it raised is an entry too."""
        ...

    async def attempt(self) -> tuple[Entry, bool]:
        """Run it once; whether what it raised is worth another try."""
        ...

    def failure(self, error: BaseException) -> Entry:
        """The entry of a step that raised."""
        ...

    async def late(self) -> Entry | None:
        """Wait for a thread that goes on although its step was cut short: the entry of what it returned."""
        ...

    def recall(self, entry: Entry) -> Any:
        """The value that the entry holds, or the exception; `NotRecalled` if it cannot be had."""
        ...


class Watcher(Protocol):
    """Whoever is told what a handler does while it runs. It never waits, and never fails."""

    def began(self, name: str, about: str) -> None:
        """An effect that takes its time begins: a step, a sleep, a question that is pushed."""
        ...

    def done(self, name: str, entry: Entry) -> None:
        """An effect is done, and is in the journal if there is one."""
        ...

    def retried(self, name: str, entry: Entry) -> None:
        """A try of a step has failed, and there will be another."""
        ...

    def differs(self, error: NonDeterminismError) -> None:
        """The handler does not do what it did in earlier legs."""
        ...


class Interpreter(Protocol):
    """Decides what an effect means here and now: `Leg` replays, `Push` asks at once."""

    @property
    def fresh(self) -> bool:
        """Whether the handler is beyond what earlier rounds did."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked, spelled as a client would declare it."""
        ...

    def clock(self) -> float:
        """What time it is."""
        ...

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question."""
        ...

    async def step(self, step: Step, key: str | None = None) -> Any:
        """What a step returned."""
        ...

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A value that is the same however often the handler is run."""
        ...

    async def pause(self, key: str | None = None) -> None:
        """A checkpoint."""
        ...

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """Go on as a task, where that is possible."""
        ...

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a moment that is the same however often the handler is run."""
        ...

    async def permit(self, scopes: tuple[str, ...], granted: bool) -> None:
        """Go on if these scopes are granted; else the call waits until the client comes with more."""
        ...

    def afterwards(self, step: Step, key: str | None = None) -> None:
        """Have a step run when the handler has returned."""
        ...

    def give_up(self, error: Exception) -> None:
        """End the run with this error. The handler, which was cancelled and does not end, is left behind."""
        ...

    def use(self, style: str) -> None:
        """Note how the handler asks: with effects (`asks`), or with `InputRequired` (`manual`)."""
        ...


def check_key(key: str) -> None:
    """Refuse a `key=` that some store or client could not carry."""
    try:
        fits = 0 < len(key.encode()) <= _LONGEST_KEY and "\0" not in key
    except (AttributeError, UnicodeError):
        fits = False
    if not fits:
        raise UsageError(f"key= must be a string of 1 to {_LONGEST_KEY} bytes, without NUL characters")


def log_failed_afterwards(handler: str, step: Step, error: Exception) -> None:
    """Say that an `on_complete` step failed; the handler's result stays as it is."""
    _log.error("%s has ended well, but its on_complete step %s failed: %r", handler, step.name, error)


def log_other_sleep(handler: str, before: str, now: str) -> None:
    """Say that a handler sleeps for another time than before."""
    _log.warning(
        "%s did %s before, and is about to do %s instead, from now on. A sleep whose length changes with "
        "every round never ends: draw the length with `ctx.random`, or give the sleep a key=",
        handler,
        before,
        now,
    )


def not_for_tasks(handler: str) -> UsageError:
    """The error of a handler that wants to be a task and was not registered for that."""
    return UsageError(f'{handler} calls ctx.background(): register it with task="deferred"')


def not_in_a_step(handler: str, what: str) -> UsageError:
    """The error of an effect within a step."""
    return UsageError(f"{handler}: a step cannot {what}; do it before or after the step")


def not_in_a_thread() -> UsageError:
    """The error of an effect in a thread."""
    return UsageError("a plain `def` handler has no effects; make it `async def`")


def mixed_styles(handler: str) -> UsageError:
    """The error of a handler that uses both ways in one call."""
    return UsageError(
        f"{handler} asks with `ctx` and also keeps its own state with `InputRequired` or "
        "`ctx.input_responses`: one call can do only one of them, unless `ctx.background()` lies between: "
        "`InputRequired` before it, questions with `ctx` after it"
    )
