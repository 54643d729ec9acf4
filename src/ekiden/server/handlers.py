"""Calling an author's function, be it `async def` or plain `def`, within its time limit if it has one.

A plain function runs in a thread, so that it can block without stopping other calls.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, Literal, Protocol, TypeAlias

from ekiden.errors import ToolError
from ekiden.rounds.performing import current_memory
from ekiden.transports.server.large.begins import THREADS, BeginTurns
from ekiden.wire.json import JsonObject

__all__ = [
    "Handler",
    "OnceMode",
    "ResumeMode",
    "TaskMode",
    "ThreadRun",
    "is_async",
    "limit_paused",
    "thread_turns",
]

_log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 1.0
"""How long a handler may take to end when its time is over and it is cancelled."""

_NOT_BEGUN: Final = object()
"""Returned by a thread that may not begin before the claim on its round is confirmed."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "ekiden-handler")


OnceMode: TypeAlias = Literal["auto"] | bool

ResumeMode: TypeAlias = Literal["replay", "parked"]

TaskMode: TypeAlias = Literal["never", "deferred", "optional", "required"]
"""When a call becomes a task.

`"deferred"`: when the handler calls `ctx.background()`. `"optional"`: at its start, if the client supports
tasks. `"required"`: at its start, and other clients are refused.
"""


class Handler:
    """An author's function, with the name of its `Context` parameter and its options for rounds and tasks."""

    __slots__ = (
        "call",
        "context",
        "function",
        "is_direct",
        "is_plain",
        "may_wait",
        "needs",
        "once",
        "parked",
        "returns_much",
        "scopes",
        "task",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        context: str | None = None,
        *,
        once: OnceMode = "auto",
        resume: ResumeMode = "replay",
        needs: tuple[JsonObject, ...] = (),
        task: TaskMode = "never",
        timeout: float | None = None,
        scopes: Iterable[str] = (),
        title: str = "The handler",
    ) -> None:
        self.function = function
        """The author's function."""
        self.context = context
        self.once: OnceMode = once
        self.parked = resume == "parked"
        self.needs = needs
        """The client capabilities without which it is not called."""
        self.scopes = frozenset(scopes)
        """The scopes that its caller must have been granted."""
        self.task: TaskMode = task
        self.is_direct = context is None and not needs and task in ("never", "deferred")
        """Whether it needs only the arguments of a request."""
        self.is_plain = self.may_wait = not is_async(function)
        """Whether it runs in a thread. Then it may have to wait before it begins."""
        self.returns_much = False
        """Whether it has returned a large value before. While many of these wait, it does not begin."""
        self.call: Callable[..., Any] = self._in_thread if self.is_plain else function
        """The function to call; async, also if the author's is not."""
        if timeout is not None:
            self.call = functools.partial(_within_limit, self.call, timeout, title, context)

    def has_returned_much(self) -> None:
        """It has returned a large value."""
        self.returns_much = self.may_wait = True

    async def _in_thread(self, /, *arguments: Any, **keywords: Any) -> Any:
        if self.context is not None and self.context in keywords:
            keywords[self.context] = keywords[self.context].for_plain_function()
        if (turns := thread_turns.get()) is None:
            return await _in_thread(_contained, self.function, *arguments, **keywords)
        begins, client = turns
        await begins.thread(client, self)
        call = functools.partial(_contained, self.function, *arguments, **keywords)
        submitted = _threads().submit(contextvars.copy_context().run, call)
        thread: asyncio.Future[Any] = asyncio.wrap_future(submitted)
        # Not when this is cancelled: a thread that has begun goes on, and nobody else can have it.
        thread.add_done_callback(functools.partial(_freed, begins))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            submitted.cancel()  # Steps may have all threads: then it has not begun, and never does.
            raise


def _freed(begins: BeginTurns, thread: asyncio.Future[Any]) -> None:
    begins.freed()
    _forget_error(thread)


thread_turns: Final[contextvars.ContextVar[tuple[BeginTurns, str] | None]] = contextvars.ContextVar(
    "thread_turns", default=None
)
"""Where the plain function of a request waits for a thread, and as whom. Others begin at once: tasks, of
which only so many run."""


_limit: Final[contextvars.ContextVar["_TimeLimit | None"]] = contextvars.ContextVar("limit", default=None)


