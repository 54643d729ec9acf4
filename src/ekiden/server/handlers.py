"""Calling an author's function, be it `async def` or plain `def`.

A plain function runs in a thread, so that one which blocks does not stop everybody else.
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

__all__ = ["Handler", "OnceMode", "Run", "TaskMode"]

_THREADS: Final = 40
"""Plain handlers that may run at once in this process; they mostly wait for something."""

_NOT_BEGUN: Final = object()
"""What a thread gives that has to find out first whether it may begin."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "ekiden-handler")


OnceMode: TypeAlias = Literal["auto"] | bool

TaskMode: TypeAlias = Literal["never", "deferred", "optional", "required"]
"""Whether a tool becomes a task: when its handler says so, from the start where the client can, or always."""


class Handler:
    """A function, with the name of its `Context` parameter and the way it wants its rounds."""

    __slots__ = ("call", "context", "function", "is_direct", "needs", "once", "parked", "task")

    def __init__(
        self,
        function: Callable[..., Any],
        context: str | None = None,
        *,
        once: OnceMode = "auto",
        resume: Literal["replay", "parked"] = "replay",
        needs: tuple[dict[str, Any], ...] = (),
        task: TaskMode = "never",
    ) -> None:
        self.function = function
        """The author's."""
        self.context = context
        self.once: OnceMode = once
        self.parked = resume == "parked"
        self.needs = needs
        """The client capabilities without which it is not called."""
        self.task: TaskMode = task
        self.is_direct = context is None and not needs and task in ("never", "deferred")
        """Whether it needs nothing of the request but its arguments."""
        self.call: Callable[..., Any] = function if _is_async(function) else self._in_thread
        """An async function, whatever the author's was."""

    async def _in_thread(self, /, *arguments: Any, **keywords: Any) -> Any:
        return await _in_thread(_contained, self.function, *arguments, **keywords)


class Run:
    """One call of a function that may be cancelled; a thread cannot be, and is left behind."""

    __slots__ = ("_function", "_has_begun", "_is_cut", "_lock", "_memory", "left")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._memory = current_memory.get()
        self._lock = Lock()
        self._has_begun = self._is_cut = False
        self.left: asyncio.Future[Any] | None = None
        """The thread that goes on although the call was cancelled, as long as it does."""

    async def call(self, /, *arguments: Any) -> Any:
        """What the function gives. If it is cancelled, the cancellation is raised at once."""
        if _is_async(self._function):
            return await self._function(*arguments)
        while (value := await self._in_thread(*arguments)) is _NOT_BEGUN:
            assert self._memory is not None
            await self._memory.recall()
        # A plain function may give what is to be awaited: a lambda, or a decorator that is not async.
        return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, /, *arguments: Any) -> Any:
        thread = _in_thread(self._call, *arguments)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            with self._lock:
                self._is_cut = True
            if self._has_begun and not thread.done():
                self.left = thread
            thread.add_done_callback(self._end)
            raise

    def _call(self, /, *arguments: Any) -> Any:
        with self._lock:
            if self._is_cut:
                return None  # It was cancelled while it waited for a thread: it never begins.
            if self._memory is not None and not self._memory.is_sure():
                return _NOT_BEGUN  # It waited for a thread, and somebody else may have the step by now.
            self._has_begun = True
        return _contained(self._function, *arguments)

    def _end(self, thread: asyncio.Future[Any]) -> None:
        self.left = None
        if not thread.cancelled():
            thread.exception()  # Nobody asks for it any more, and that is no reason for a warning.


def _in_thread(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> asyncio.Future[Any]:
    call = functools.partial(contextvars.copy_context().run, function, *arguments, **keywords)
    return asyncio.get_running_loop().run_in_executor(_threads(), call)


def _contained(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except StopIteration as error:
        # No future can carry it; a coroutine would have turned it into this as well.
        raise RuntimeError("the handler raised StopIteration") from error


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004  an instance with an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
