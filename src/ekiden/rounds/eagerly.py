"""A task that begins at once.

Most legs end without a wait: their effects are answered from the journal, or the first thing that they
wait for is an answer, which ends the round. To start a task for them and come back to it in the next
pass of the loop would cost more than the leg itself. So the coroutine is begun here, by hand, as the
current task and in the context of the task that goes on with it if it waits after all.

A task is dear: before Python 3.12 it is entered in a set by code in Python, and it comes to its turn only
to find that all is done. So there one on which nobody has laid hands serves the next coroutine too.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from gc import get_referents
from sys import getrefcount
from typing import Any, Final, NoReturn
from weakref import getweakrefcount

from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]  # isort: skip

__all__ = ["EagerTask", "Rest", "eager_task"]

_RENEWS: Final = sys.version_info < (3, 12) and sys.implementation.name == "cpython"
"""Whether a task can serve a second coroutine. Later ones tell whoever asks their context, and cost less."""
_HELD: Final = 4
"""References to a task that nobody has kept: two in `let_go`, one of ours, and one of what wakes it."""
_REFERS: Final = 4
"""What such a task refers to: its loop, coroutine, context and name; and what it waits for, if anything."""
_MOST: Final = 8
"""Spare tasks in a thread: calls within calls need more than one."""


def _passed_on(name: str) -> Any:
    return property(lambda task: getattr(task._coroutine, name))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class EagerTask(Coroutine[Any, Any, Any]):
    """A coroutine in a task of its own, begun already. If `done`, it has ended without a wait.

    It is itself the coroutine that the task runs: what is left of the one that was begun.
    """

    __slots__ = (
        "_context",
        "_coroutine",
        "_factory",
        "_handed_over",
        "_idle",
        "_loop",
        "_renewed",
        "alone",
        "done",
        "error",
        "task",
        "waits_for",
    )

    task: asyncio.Task[Any]
    error: BaseException | None
    waits_for: Any
    """What it waits for; once it is done, its value."""
    done: bool
    alone: bool
    """Whether it has started no other task before its first wait: then nothing else of it can run."""
    _handed_over: bool
    """Whether the task has come to its turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: asyncio.Future[None] | None = None
        """What the task waits for while it has nothing to do."""
        self._renewed = False
        """Whether the task was another coroutine's before."""

    def is_spare(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether its task still has nothing to do, and is one of this loop."""
        idle = self._idle
        return self._loop is loop and not (self.task.cancelling() if idle is None else idle.done())

    def begin(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine, up to its first wait."""
        loop = self._loop
        self._coroutine: Any = coroutine
        self._context: Any = copy_context()
        self._handed_over = self.done = False
        self.error = self.waits_for = None
        self.alone = True
        if self._renewed:
            self.task.set_name(name)
        else:
            # Not by the loop's factory: one that starts its tasks at once would be ahead of us. A task that
            # may serve others must not hold the first one's context: it enters that of each by itself.
            context = Context() if _RENEWS else self._context
            self.task = asyncio.Task(self, loop=loop, name=name, context=context)
        self._factory = loop.get_task_factory()
        spawn = self._spawn
        loop.set_task_factory(spawn)
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, self.task)
        try:
            self.waits_for = self._context.run(coroutine.send, None)
        except StopIteration as stop:
            self.done, self.waits_for = True, stop.value
        except BaseException as error:
            self.done, self.error = True, error
        finally:
            _leave_task(loop, self.task)
            if caller is not None:
                _enter_task(loop, caller)
            if loop.get_task_factory() is spawn:  # Else the handler has set one of its own.
                loop.set_task_factory(self._factory)

    def _spawn(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        self.alone = False
        make: Callable[..., Any] | None = self._factory
        if make is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return make(loop, coroutine, **options)

    # What the task calls

    def send(self, value: Any) -> Any:
        """Go on; at first only with what is awaited already."""
        if self._handed_over:
            return self._go_on(self._coroutine.send, value)
        if self._coroutine is None:
            return self._rest()
        self._handed_over = True
        if self.done:
            raise StopIteration
        waited, self.waits_for = self.waits_for, None
        return waited

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Go on with an exception: as a rule, the task was cancelled."""
        if self._coroutine is None:
            raise error
        if not self._handed_over:
            # In its first moments the coroutine has cancelled its own task: that hits what it waits for.
            self._handed_over = True
            if self.done:
                raise StopIteration
            waited, self.waits_for = self.waits_for, None
            if hasattr(waited, "cancel") and waited.cancel():
                return waited
        try:
            return self._go_on(self._coroutine.throw, error)
        finally:
            del error  # An exception that is kept must not keep itself, by this frame.

    def _go_on(self, resume: Callable[[Any], Any], sent: Any) -> Any:
        try:
            return self._context.run(resume, sent) if _RENEWS else resume(sent)
        except (SystemExit, KeyboardInterrupt) as ending:
            raise _harmless(ending) from ending
        finally:
            del sent

    def _rest(self) -> Any:
        """Nothing to do as yet."""
        idle: Any = self._loop.create_future()
        idle._asyncio_future_blocking = True  # noqa: SLF001  As an `await` marks what it waits for.
        self._idle = idle
        return idle

    def hand_over(self) -> None:
        """Let its task go on with it: it waits, or is not to be asked about."""
        if self._renewed:
            self._mind_loss(minded=True)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _mind_loss(self, *, minded: bool) -> None:
        """Whether asyncio warns if the task is lost before it is done."""
        self.task._log_destroy_pending = minded  # type: ignore[attr-defined]  # noqa: SLF001

    def close(self) -> None:
        """Give it up."""
        if self._coroutine is not None:
            self._coroutine.close()

    def __await__(self) -> NoReturn:
        """Only its task awaits it."""
        raise RuntimeError("await the task")

    # For whoever looks at the task, or prints it: its code is that of the coroutine.
    __name__ = _passed_on("__name__")
    cr_await = _passed_on("cr_await")
    cr_code = _passed_on("cr_code")
    cr_frame = _passed_on("cr_frame")
    cr_running = _passed_on("cr_running")

    def exception(self) -> BaseException | None:
        """What it raised; a cancellation counts."""
        if self.done:
            return self.error
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    def result(self) -> Any:
        """What it returned."""
        return self.waits_for if self.done else self.task.result()

    def let_go(self) -> None:
        """Nobody asks about it any more. A task that nobody has laid hands on may serve another coroutine.

        Laid hands on: kept it, strongly or weakly; marked it; waits for its end; cancelled it.
        """
        idle, task = self._idle, self.task
        if (
            _RENEWS
            and self.done
            and not self._handed_over
            and getrefcount(task) == _HELD
            and getweakrefcount(task) == 1  # asyncio's own
            and len(get_referents(task)) == (_REFERS if idle is None else _REFERS + 1)
            and not (task.cancelling() if idle is None else idle.done())
            and len(spares := _spares.free) < _MOST
        ):
            self._coroutine = self._context = self._factory = None
            self.waits_for = self.error = None
            if not self._renewed:
                self._renewed = True
                self._mind_loss(minded=False)
            spares.append(self)
        else:
            self.error = None
            self.hand_over()
            del self.task


class _Spares(threading.local):
    """Tasks at which nobody looked, and that have nothing to do. By thread, as their loops are."""

    def __init__(self) -> None:
        self.free: list[EagerTask] = []


_spares = _Spares()


def eager_task(loop: asyncio.AbstractEventLoop) -> EagerTask:
    """A task that is to `begin` a coroutine: one that served before, or a new one."""
    spare = _spares.free.pop() if _spares.free else None
    return spare if spare is not None and spare.is_spare(loop) else EagerTask(loop)


def _harmless(error: BaseException) -> RuntimeError:
    """What a task would end the whole loop with, as an exception that ends only itself."""
    return RuntimeError(f"the handler raised {type(error).__name__}, which is no Exception")


class Rest:
    """What is left of a coroutine after its first wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(sent)
        except StopIteration as stop:
            return stop.value
