"""An event loop whose time is virtual: where nothing is ready, the clock jumps to the next timer.

Everything else is asyncio's own, the order of ready callbacks above all. Nothing ever waits, and nothing
runs in a second thread: a simulated hour costs as much as its callbacks.
"""

import asyncio
import contextvars
import functools
import heapq
from asyncio import base_events
from collections.abc import Callable
from typing import Any

__all__ = ["Deadlock", "TooLong", "VirtualLoop", "VirtualSelector"]


_SPINS = 5000
"""Passes in a row after which time goes on although something is ready: a cancelled anyio scope asks again in
every pass until its body has ended."""


class Deadlock(BaseException):
    """Nothing is ready, no timer is set, and the main coroutine has not ended."""


class TooLong(BaseException):
    """More passes of the loop than any simulated call may need."""


class VirtualSelector:
    """Takes the place of the selector: what would be a wait moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        loop = self._loop
        loop.passes += 1
        if loop.passes > loop.most_passes:
            raise TooLong(f"{loop.passes} passes of the loop")
        if loop.bury(timeout == 0) or loop.hold(timeout == 0):
            return []
        heard = self.heard(timeout == 0)
        if timeout is None and not heard:
            raise Deadlock(f"nothing is left to wait for at {loop.time():.2f} s")
        loop.pass_by(0.0 if timeout is None or heard else timeout)
        loop.hold_timers()
        return heard

    def heard(self, is_ready: bool) -> list[Any]:
        """What came from outside, after a wait if nothing else is ready. Here there is no outside."""
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """Time starts at 0. Tasks know their `owner`: what `owner` gave when they were made."""

    def __init__(self, owner: contextvars.ContextVar[Any], most_passes: int = 1_000_000) -> None:
        super().__init__()
        self._selector: Any = self.new_selector()
        self.now = 0.0
        self.passes = 0
        self.most_passes = most_passes
        self._spins = 0
        self._timers_set = 0
        self.threads = 0
        """Simulated threads that run right now."""
        self.thread_seconds = 0.0
        """How long the simulated thread takes that is being called; the function sets it."""
        self.is_dead: Callable[[Any], bool] | None = None
        """Whose callbacks are never called again; None while nobody has died."""
        self._buried: list[Any] = []
        self._stalls: list[_Stall] = []
        self._made: list[asyncio.Task[Any]] = []
        """Every task. One that nobody holds would be closed whenever the collector comes by."""
        self.problems: list[str] = []
        """What would have been logged as never retrieved, or raised in a callback."""
        self._owner = owner
        self.set_exception_handler(self._note)
        self.set_task_factory(_make_task)

    def new_selector(self) -> VirtualSelector:
        return VirtualSelector(self)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """Timers of the same moment fire in the order in which they were set; a heap does not promise it."""
        self._timers_set += 1
        return super().call_at(when + self._timers_set * 1e-10, callback, *args, context=context)

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call `func` on the next pass; its value comes when its thread ends. It cannot be cancelled."""
        future: asyncio.Future[Any] = self.create_future()
        self.threads += 1
        self.call_soon(self._begin_thread, future, functools.partial(func, *args))
        return future

    def _begin_thread(self, future: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        self.thread_seconds = 0.0
        try:
            value, error = call(), None
        except Exception as raised:
            value, error = None, raised
        self.call_later(self.thread_seconds, self._end_thread, future, value, error)

    def _end_thread(self, future: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
        self.threads -= 1
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def pass_by(self, timeout: float) -> None:
        """Let time pass: up to the next timer if nothing is ready, and for those who spin, as well."""
        self._spins = 0 if timeout > 0 else self._spins + 1
        if self._spins > _SPINS and self._scheduled:  # type: ignore[attr-defined]
            self._spins = 0
            timeout = max(0.0, self._scheduled[0].when() - self.now)  # type: ignore[attr-defined]
        if timeout > 0:
            self.now += timeout

    def bury(self, ready: bool) -> bool:
        """Drop what the dead would do next. True if that was all there was to do."""
        if self.is_dead is None:
            return False
        for handle in self._scheduled:  # type: ignore[attr-defined]
            if not handle.cancelled() and self._is_buried(handle):
                self.keep(handle._callback, handle._args)
                handle.cancel()
        queue: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(len(queue)):
            handle = queue.popleft()
            (self._buried if self._is_buried(handle) else queue).append(handle)
        return ready and not queue

    def keep(self, *remains: Any) -> None:
        """Keep what the dead held: a coroutine that nobody holds is closed, and its `finally` blocks run."""
        self._buried.append(remains)

    def _is_buried(self, handle: Any) -> bool:
        assert self.is_dead is not None
        owner = handle._context.get(self._owner)
        return owner is not None and self.is_dead(owner)

    def stall(self, seconds: float, concerns: Callable[[contextvars.Context], bool]) -> None:
        """For so long, run nothing whose context is concerned. Then it goes on, in its order."""
        stall = _Stall(concerns)
        self._stalls.append(stall)
        self.call_later(seconds, self._go_on, stall, context=contextvars.Context())

    def _go_on(self, stall: "_Stall") -> None:
        self._stalls.remove(stall)
        self._ready.extend(stall.held)  # type: ignore[attr-defined]

    def hold(self, ready: bool) -> bool:
        """Set aside what is stalled. True if that was all there was to do."""
        if not self._stalls:
            return False
        queue: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(len(queue)):
            handle = queue.popleft()
            if (stall := self._stall_of(handle)) is None:
                queue.append(handle)
            else:
                stall.held.append(handle)
        return ready and not queue

    def hold_timers(self) -> None:
        """Set aside the timers that fire now and are stalled."""
        if not self._stalls:
            return
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        due = [handle for handle in timers if handle.when() <= self.now + self._clock_resolution]  # type: ignore[attr-defined]
        for handle in sorted(due, key=asyncio.TimerHandle.when):
            if not handle.cancelled() and (stall := self._stall_of(handle)) is not None:
                timers.remove(handle)
                handle._scheduled = False
                stall.held.append(handle)
        heapq.heapify(timers)

    def _stall_of(self, handle: Any) -> "_Stall | None":
        return next((stall for stall in self._stalls if stall.concerns(handle._context)), None)

    def timers(self) -> int:
        """Timers that are still to fire."""
        return sum(not handle.cancelled() for handle in self._scheduled)  # type: ignore[attr-defined]

    def owner(self, task: asyncio.Task[Any]) -> Any:
        """Who made a task, where that is known."""
        if hasattr(task, "get_context"):
            return task.get_context().get(self._owner)
        return getattr(task, "owner", None)

    def task_made(self, task: asyncio.Task[Any], context: contextvars.Context | None) -> None:
        """Keep a task, and who made it: Python 3.11 does not tell its context."""
        self._made.append(task)
        task.owner = self._owner.get(None) if context is None else context.get(self._owner)  # type: ignore[attr-defined]


class _Stall:
    """What must not run for a while."""

    def __init__(self, concerns: Callable[[contextvars.Context], bool]) -> None:
        self.concerns = concerns
        self.held: list[Any] = []


def _make_task(loop: VirtualLoop, coro: Any, context: Any = None, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, context=context, **options)
    loop.task_made(task, context)
    return task
