"""The handler's task in a leg: begun, brought to rest, unwound.

The handler runs in a task of its own: it can be cancelled without its request, and abandoned if
it will not be cancelled. A leg is at rest when something waits for the other side, no step is
running, and the loop has made a few passes in which no branch came to another effect.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from threading import get_ident
from typing import Any, Final, NoReturn, Protocol

import msgspec

from ekiden.errors import InvalidParams, NonDeterminismError
from ekiden.opaque import Opaque
from ekiden.rounds.asks import Ask, MalformedAnswer, UnfitAnswer
from ekiden.rounds.eagerly import EagerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.outcome import Outcome
from ekiden.rounds.retry import Retry

__all__ = ["Ended", "Restart", "Running", "Step", "Suspended", "malformed"]

_log = logging.getLogger("ekiden.rounds")

_IDLE_PASSES: Final = 4
"""Passes of the event loop without an effect after which a leg is at rest. A branch that is started
in a task group inside a task group inside a gather comes to its first effect within three."""


class Step(Protocol):
    """A step that can be performed and remembered."""

    name: str
    digest: str
    retry: Retry | None

    async def perform(self) -> Entry:
        """Run it, as often as its policy says; what it raised is an entry too."""
        ...

    async def attempt(self) -> tuple[Entry, bool]:
        """Run it once; whether what it raised is worth another try."""
        ...

    def recall(self, entry: Entry) -> Any:
        """The value that the entry holds, or the exception."""
        ...


class Suspended(msgspec.Struct):
    """The leg ended because it waits for the other side."""

    asks: dict[str, Ask]
    pauses: list[str]


class Ended(Exception):
    """Raised by a `RoundMemory` to end the leg with an outcome that an earlier attempt recorded."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Restart(Exception):
    """An earlier attempt at the round drew other values: run the handler again, with those."""

    def __init__(self, draws: dict[str, Entry]) -> None:
        super().__init__()
        self.draws = draws


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
    _busy: int = 0
    """Steps that run right now."""
    _quiet: int = 0
    """Passes of the loop since the last effect."""
    _watching: bool = False
    _over: bool = False
    """Whether the leg has ended, whatever the handler is at."""
    _ending: Suspended | BaseException | None = None
    _main: asyncio.Task[Any] | None = None
    _eager: EagerTask | None = None
    _late: asyncio.TimerHandle | None = None
    _asks: dict[str, tuple[Ask, asyncio.Future[Any]]] = {}
    _pauses: dict[str, asyncio.Future[None]] = {}
    _unfit: set[str] = set()
    _afterwards: list[Step] = []
    _steps: set[asyncio.Task[Entry]] = set()
    # Set when it runs:
    _loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
    _thread: int = 0
    _settled: asyncio.Future[None] = None  # type: ignore[assignment]

    # Running

    async def run(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """Run the handler: its value, what it raised, or `Suspended`."""
        loop = self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        main = self._eager = EagerTask(loop, handler)
        main.begin(self.handler)
        self._main = main.task
        if main.done:
            if self._ending is not None and not isinstance(main.error, asyncio.CancelledError):
                self._dropped(main.error)
            if self._afterwards or self._steps:
                await self._wind_up(main)
            return self._conclude()
        self._settled = loop.create_future()
        self._main.add_done_callback(self._on_done)
        if self._over:
            if type(self._ending) is not Suspended:
                self._end()  # The handler has caught what ended the leg, and goes on.
            self._late = loop.call_later(self.unwind_seconds, self._abandon)
        else:
            self._stir()
        return await self._until_settled()

    def read(self, responses: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to what a parked handler waits for; one that is none at all is an error."""
        values: dict[str, Any] = {}
        for key, (ask, _) in self._asks.items():
            if key in responses:
                try:
                    values[key] = ask.read(responses[key])
                except MalformedAnswer as problem:
                    raise malformed(key, problem) from None
                except UnfitAnswer:
                    continue
        return values

    async def resume(self, values: Mapping[str, Any]) -> Any:
        """Go on with a parked handler: deliver what `read` read, and run on to its next end."""
        self._ending = None
        self._settled = self._loop.create_future()
        for key, value in values.items():
            self._asks.pop(key)[1].set_result(value)
        for future in self._pauses.values():
            future.set_result(None)
        self._pauses.clear()
        self._stir()
        return await self._until_settled()

    async def _until_settled(self) -> Any:
        try:
            await self._settled
        except asyncio.CancelledError:
            await self.stop()
            raise
        if (self._afterwards or self._steps) and self._eager is not None:
            await self._wind_up(self._eager)
        return self._conclude()

    def _conclude(self) -> Any:
        main, ending = self._eager, self._ending
        assert main is not None
        if type(ending) is Suspended:
            if not self.parked:
                self._forget(main)
            return ending
        error = None
        try:
            if ending is not None:
                raise ending  # type: ignore[misc]  # what is no Suspended is an exception
            error = main.exception()
            if error is not None:
                raise _escaped(error)
            if len(self.journal.seen) != len(self.journal.entries):
                for key in self.journal.missing_steps():
                    raise self._vanished(key, "it returned without it")
            return main.result()
        finally:
            self._over = True
            if self._asks or self._pauses:
                self._close()
            self._forget(main)
            del error

    def _forget(self, main: EagerTask) -> None:
        """Let go of what refers back to us, so that nothing of a leg is left to the garbage collector."""
        main.error = self._eager = self._main = None
        del main.task
        self._asks.clear()

    async def _wind_up(self, main: EagerTask) -> None:
        """The handler has ended: do what is still to be done."""

    async def stop(self) -> None:
        """Nobody waits for the outcome any more: cancel the handler, and let running steps end."""
        self._ending = self._ending or asyncio.CancelledError()
        self._end()
        if self._steps:
            await asyncio.wait(set(self._steps))
        if self._main is not None:
            await asyncio.wait({self._main}, timeout=self.unwind_seconds)

    def _on_done(self, main: asyncio.Task[Any]) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._ending is not None and not main.cancelled():
            self._dropped(main.exception())
        self._settle()

    def _dropped(self, error: BaseException | None) -> None:
        if error is None:
            _log.warning("%s returned a value while its round was ending; that is dropped", self.handler)
        else:
            _log.warning("%s raised %r while its round was ending; that is dropped", self.handler, error)

    def _settle(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)

    # Coming to rest

    def _stir(self) -> None:
        """Something happened. If anything waits for the other side, look whether all is at rest."""
        self._quiet = 0
        if self._main is not None and not self._watching and not self._busy and (self._asks or self._pauses):
            self._watching = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        if self._over or self._busy or (self._main is not None and self._main.done()):
            self._watching = False
        elif self._quiet < _IDLE_PASSES:
            self._quiet += 1
            self._loop.call_soon(self._pass)
        else:
            self._watching = False
            if self._asks or self._pauses:
                self._rest()

    def _rest(self) -> None:
        """Nothing can go on before the other side has answered."""
        self._suspend({key: ask for key, (ask, _) in self._asks.items()}, list(self._pauses))
        if self.parked:
            self._settle()
        else:
            self._end()
            self._late = self._loop.call_later(self.unwind_seconds, self._abandon)

    def _rest_here(self, asks: dict[str, Ask], pauses: list[str]) -> None:
        """The same, in the effect that is to wait, if nobody but the handler runs: it unwinds from there."""
        eager = self._eager
        if self._main is None and eager is not None and eager.alone and not self.parked:
            self._suspend(asks, pauses)
            self._over = True
            raise asyncio.CancelledError

    def _suspend(self, asks: dict[str, Ask], pauses: list[str]) -> None:
        if self.asked:
            self._keep_unread()
        self._ending = Suspended(asks, pauses)
        if self.journal.entries and not self.parked and (step := self.journal.overtaken_step()) is not None:
            self._ending = self._vanished(step, "it went on beyond it")

    def _keep_unread(self) -> None:
        """Answers that the handler has not come to in this leg are kept for the next."""
        assert self.asked is not None
        for key, digest in self.asked.items():
            if key in self.responses and key not in self._unfit and f"a:{key}" not in self.journal.entries:
                self.journal.entries[f"a:{key}"] = Entry("answer", digest, self.responses[key], False)

    def _close(self) -> None:
        """No effect counts any more: cancel whoever waits for one."""
        self._over = True
        for _, future in self._asks.values():
            future.cancel()
        for pause in self._pauses.values():
            pause.cancel()

    def _end(self) -> None:
        """The leg is over, whatever the handler is at."""
        self._close()
        if self._main is not None and not self._main.done():
            self._main.cancel()

    def _abandon(self) -> None:
        _log.warning("%s does not end although its round has; it is left behind", self.handler)
        self._settle()

    def _fail(self, error: BaseException) -> NoReturn:
        """End the leg with an error that the handler cannot catch."""
        if self._ending is None:
            self._ending = error
        self._end()
        raise asyncio.CancelledError

    def _vanished(self, key: str, now: str) -> NonDeterminismError:
        return NonDeterminismError(
            f"{self.handler} does not replay", before=f"it did step {key[2:]!r}", now=now
        )


def _escaped(error: BaseException) -> BaseException:
    """What a handler raised, as its caller may see it: never what would end more than the call."""
    if isinstance(error, asyncio.CancelledError):
        return RuntimeError("the handler let a cancellation escape that was not its own")
    if not isinstance(error, Exception):
        wrong = RuntimeError(f"the handler raised {type(error).__name__}, which is no Exception")
        wrong.__cause__ = error
        return wrong
    return error


def malformed(key: str, problem: MalformedAnswer) -> InvalidParams:
    """The error for an answer that is none."""
    return InvalidParams(f"Invalid params: the response {key!r} is no answer to what was asked: {problem}")
