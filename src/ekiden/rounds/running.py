"""A leg from its beginning to its end: the handler's task is started, brought to rest, and unwound.

The handler runs in a task of its own: it can be cancelled without its request, and left behind if it
will not be cancelled. A leg ends when something waits for the other side and nothing else can go on; when
the handler returns or raises; when an effect cannot be had; or when nobody wants its outcome any more.
Whatever the reason, its running steps end first, and are remembered.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Coroutine, Mapping
from threading import get_ident
from typing import Any, Final, NoReturn, Protocol

import msgspec

from ekiden.errors import InvalidParams, MalformedAnswer, NonDeterminismError, UnfitAnswer
from ekiden.opaque import Opaque
from ekiden.rounds.asks import Ask
from ekiden.rounds.handler_task import BEGINS_AT_ONCE, FirstStretch
from ekiden.rounds.journal import LEFT_BEHIND, STEP, UNKNOWN_BRANCH, Entry, Journal
from ekiden.rounds.retry import Retry
from ekiden.rounds.turns import Turns

__all__ = ["Running", "Step", "Suspended", "malformed"]

_log = logging.getLogger("ekiden.rounds")

_CHANGED: Final = (
    "%s: the answer to %r came, and it was not asked again; %r was. "
    "A question that changes with every round is asked for ever"
)


class Step(Protocol):
    """A step that can be performed and remembered."""

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

    def recall(self, entry: Entry) -> Any:
        """The value that the entry holds, or the exception; `NotRecalled` if it cannot be had."""
        ...


class Suspended(msgspec.Struct):
    """The leg ended because it waits for the other side."""

    asks: dict[str, Ask]
    pauses: list[str]


class Running(Opaque):
    """One run of one handler, and what of it waits for the other side."""

    handler: str
    """The handler in words, for logs and errors."""
    journal: Journal
    responses: Mapping[str, Any]
    """What came with the request."""
    asked: Mapping[str, str] | None = None
    """What the answers were asked for; None in the first leg."""
    parked: bool = False
    unwind_seconds: float = 5.0
    """How long a handler that is cancelled may take to end."""
    _over: bool = False
    """Whether the leg has ended, whatever the handler is at."""
    _ending: Suspended | BaseException | None = None
    _main: asyncio.Task[Any] | None = None
    _stretch: FirstStretch = None  # type: ignore[assignment]  # This and the next are set when it runs.
    _loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
    _turns: Turns | None = None
    _late: asyncio.TimerHandle | None = None
    _asks: dict[str, Ask] = {}
    """The questions that wait for an answer, by key."""
    _pauses: dict[str, float | None] = {}
    """What else waits for the next leg, by name, and until when."""
    _unfit: frozenset[str] = frozenset()
    _steps: set[asyncio.Task[None]] = set()
    """The steps that run right now."""
    _thread: int = 0
    _is_settled: bool = False
    _settled: asyncio.Future[None] | None = None

    # Running

    async def run(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """Run the handler: its value, what it raised, or `Suspended`."""
        loop = self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._stretch = FirstStretch(loop)
        # The task is in no local variable: what a handler that began at once has raised leads to this frame.
        self._main = self._stretch.run(self._whole(handler), self.handler)
        if not BEGINS_AT_ONCE:
            loop.call_soon(self._in_the_next_pass)
        elif self._main.done():
            self._on_done(self._main)
        else:
            self._after_first_stretch()
        if not self._is_settled:
            try:
                await self._until_settled()
            except asyncio.CancelledError:
                if inspect.getcoroutinestate(handler) == inspect.CORO_CREATED:
                    handler.close()  # It was cancelled before it began.
                raise
        return await self._conclude() if self._steps else self._concluded()

    def _in_the_next_pass(self) -> None:
        self._stretch.end()
        self._after_first_stretch()

    def _after_first_stretch(self) -> None:
        """The handler has ended already, or waits for something."""
        main = self._main
        assert main is not None
        if main.done():
            self._on_done(main)
            return
        main.add_done_callback(self._on_done)
        if self._over:  # It has caught what ended its leg, and goes on: it has some time to end by itself.
            if type(self._ending) is not Suspended:
                self._end()
            self._unwind()

    async def _whole(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """The handler, and what is to be done in its task."""
        return await handler

    def _task(self) -> asyncio.Task[Any]:
        assert self._main is not None
        return self._main

    def _my_turns(self) -> Turns:
        """Made when first needed: a handler that is alone has no need of turns."""
        if self._turns is None:
            self._turns = Turns(self._loop, self.journal, self._at_rest, self._not_cut, self._break)
        return self._turns

    def _not_cut(self, name: str) -> None:
        """An effect that was cut in an earlier round is not cut in this one."""
        entry = self.journal.entries[name]
        what = entry.about or name[2:]
        before = f"it cut {what} short after {entry.value[0]:.3g} s"
        self._break(NonDeterminismError(f"{self.handler} does not replay", before=before, now="it does not"))

    def read(self, responses: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to what a parked handler waits for; one that does not answer it at all is an error."""
        values: dict[str, Any] = {}
        for key, ask in self._asks.items():
            if key in responses:
                try:
                    values[key] = self._value_of(ask, responses[key])
                except MalformedAnswer as problem:
                    raise malformed(key, problem) from None
                except UnfitAnswer:
                    continue
                except asyncio.CancelledError:
                    break  # The leg has ended with an error, which is told when it is resumed.
        return values

    def _value_of(self, ask: Ask, raw: Any) -> Any:
        """An answer as its question reads it. All else that an author's validator raises ends the call."""
        try:
            return ask.read(raw)
        except (MalformedAnswer, UnfitAnswer, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fail(_escaped(error))

    async def resume(self, values: Mapping[str, Any]) -> Any:
        """Go on with a parked handler: deliver what `read` read, and run on to its next end."""
        if type(self._ending) is Suspended:
            self._ending = None
        if not self._task().done():
            self._is_settled = False
            turns = self._my_turns()
            for key, value in values.items():
                if self._asks.pop(key, None) is not None:
                    turns.arrive(f"a:{key}", value)
            for name in self._pauses:
                turns.arrive(name, None)
            self._pauses.clear()
            turns.stir()
            await self._until_settled()
        return await self._conclude()

    async def _until_settled(self) -> None:
        if self._is_settled:
            return
        self._settled = self._loop.create_future()
        try:
            await self._settled
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def _conclude(self) -> Any:
        try:
            while self._steps and not (self.parked and type(self._ending) is Suspended):
                await asyncio.wait(set(self._steps))  # They end and are remembered before the leg does.
        except asyncio.CancelledError:
            await self.stop()
            raise
        return self._concluded()

    def _concluded(self) -> Any:
        main, ending = self._main, self._ending
        if type(ending) is Suspended:
            if not self.parked:
                self._forget()
            return ending
        assert main is not None
        error: BaseException | None = None
        try:
            if ending is not None:
                raise ending  # type: ignore[misc]  # what is no Suspended is an exception
            if main.cancelled():
                raise RuntimeError("the handler let a cancellation escape that was not its own")
            error = main.exception()
            if error is not None:
                raise _escaped(error)
            for key in self.journal.missing_steps() if self.journal.backlog else ():
                entry = self.journal.entries[key]
                # For the end of these nobody waited even then.
                if entry.kind != "cut" and entry.branch != LEFT_BEHIND:
                    raise self._vanished(key, "it returned without it")
            return main.result()
        finally:
            self._forget()
            del error, ending

    def _forget(self) -> None:
        """Let go of what refers back to us, so that nothing of a leg is left to the garbage collector."""
        if self._turns is not None:
            self._leave(self._turns)
        self._main = self._turns = self._ending = None

    def _leave(self, turns: Turns) -> None:
        """End what goes on although nobody waits for it any more."""

    async def stop(self) -> None:
        """Nobody waits for the outcome any more: cancel the handler, and let running steps end."""
        if not isinstance(self._ending, BaseException):
            self._ending = asyncio.CancelledError()
        self._end()
        while (
            self._steps
        ):  # However often the caller is cancelled meanwhile: their claim is given back after.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(set(self._steps))
        try:
            if self._main is not None:
                await asyncio.wait({self._main}, timeout=self.unwind_seconds)
        finally:
            if self._turns is not None:
                self._leave(self._turns)

    def _on_done(self, main: asyncio.Task[Any]) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._ending is not None and not main.cancelled() and not (self.parked and not self._over):
            self._dropped(main.exception())
        self._close()  # Branches that nobody waits for do nothing more.
        self._is_settled = True
        if self._settled is not None:
            self._settle()

    def _dropped(self, error: BaseException | None) -> None:
        if error is None:
            _log.warning("%s returned a value while its round was ending; that is dropped", self.handler)
        else:
            _log.warning("%s raised %r while its round was ending; that is dropped", self.handler, error)

    def _settle(self) -> None:
        self._is_settled = True
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    # Coming to rest

    def _at_rest(self) -> None:
        """Nothing can go on by itself. If something waits for the other side, the leg ends."""
        if self._steps or not (self._asks or self._pauses) or (self._main is not None and self._main.done()):
            return
        self._suspend(dict(self._asks), list(self._pauses))
        if self.parked and type(self._ending) is Suspended:
            self._settle()
        else:
            self._end()
            self._unwind()

    def _rest_here(self, asks: dict[str, Ask], pauses: list[str]) -> NoReturn:
        """Suspend in the effect that is to wait, where the handler is alone. It unwinds from there."""
        self._suspend(asks, pauses)
        self._over = True
        raise asyncio.CancelledError

    def _suspend(self, asks: dict[str, Ask], pauses: list[str]) -> None:
        if self.asked:
            self._keep_unread(asks)
        self._ending = Suspended(asks, pauses)
        if self.journal.backlog and not self.parked and (step := self.journal.overtaken_step()) is not None:
            self._ending = self._vanished(step, "it went on without it")

    def _keep_unread(self, asks: Mapping[str, Ask]) -> None:
        """Answers that the handler has not come to in this leg are kept for the next."""
        assert self.asked is not None
        answered = [key for key in self.asked if key in self.responses]
        unread = [k for k in answered if k not in self._unfit and f"a:{k}" not in self.journal.entries]
        asked_now = {ask.label() for ask in asks.values()}.difference(self.asked.values())
        for key in unread:
            name, _, words = self.asked[key].partition(" ")
            answer = Entry("answer", name.partition("-")[2], self.responses[key], UNKNOWN_BRANCH)
            self.journal.entries[f"a:{key}"] = answer
            # Where an answer was read, it may have led to what is asked now, and this one's branch be late.
            if asked_now and len(unread) == len(answered):
                _log.warning(_CHANGED, self.handler, words or key, asked_now.pop().partition(" ")[2])

    def _close(self) -> None:
        """No effect counts any more: cancel whoever waits for one."""
        self._over = True
        if self._turns is not None:
            self._turns.close()

    def _end(self) -> None:
        """The leg is over, whatever the handler is at."""
        self._close()
        if self._main is not None and not self._main.done():
            self._main.cancel()

    def _unwind(self) -> None:
        """The handler has some time to end by itself."""
        if self._late is None:
            self._late = self._loop.call_later(self.unwind_seconds, self._abandon)

    def _abandon(self) -> None:
        _log.warning("%s does not end although its round has; it is left behind", self.handler)
        self._settle()

    def _break(self, error: BaseException) -> None:
        """End the leg with an error that the handler cannot catch."""
        if not isinstance(self._ending, BaseException):
            self._ending = error
        self._end()
        if self._main is not None and not self._main.done():
            self._unwind()

    def _fail(self, error: BaseException) -> NoReturn:
        """The same, in an effect: the handler unwinds from there."""
        self._break(error)
        raise asyncio.CancelledError

    def _vanished(self, key: str, now: str) -> NonDeterminismError:
        entry = self.journal.entries.get(key)
        if key.startswith(STEP) and entry is not None:
            before = f"it did step {key[2:]!r} ({entry.about})"
        else:
            before = f"it did {key[2:]!r}, and no timeout fired around that"
        return NonDeterminismError(f"{self.handler} does not replay", before=before, now=now)


def _escaped(error: BaseException) -> BaseException:
    """What a handler raised, as its caller may see it: never what would end more than the call."""
    if not isinstance(error, Exception):
        wrong = RuntimeError(f"the handler raised {type(error).__name__}, which is not an Exception")
        wrong.__cause__ = error
        return wrong
    return error


def malformed(key: str, problem: MalformedAnswer) -> InvalidParams:
    """The error for something that is not an answer of the right kind."""
    return InvalidParams(f"Invalid params: the response {key!r} does not answer what was asked: {problem}")
