"""The push interpreter: a handler that runs once, and whose questions are asked while it waits.

For clients with a session, to whom a server may send requests. Nothing is replayed, so nothing is
recorded: a step is run, a draw is drawn, a checkpoint does nothing. A question goes out the moment it is
asked, so concurrent branches do not wait for each other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from ekiden.errors import CannotAsk, InsufficientScope
from ekiden.rounds.asks import Ask, declares, not_asked
from ekiden.rounds.interpreter import (
    Step,
    Watcher,
    log_failed_afterwards,
    mixed_styles,
    not_for_tasks,
    not_in_a_step,
    not_in_a_thread,
)
from ekiden.rounds.journal import Entry
from ekiden.rounds.performing import current_step, raised
from ekiden.rounds.waiting import current_task
from ekiden.signals import MalformedAnswer, UnfitAnswer

__all__ = ["Push", "SendAsk"]

_log = logging.getLogger(__name__)

_TRIES: Final = 10
"""How often an answer that breaks the rules of its question is asked for again."""
_UNWIND_SECONDS: Final = 5.0
"""How long a cancelled handler may take to end."""

SendAsk: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[Any]]
"""Sends a question to the client and gives its answer; raises `CannotAsk` if none comes."""


class Push:
    """One run of one handler. Implements `ekiden.rounds.interpreter.Interpreter`."""

    fresh = True

    def __init__(
        self,
        handler: str,
        send: SendAsk,
        *,
        capabilities: Mapping[str, Any],
        clock: Callable[[], float],
        flow: str,
        can_background: bool = True,
        watcher: Watcher | None = None,
    ) -> None:
        self.handler = handler
        self.clock = clock
        self.style: str | None = None
        self._was_manual = False
        """Whether the handler asked by itself before `background`. After that it may ask in its body."""
        self._send = send
        self._watcher = watcher
        self.capabilities = capabilities
        self._flow = flow
        self._afterwards: list[tuple[Step, str | None]] = []
        self._steps: set[asyncio.Task[None]] = set()
        self._performing: set[asyncio.Task[Any]] = set()
        """Steps whose functions run right now."""
        self._unwinding: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        """Those of them that were cut short and have not ended yet."""
        self._counts: dict[str, int] = {}
        self.reasked = 0
        """Questions that were asked again, because their answer did not fit."""
        self.is_over = False
        self._settled: asyncio.Future[None] | None = None
        """Done when the handler has ended, or was given up."""
        self._error: Exception | None = None
        """Why it was given up."""
        self._can_background = can_background

    async def run(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """Run the handler to its end, and then what it wanted done afterwards.

        If the request is cancelled, running steps end first: what they do outside must not be half done.
        """
        loop = asyncio.get_running_loop()
        main = loop.create_task(self._whole(handler))
        self._settled = loop.create_future()
        main.add_done_callback(self._settle)
        try:
            await self._settled
            self.is_over = True  # Branches that still run can do nothing more.
            while self._steps:
                await asyncio.wait(set(self._steps))  # One that was cut short may take its time to end.
            if self._error is not None:
                main.add_done_callback(_dropped)
                raise self._error
            if main.cancelled():
                raise RuntimeError("the handler let a cancellation escape that was not its own")
            return main.result()
        except asyncio.CancelledError:
            self.is_over = True
            main.cancel()
            while self._steps:  # However often the caller is cancelled meanwhile.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait(set(self._steps))
            await asyncio.wait({main}, timeout=_UNWIND_SECONDS)
            raise

    def give_up(self, error: Exception) -> None:
        """End the call with an error, and leave the handler behind, which was cancelled and does not end."""
        if not self.is_over and self._settled is not None and not self._settled.done():
            _log.warning("%s does not end although its call has; it is left behind", self.handler)
            self._error = error
            self.is_over = True
            self._settle()

    def _settle(self, main: asyncio.Task[Any] | None = None) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def _whole(self, handler: Coroutine[Any, Any, Any]) -> Any:
        if current_step.get() is not None:
            current_step.set(None)  # A step has called this server: its handlers are not in that step.
        try:
            value = await handler
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(
                f"the handler raised {type(error).__name__}, which is not an Exception"
            ) from error
        if not isinstance(value, Exception):  # After `InputRequired` the call is not over.
            for step, key in self._afterwards:
                try:
                    await self.step(step, key)
                except Exception as error:
                    log_failed_afterwards(self.handler, step, error)
        return value

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """Ask the client, and wait for a fitting answer."""
        if self._error is not None:
            raise asyncio.CancelledError
        _not_in_a_step(self.handler, "ask")
        self.use("asks")
        if not declares(self.capabilities, ask.needs):
            raise CannotAsk(not_asked(ask.needs, ask.words))
        problem = ""
        for _ in range(_TRIES):
            raw = await self._put(ask, f"a:{key or ask.name}")
            try:
                return ask.read(raw)
            except MalformedAnswer as malformed:
                raise CannotAsk(
                    f"The client's answer to {ask.method} does not answer it: {malformed}"
                ) from None
            except UnfitAnswer as unfit:
                problem = str(unfit)
                self.reasked += 1
        raise CannotAsk(f"No fitting answer to {ask.method} came in {_TRIES} tries: {problem}")

    async def _put(self, ask: Ask, name: str) -> Any:
        """The client's answer, as it came."""
        if self._watcher is None:
            return await self._send(ask.method, ask.params)
        self._watcher.began(name, ask.words or ask.method)
        raw = await self._send(ask.method, ask.params)
        self._watcher.done(name, Entry("answer", ask.digest, raw))
        return raw

    async def step(self, step: Step, key: str | None = None) -> Any:
        """Run a step. It is cut short by the handler's own timeout only."""
        if self.is_over:
            raise asyncio.CancelledError
        _not_in_a_step(self.handler, "run a step")
        name = key or f"{step.name}-{step.digest}"
        count = self._counts[name] = self._counts.get(name, 0) + 1
        step.prepare()
        told: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        work = self._perform(step, name if count == 1 else f"{name}-{count}", told)
        task = asyncio.get_running_loop().create_task(work)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        try:
            return step.recall(await told)
        except asyncio.CancelledError:
            if not self.is_over and task in self._performing:
                self._unwinding[task] = asyncio.get_running_loop().create_future()
                task.cancel()
            raise

    async def _perform(self, step: Step, name: str, told: asyncio.Future[Entry]) -> None:
        """Run a step to its end. Those that are being cut short end first."""
        if self._unwinding:
            await asyncio.wait(set(self._unwinding.values()))
        if told.done():
            return  # It was cut before it began.
        current_step.set(f"{self._flow}:{name}")
        task = current_task()
        self._performing.add(task)
        try:
            _tell(told, await self._watched(step, name))
        except asyncio.CancelledError as error:
            _tell(told, step.failure(error))  # Its task was cancelled, but not because the step was cut.
        except GeneratorExit as error:
            _tell(told, step.failure(raised(error, task)))
        except Exception as error:
            if not told.done():
                told.set_exception(error)
        finally:
            self._performing.discard(task)
            if (unwound := self._unwinding.pop(task, None)) is not None:
                unwound.set_result(None)
            if step.running is not None:
                await asyncio.wait(
                    {step.running}
                )  # A thread cannot be cut: it ends, and its value is dropped.

    async def _watched(self, step: Step, name: str) -> Entry:
        if self._watcher is None:
            return await step.perform()
        self._watcher.began(f"s:{name}", step.about)
        entry = await step.perform()
        self._watcher.done(f"s:{name}", entry)
        return entry

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A new value: the handler is not run again."""
        return make()

    async def pause(self, key: str | None = None) -> None:
        """Nothing to do: the call stays in this process."""
        self.use("asks")
        await asyncio.sleep(0)

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """The client waits for the end of the call. A handler that asked by hand may ask in its body now."""
        if not self._can_background:
            raise not_for_tasks(self.handler)
        if self.style == "manual":
            self.style, self._was_manual = None, True

    async def permit(self, scopes: tuple[str, ...], granted: bool) -> None:
        """Go on, or end the call. After a step the client is not led to call again: it would run twice."""
        _not_in_a_step(self.handler, "ask for a scope")
        if granted:
            return
        if self._counts:
            raise CannotAsk(f"This needs an access token with {' '.join(scopes)}, from the start of the call")
        raise InsufficientScope(scopes)

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait."""
        if self._error is not None:
            raise asyncio.CancelledError
        name = f"z:{key or 'sleep'}"
        if self._watcher is not None:
            self._watcher.began(name, "sleep")
        await asyncio.sleep(seconds)
        if self._watcher is not None:
            self._watcher.done(name, Entry("slept", "", None))

    def afterwards(self, step: Step, key: str | None = None) -> None:
        """Have a step run when the handler has returned."""
        self._afterwards.append((step, key))

    def use(self, style: str) -> None:
        """A call asks in its body or returns `InputRequired` itself; both only with `background` between."""
        if self._was_manual and style == "manual":
            return  # What it was answered before may be read again.
        if self.style is None:
            self.style = style
        elif self.style != style:
            raise mixed_styles(self.handler)


def _dropped(main: asyncio.Task[Any]) -> None:
    if not main.cancelled() and (error := main.exception()) is not None:
        _log.warning("A handler that was given up raised %r; that is dropped", error)


def _tell(told: asyncio.Future[Entry], entry: Entry) -> None:
    if not told.done():
        told.set_result(entry)


def _not_in_a_step(handler: str, what: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise not_in_a_thread() from None
    if current_step.get() is not None:
        raise not_in_a_step(handler, what)