class _TimeLimit:
    """The time that one run of a handler has left. It stands still while the handler waits for the user."""

    def __init__(self, scope: asyncio.Timeout, seconds: float, give_up: Callable[[], None]) -> None:
        self._scope = scope
        self._left = seconds
        self._give_up = give_up
        self._late: asyncio.TimerHandle | None = None
        """When the handler is given up, which the scope has cancelled before."""
        self._pauses = 0
        self._is_over = False
        self._go_on()

    def pause(self) -> None:
        """Stop the clock. Branches of a handler may do so at the same time."""
        when = self._scope.when()
        if self._pauses == 0 and when is not None and self._counts():
            self._left = when - asyncio.get_running_loop().time()
            self._scope.reschedule(None)
            self._forget_late()
        self._pauses += 1

    def resume(self) -> None:
        """Let the clock go on, when the last pause has ended."""
        self._pauses -= 1
        if self._pauses == 0 and self._counts():
            self._go_on()

    def end(self) -> None:
        """The handler has ended."""
        self._is_over = True
        self._forget_late()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + self._left
        self._scope.reschedule(when)
        self._late = loop.call_at(when + _GRACE_SECONDS, self._give_up)

    def _forget_late(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _counts(self) -> bool:
        return not self._is_over and not self._scope.expired()


@contextlib.contextmanager
def limit_paused() -> Generator[None, None, None]:
    """Stop the clock of the running handler's `timeout=`, if it has one, while the block runs."""
    limit = _limit.get()
    if limit is None:
        yield
        return
    limit.pause()
    try:
        yield
    finally:
        limit.resume()


class _GivesUp(Protocol):
    """The context of a handler, as its time limit sees it."""

    def give_up(self, error: Exception) -> None:
        """End the call with this error."""
        ...


async def _within_limit(
    call: Callable[..., Any],
    seconds: float,
    title: str,
    context: str | None,
    /,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    """Call a handler, and stop it after so many seconds, as an `asyncio.timeout` in its body would.

    So steps are cut as the author's own timeouts cut them: none begins twice, and a thread runs to its end.
    A handler that goes on although it is cancelled is left behind, and begins no step any more.
    """
    stopped = ToolError(f"{title} was stopped: it took longer than {seconds:g} s")
    if context is None:
        return await _in_a_task(call(*arguments, **keywords), seconds, title, stopped)
    gives_up: _GivesUp = keywords[context]
    scope = asyncio.timeout(None)
    try:
        async with scope:
            limit = _TimeLimit(scope, seconds, lambda: gives_up.give_up(stopped))
            token = _limit.set(limit)
            try:
                return await call(*arguments, **keywords)
            finally:
                limit.end()
                _limit.reset(token)
    except TimeoutError:
        if not scope.expired():
            raise  # The handler's own.
        _log.warning("%s", stopped)
        raise stopped from None


async def _in_a_task(
    handler: Coroutine[Any, Any, Any], seconds: float, title: str, stopped: ToolError
) -> Any:
    """Run a handler without a context, which has no effects, in a task that can be left behind."""
    task = asyncio.get_running_loop().create_task(_without_exit(handler))
    try:
        _, late = await asyncio.wait({task}, timeout=seconds)
        if late:
            task.cancel()
            _, late = await asyncio.wait({task}, timeout=_GRACE_SECONDS)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        raise
    if not late and not (task.cancelled() and task.cancelling()):
        return task.result()
    _log.warning("%s", stopped)
    if late:
        _log.warning("%s does not end although it was stopped; it is left behind", title)
        task.add_done_callback(_forget_error)
    raise stopped


async def _without_exit(handler: Coroutine[Any, Any, Any]) -> Any:
    """A task that raises `SystemExit` would end the event loop."""
    try:
        return await handler
    except SystemExit as error:
        raise RuntimeError("the handler raised SystemExit, which is not an Exception") from error


def _forget_error(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # Marks it as seen: asyncio would warn that it was never retrieved.


class ThreadRun:
    """One call of a step's plain function. A thread cannot be cancelled: it is abandoned, and goes on."""

    __slots__ = (
        "_function",
        "_has_begun",
        "_is_cut",
        "_lock",
        "_memory",
        "abandoned",
        "late",
        "waits_for_claim",
    )

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._memory = current_memory.get()
        self._lock = Lock()
        self._has_begun = self._is_cut = False
        self.abandoned: asyncio.Future[Any] | None = None
        """The thread that still runs although the call was cancelled."""
        self.late: asyncio.Future[Any] | None = None
        """The same, also when it has ended."""
        self.waits_for_claim = False
        """Whether the function has not begun, because it is not certain any more that the claim is ours."""

    async def call(self, /, *arguments: Any) -> Any:
        """The function's value. A cancellation is raised at once, even if the thread still runs."""
        while (value := await self._in_thread(*arguments)) is _NOT_BEGUN:
            assert self._memory is not None
            self.waits_for_claim = True
            await self._memory.recall()
            self.waits_for_claim = False
        # A plain function may return an awaitable: a lambda, or a decorator that is not async.
        return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, /, *arguments: Any) -> Any:
        thread = _in_thread(self._call, *arguments)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            with self._lock:
                self._is_cut = True
            if self._has_begun:
                self.late = thread
                self.abandoned = None if thread.done() else thread
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
        _forget_error(thread)


def _in_thread(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> asyncio.Future[Any]:
    call = functools.partial(contextvars.copy_context().run, function, *arguments, **keywords)
    return asyncio.get_running_loop().run_in_executor(_threads(), call)


def _contained(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except StopIteration as error:
        # A future cannot hold StopIteration. Python turns it into RuntimeError in coroutines, too.
        raise RuntimeError("the handler raised StopIteration") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, inside of partials, is `async def`."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004  an instance with an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
