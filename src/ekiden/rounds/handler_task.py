"""The task that a handler runs in: its phases, and every legal move between them, in one table.

The laws:

1. A handler has a task of its own: it can be cancelled without its request, and left behind if it
   will not be cancelled.
2. Its effects count while it is `running`, `finishing` or `resting`. In every other phase (`OVER`) they
   raise, and change nothing.
3. What runs beside it, steps above all, is never cancelled here, and ends before the leg does.
4. Whatever a handler that is `unwinding` returns or raises is dropped: its leg has ended already.

Most legs end without a wait: their effects are answered from the journal, or the first thing that they
wait for is an answer, which ends the round. So the task begins at once where asyncio can do that (Python
3.12 and later); before, in the next pass of the loop. In its first stretch, up to its first wait,
nobody else runs. If the handler has started no other task there, it is alone: no effect can get in the way
of another, and a question has no siblings to wait for. For the length of that stretch this object is the
loop's task factory, which tells.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from threading import get_ident
from types import coroutine
from typing import Any, Final, Literal, NoReturn, TypeAlias

from ekiden.errors import InternalError
from ekiden.patience import Patience
from ekiden.rounds.outcome import Suspended
from ekiden.rounds.turns import Turns

__all__ = ["MOVES", "OVER", "SETTLED", "HandlerTask", "Move", "Phase", "one_pass"]

_log = logging.getLogger(__name__)

_MOST_REFUSED: Final = 100
"""A handler that swallows cancellation and goes on calling effects is blocked for ever after this many."""

Phase: TypeAlias = Literal["new", "running", "finishing", "resting", "unwinding", "ended", "left"]
"""`finishing` is a handler that has returned and whose `on_complete` steps are run; `resting` is parked: it
waits in memory for the next round; `unwinding` has to end because its leg is over; `left` has not ended in
time, and nobody waits for it any more."""

Move: TypeAlias = Literal["start", "finish", "rest", "resume", "end", "leave", "return"]

MOVES: Final[dict[Move, dict[Phase, Phase]]] = {
    "start": {"new": "running"},
    "finish": {"running": "finishing"},
    # It is parked. What it does by itself meanwhile may end with another rest.
    "rest": {"running": "resting", "finishing": "resting", "resting": "resting"},
    "resume": {"resting": "running"},
    # Its leg is over. There may be several reasons for that; the first counts.
    "end": {
        "running": "unwinding",
        "finishing": "unwinding",
        "resting": "unwinding",
        "unwinding": "unwinding",
        "left": "left",
        "ended": "ended",
    },
    "leave": {"unwinding": "left"},
    # It returns or raises; one that was left behind does so late.
    "return": {
        "running": "ended",
        "finishing": "ended",
        "resting": "ended",
        "unwinding": "ended",
        "left": "ended",
    },
}
"""The phase after a move, by the phase before. A move that is not here is a defect of the engine."""

OVER: Final[frozenset[Phase]] = frozenset({"unwinding", "ended", "left"})
"""The leg is over: no effect counts."""

SETTLED: Final[frozenset[Phase]] = frozenset({"resting", "ended", "left"})
"""The handler rests, has ended or was left behind: the leg need not wait for it."""


class HandlerTask:
    """Starts a handler, brings it to rest, and ends it."""

    # Not a struct: to set a field of one costs five times as much, and a leg sets most of these.
    __slots__ = (
        *("_begins", "_factory", "_late", "_refused", "_settled", "alone", "began", "beside", "ending"),
        *("loop", "phase", "task", "thread", "title", "turns", "unwind_seconds"),
    )

    loop: asyncio.AbstractEventLoop
    thread: int
    began: float
    """The loop's time when the handler began."""

    def __init__(self, title: str, unwind_seconds: float = 5.0) -> None:
        self.title = title
        """The handler in words, for logs and errors."""
        self.unwind_seconds = unwind_seconds
        """How long a handler that is cancelled may take to end."""
        self.phase: Phase = "new"
        self.ending: Suspended | BaseException | None = None
        """Why the leg ends, unless the handler has returned or raised."""
        self.alone = False
        """Whether the handler is in its first stretch and has started no other task."""
        self.task: asyncio.Task[Any] | None = None
        """None before it begins, and once the leg is concluded."""
        self.turns: Turns | None = None
        """What the handler and its branches wait for. None as long as nothing had to wait."""
        self.beside: set[asyncio.Task[None]] | None = None
        """What runs beside the handler and must end before its leg: steps, above all. None before one."""
        self._begins = False
        """Whether it begins in the next pass of the loop. Then `settled` waits for its first stretch."""
        self._settled: asyncio.Future[None] | None = None
        self._late: Patience | None = None
        self._factory: Callable[..., Any] | None = None
        """The loop's own task factory, during the first stretch."""
        self._refused = 0

    # Beginning

    def start(self, handler: Coroutine[Any, Any, Any]) -> bool:
        """Start the handler, which calls `begin` first thing; whether it has ended already.

        If not, wait for `settled` right after it.
        """
        loop = self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.phase = MOVES["start"][self.phase]
        if sys.version_info >= (3, 12):
            try:
                self.task = asyncio.Task(handler, loop=loop, name=self.title, eager_start=True)
            finally:
                self._after_first_stretch()
            return self.phase in SETTLED and not self.beside
        self.task = asyncio.Task(handler, loop=loop, name=self.title)
        self._begins = True
        return False

    def begin(self, parked: bool) -> None:
        """The handler begins, in its task. A parked one is never taken to be alone."""
        if self.task is None:  # It begins at once, and the constructor has not returned.
            self.task = asyncio.current_task()
        self.began = self.loop.time()
        if not parked:
            self.alone = True
            self._factory = self.loop.get_task_factory()
            self.loop.set_task_factory(self)

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        """Make a task, in place of the loop's own factory: the handler is not alone any more."""
        self.alone = False
        if self._factory is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._factory(loop, coroutine, **options)

    def _after_first_stretch(self) -> None:
        """The handler has ended already, or waits for something."""
        self.alone = False
        if self.loop.get_task_factory() is self:  # Else the handler has set one of its own.
            self.loop.set_task_factory(self._factory)
        if self.task is None:
            return
        if self.task.done():
            self._on_done(self.task)
            return
        self.task.add_done_callback(self._on_done)
        if self.phase == "unwinding":  # It has caught what ended its leg, and goes on.
            if type(self.ending) is not Suspended:
                self.end()
            self._unwind()

    # Ending

    def suspend(self, ending: Suspended | BaseException, *, parked: bool) -> None:
        """Nothing goes on by itself: the leg ends, and the handler is cancelled. A parked one stays."""
        self.ending = ending
        if parked and type(ending) is Suspended:
            self.phase = MOVES["rest"][self.phase]
            self._settle()
        else:
            self.end()
            self._unwind()

    def suspend_here(self, ending: Suspended | BaseException) -> asyncio.CancelledError:
        """The same, in an effect of a handler that is alone: it unwinds from there if this is raised."""
        self.ending = ending
        self.phase = MOVES["end"][self.phase]
        return asyncio.CancelledError()

    def fail(self, error: BaseException) -> None:
        """End the leg with an error that the handler cannot catch. The first error counts."""
        if not isinstance(self.ending, BaseException):
            self.ending = error
        self.end()
        if self.task is not None and not self.task.done():
            self._unwind()

    def fail_here(self, error: BaseException) -> NoReturn:
        """The same, in an effect: the handler unwinds from there."""
        self.fail(error)
        raise asyncio.CancelledError

    def give_up(self, error: BaseException) -> None:
        """End the leg with an error, and wait no longer for the handler, which was cancelled before.

        What it tidies up outside of effects may go on.
        """
        if self.phase in OVER:
            return
        self.ending = error
        self.phase = MOVES["end"][self.phase]
        if self.turns is not None:
            self.turns.close()
        self._leave_behind()

    def end(self) -> None:
        """The leg is over, whatever the handler is at: cancel it, and all that it waits for."""
        self.phase = MOVES["end"][self.phase]
        if self.turns is not None:
            self.turns.close()
        if self.task is not None and not self.task.done():
            self.task.cancel()

    async def stop(self) -> None:
        """The outcome is not wanted any more: end the leg, and wait until all of it has ended."""
        if not isinstance(self.ending, BaseException):
            self.ending = asyncio.CancelledError()
        self.end()
        # However often the caller is cancelled meanwhile: the claim on the round is given back after them.
        while self.beside:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(set(self.beside))
        try:
            if self.task is not None:
                await asyncio.wait({self.task}, timeout=self.unwind_seconds)
        finally:
            if self.turns is not None:
                self.turns.leave_branches()

    async def refuse(self) -> NoReturn:
        """Refuse an effect of a leg that is over. If it catches even this, too often, it is blocked."""
        self._refused += 1
        if self._refused > _MOST_REFUSED:
            await self.loop.create_future()
        raise asyncio.CancelledError

    def _unwind(self) -> None:
        """The handler has some time to end by itself."""
        if self._late is None:
            self._late = Patience(self.loop, self.unwind_seconds, self._leave_behind)

    def _leave_behind(self) -> None:
        _log.warning("%s does not end although its round has; it is left behind", self.title)
        self.phase = MOVES["leave"][self.phase]
        self._settle()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        if self._late is not None:
            self._late.cancel()
        if self.phase in OVER and not task.cancelled():
            self._dropped(task.exception())
        self.phase = MOVES["return"][self.phase]
        if self.turns is not None:
            self.turns.close()  # Branches that still run can do nothing more.
        if self._settled is not None:
            self._settle()

    def _dropped(self, error: BaseException | None) -> None:
        if error is None:
            _log.warning("%s returned a value while its round was ending; that is dropped", self.title)
        else:
            _log.warning("%s raised %r while its round was ending; that is dropped", self.title, error)

    # Waiting for it

    def finish(self) -> None:
        """The handler has returned, and its `on_complete` steps are to be run."""
        self.phase = MOVES["finish"][self.phase]

    def resume(self) -> None:
        """It was parked, and goes on."""
        self.phase = MOVES["resume"][self.phase]

    @coroutine
    def settled(self) -> Generator[Any, Any, None]:
        """Wait until it rests, has ended or was left behind, and all that runs beside it has ended.

        If the caller is cancelled meanwhile, the leg is stopped.
        """
        try:
            if self._begins:
                self._begins = False
                try:
                    yield  # One pass of the loop. Most handlers come to their end in it, and need no future.
                finally:
                    self._after_first_stretch()
            if self.phase not in SETTLED:
                self._settled = self.loop.create_future()
                yield from self._settled
            while self.beside and self.phase != "resting":
                yield from asyncio.wait(set(self.beside))
        except asyncio.CancelledError:
            yield from self.stop()
            raise
        except GeneratorExit:  # Who waited was thrown away, and cannot wait for the end either.
            self.end()
            raise

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    # What runs beside it

    def run_beside(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> None:
        """Run something that must end before the leg does, with these context variables."""
        task = self.loop.create_task(work, context=context)
        if self.beside is None:
            self.beside = set()
        self.beside.add(task)
        task.add_done_callback(self.beside.discard)
        task.add_done_callback(self._beside_done)

    def _beside_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # Not by us: what it was to do will never be done.
            self.fail(InternalError(f"{self.title}: what it waited for was cancelled"))
        elif (error := task.exception()) is not None:
            self.fail(error)
        elif self.turns is not None:
            self.turns.go_on()


@coroutine
def one_pass() -> Generator[None, None, None]:
    """Wait for one pass of the loop. `asyncio.sleep(0)` would hold one object more while it waits."""
    yield
