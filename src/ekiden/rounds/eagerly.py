"""A task that begins at once.

Most legs end without a wait: their effects are answered from the journal, or the first thing that they
wait for is an answer, which ends the round. To start a task for them and come back to it in the next
pass of the loop would cost more than the leg itself. So the coroutine is begun here, by hand, as the
current task and in the context of the task that goes on with it if it waits after all.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, Final, NoReturn

from ekiden.opaque import Opaque

from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]  # isort: skip

__all__ = ["EagerTask", "Rest"]

_BLOCKING: Final = "_asyncio_future_blocking"
"""What an `await` sets on a future, and the task that gets it takes away: without it, it is no `await`."""


def _passed_on(name: str) -> Any:
    return property(lambda task: getattr(task._coroutine, name))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class EagerTask(Opaque, weakref=True):
    """A coroutine in a task of its own, which is to `begin` at once. If it is `done` then, it never waited.

    It is itself the coroutine that the task runs: what is left of the one that was begun.
    """

    _loop: asyncio.AbstractEventLoop
    _coroutine: Coroutine[Any, Any, Any]
    _handed_over: bool = False
    """Whether the task has come to its turn."""
    _marked: bool = False
    """Whether what it waits for was marked as awaited."""
    _factory: Any = None
    """The loop's task factory, meanwhile."""
    done: bool = False
    alone: bool = True
    """Whether it has started no other task before its first wait: then nothing else of it can run."""
    error: BaseException | None = None
    waits_for: Any = None
    """What it waits for; once it is done, its value."""
    task: asyncio.Task[Any] = None  # type: ignore[assignment]  # It has one as soon as it begins.

    def begin(self, name: str) -> None:
        """Run the coroutine up to its first wait, in a task of this name."""
        loop = self._loop
        context = copy_context()
        whole: Any = self
        # Not by the loop's factory: one that starts its tasks at once would be ahead of us.
        task = self.task = asyncio.Task(whole, loop=loop, name=name, context=context)
        self._factory = loop.get_task_factory()
        spawn = self._spawn
        loop.set_task_factory(spawn)
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, task)
        try:
            self.waits_for = context.run(self._coroutine.send, None)
        except StopIteration as stop:
            self.done, self.waits_for = True, stop.value
        except BaseException as error:
            self.done, self.error = True, error
        finally:
            _leave_task(loop, task)
            if caller is not None:
                _enter_task(loop, caller)
            if loop.get_task_factory() is spawn:  # Else the handler has set one of its own.
                loop.set_task_factory(self._factory)
        if not self.done and getattr(self.waits_for, _BLOCKING, False):
            # It is marked as awaited, for the task. But the task has not come to its turn, and others may.
            setattr(self.waits_for, _BLOCKING, False)
            self._marked = True

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
            try:
                return self._coroutine.send(value)
            except (SystemExit, KeyboardInterrupt) as error:
                raise _harmless(error) from error
        self._handed_over = True
        if self.done:
            raise StopIteration
        return self._first_wait()

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Go on with an exception: as a rule, the task was cancelled."""
        if not self._handed_over:
            # In its first moments the coroutine has cancelled its own task: that hits what it waits for.
            self._handed_over = True
            if self.done:
                raise StopIteration
            waited = self._first_wait()
            if hasattr(waited, "cancel") and waited.cancel():
                return waited
        try:
            return self._coroutine.throw(error)
        except (SystemExit, KeyboardInterrupt) as ending:
            raise _harmless(ending) from ending
        finally:
            del error  # An exception that is kept must not keep itself, by this frame.

    def _first_wait(self) -> Any:
        waited, self.waits_for = self.waits_for, None
        if self._marked:
            setattr(waited, _BLOCKING, True)
        return waited

    def close(self) -> None:
        """Give it up."""
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
