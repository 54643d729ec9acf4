"""A task that begins at once.

Most legs end without a wait: their effects are answered from the journal, or the first thing that they
wait for is an answer, which ends the round. To start a task for them and come back to it in the next
pass of the loop would cost more than the leg itself. So the coroutine is begun here, by hand, as the
current task and in the context of the task that goes on with it if it waits after all.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any

from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]  # isort: skip

__all__ = ["EagerTask", "Rest"]


class EagerTask:
    """A coroutine in a task of its own, begun already. If `done`, it has ended without a wait."""

    __slots__ = (
        "_caller",
        "_context",
        "_coroutine",
        "_factory",
        "_loop",
        "alone",
        "done",
        "error",
        "task",
        "waits_for",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._caller = asyncio.current_task(loop)
        self._context = copy_context()
        self.error: BaseException | None = None
        self.waits_for: Any = None
        """What it waits for; once it is done, its value."""
        self.done = False
        self.alone = True
        """Whether it has started no other task before its first wait: then nothing else of it can run."""
        going_on = self._go_on()
        going_on.send(None)
        # Not by the loop's factory: one that starts its tasks at once would be ahead of us.
        self.task: asyncio.Task[Any] = asyncio.Task(going_on, loop=loop, context=self._context)
        self._factory = loop.get_task_factory()
        spawn = self._spawn
        loop.set_task_factory(spawn)
        try:
            self._advance(coroutine.send, None)
        finally:
            if loop.get_task_factory() is spawn:  # Else the handler has set one of its own.
                loop.set_task_factory(self._factory)

    def cancel(self) -> None:
        """Cancel it here and now: its task has not yet gone on with it, nor its caller with anything else."""
        self._advance(self._coroutine.throw, asyncio.CancelledError)

    def _advance(self, resume: Callable[[Any], Any], sent: Any) -> None:
        loop, caller = self._loop, self._caller
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, self.task)
        try:
            self.waits_for = self._context.run(resume, sent)
        except StopIteration as stop:
            self.done, self.waits_for = True, stop.value
        except BaseException as error:
            self.done, self.error = True, error
        finally:
            _leave_task(loop, self.task)
            if caller is not None:
                _enter_task(loop, caller)

    def _spawn(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        self.alone = False
        make: Callable[..., Any] | None = self._factory
        if make is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return make(loop, coroutine, **options)

    async def _go_on(self) -> Any:
        try:
            await _turn()
        except asyncio.CancelledError as cancelled:
            # In its first moments the coroutine has cancelled its own task: that hits what it waits for.
            waited: Any = self.waits_for
            if not self.done and not (hasattr(waited, "cancel") and waited.cancel()):
                try:
                    self.waits_for = self._coroutine.throw(cancelled)
                except StopIteration as stop:
                    return stop.value
        try:
            return None if self.done else await Rest(self._coroutine, self.waits_for)
        except (SystemExit, KeyboardInterrupt) as error:  # A task would end the whole loop with it.
            raise RuntimeError(f"the handler raised {type(error).__name__}, which is no Exception") from error

    def exception(self) -> BaseException | None:
        """What it raised; a cancellation counts."""
        if self.done:
            return self.error
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    def result(self) -> Any:
        """What it returned."""
        return self.waits_for if self.done else self.task.result()


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Wait for the task's turn: a coroutine that has begun hears of it if it is cancelled before."""
    yield


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
