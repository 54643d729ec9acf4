"""Calling an author's function, be it `async def` or plain `def`.

A plain function runs in a thread, so that it can block without stopping other calls.
"""

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

from ekiden.rounds.performing import current_memory
from ekiden.wire.json import JsonObject

__all__ = ["Handler", "OnceMode", "Run", "TaskMode"]

_THREADS: Final = 40
"""Plain functions that may run at once in this process: more than it has cores, for they mostly wait."""

_NOT_BEGUN: Final = object()
"""Returned by a thread that may not begin before the claim on its round is confirmed."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "ekiden-handler")


OnceMode: TypeAlias = Literal["auto"] | bool

TaskMode: TypeAlias = Literal["never", "deferred", "optional", "required"]
"""When a call becomes a task.

`"deferred"`: when the handler calls `ctx.background()`. `"optional"`: at its start, if the client supports
tasks. `"required"`: at its start, and other clients are refused.
"""


class Handler:
    """An author's function, with the name of its `Context` parameter and its options for rounds and tasks."""

    __slots__ = ("call", "context", "function", "is_direct", "needs", "once", "parked", "task")

    def __init__(
        self,
        function: Callable[..., Any],
        context: str | None = None,
        *,
        once: OnceMode = "auto",
        resume: Literal["replay", "parked"] = "replay",
        needs: tuple[JsonObject, ...] = (),
        task: TaskMode = "never",
    ) -> None:
        self.function = function
        """The author's function."""
        self.context = context
        self.once: OnceMode = once
        self.parked = resume == "parked"
        self.needs = needs
        """The client capabilities without which it is not called."""
        self.task: TaskMode = task
        self.is_direct = context is None and not needs and task in ("never", "deferred")
        """Whether it needs only the arguments of a request."""
        self.call: Callable[..., Any] = function if _is_async(function) else self._in_thread
        """The function to call; async, also if the author's is not."""

    async def _in_thread(self, /, *arguments: Any, **keywords: Any) -> Any:
        return await _in_thread(_contained, self.function, *arguments, **keywords)


class Run:
    """One call of a step's function. A thread cannot be cancelled: it is abandoned, and goes on."""

    __slots__ = ("_function", "_has_begun", "_is_cut", "_lock", "_memory", "abandoned")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._memory = current_memory.get()
        self._lock = Lock()
        self._has_begun = self._is_cut = False
        self.abandoned: asyncio.Future[Any] | None = None
        """The thread that still runs although the call was cancelled."""

    async def call(self, /, *arguments: Any) -> Any:
        """The function's value. A cancellation is raised at once, even if a thread still runs."""
        if _is_async(self._function):
            return await self._function(*arguments)
        while (value := await self._in_thread(*arguments)) is _NOT_BEGUN:
            assert self._memory is not None
            await self._memory.recall()
        # A plain function may return an awaitable: a lambda, or a decorator that is not async.
        return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, /, *arguments: Any) -> Any:
        thread = _in_thread(self._call, *arguments)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            with self._lock:
                self._is_cut = True
            if self._has_begun and not thread.done():
                self.abandoned = thread
            thread.add_done_callback(self._forget)
            raise

    def _call(self, /, *arguments: Any) -> Any:
        with self._lock:
            if self._is_cut:
                return None  # It was cancelled while it waited for a thread: it never begins.
            if self._memory is not None and not self._memory.is_sure():
                return _NOT_BEGUN  # While it waited for a thread, another worker may have claimed the round.
            self._has_begun = True
        return _contained(self._function, *arguments)

    def _forget(self, thread: asyncio.Future[Any]) -> None:
        self.abandoned = None
        if not thread.cancelled():
            thread.exception()  # Marks it as seen: asyncio would warn that it was never retrieved.


def _in_thread(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> asyncio.Future[Any]:
    call = functools.partial(contextvars.copy_context().run, function, *arguments, **keywords)
    return asyncio.get_running_loop().run_in_executor(_threads(), call)


def _contained(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except StopIteration as error:
        # A future cannot hold StopIteration. Python turns it into RuntimeError in coroutines, too.
        raise RuntimeError("the handler raised StopIteration") from error


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004  an instance with an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
