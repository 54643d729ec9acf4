"""The replay engine: one run of a handler over its journal.

The laws:

1. An effect that the journal knows is answered from it, at once, without a wait.
2. All asks that are pending together end the leg together, once no step is running and the loop
   has made a few passes in which no branch came to another effect.
3. A running step is never cut short by that. It ends, it is remembered, and then the leg looks again.
4. The end of a leg unwinds the handler as a cancellation does. From then on every effect raises and
   remembers nothing, and whatever the handler returns or raises is dropped.
5. A step that was done before and does not come up again is an error, never a silence.

The handler runs in a task of its own: it can be cancelled without its request, and abandoned if
it will not be cancelled.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol

import msgspec

from ekiden.errors import InvalidParams, MissingCapability, NonDeterminismError, UsageError
from ekiden.rounds.asks import Ask, MalformedAnswer, UnfitAnswer, declares
from ekiden.rounds.eagerly import EagerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.outcome import Outcome
from ekiden.rounds.retry import Retry

__all__ = ["BACKGROUND", "Ended", "Leg", "Restart", "Step", "Suspended", "current_step"]

_log = logging.getLogger("ekiden.rounds")

_IDLE_PASSES: Final = 4
"""Passes of the event loop without an effect after which a leg is at rest. A branch that is started
in a task group inside a task group inside a gather comes to its first effect within three."""

BACKGROUND: Final = "b:background"
"""The pause of a handler that wants to go on as a task."""

_UNANSWERED: Final = object()

_PATIENCE: Final = 100
"""Effects that an ended handler may try before it is taken to be deaf, and put to sleep."""

current_step: ContextVar[str] = ContextVar("current_step")
"""The key of the step that the current task performs."""


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


class Leg:
    """One run of one handler. `run` it once; a parked one can be `resume`d."""

    def __init__(
        self,
        handler: str,
        journal: Journal,
        *,
        responses: Mapping[str, Any],
        asked: Mapping[str, str] | None = None,
        fresh: bool = True,
        capabilities: Mapping[str, Any],
        clock: Callable[[], float],
        flow: str = "",
        memory: RoundMemory | None = None,
        parked: bool = False,
        unwind_seconds: float = 5.0,
    ) -> None:
        self.handler = handler
        self.journal = journal
        self.fresh = fresh
        """Whether the handler is beyond what earlier legs did. Before that, its progress is no news."""
        self.on_fresh: Callable[[], None] | None = None
        self.can_background = False
        """Whether the call can become a task."""
        self.wishes: tuple[float | None, float | None] = (None, None)
        """The time to live and the poll interval that the handler wants for its task."""
        self.trace: list[str] | None = None
        """If a list, every effect notes its name here."""
        self._responses = responses
        self._asked = asked
        self._capabilities = capabilities
        self.clock = clock
        self._flow = flow
        self._memory = memory
        self._parked = parked
        self._unwind_seconds = unwind_seconds
        self.style: str | None = None
        """How the handler asks: with effects (`asks`), or by itself (`manual`)."""
        self._asks: dict[str, tuple[Ask, asyncio.Future[Any]]] = {}
        self._pauses: dict[str, asyncio.Future[None]] = {}
        self._counts: dict[str, tuple[int, asyncio.Task[Any] | None]] = {}
        self._unfit: set[str] = set()
        self._drawn: dict[str, Entry] = {}
        """Draws of this leg that the memory does not know yet."""
        self._afterwards: list[Step] = []
        self._steps: set[asyncio.Task[Entry]] = set()
        self._busy = 0
        self._quiet = 0
        self._watching = False
        self._over = False
        self._deaf = 0
        self._ending: Suspended | BaseException | None = None
        self._main: asyncio.Task[Any] | None = None
        self._eager: EagerTask | None = None
        self._late: asyncio.TimerHandle | None = None

    # Running

    async def run(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """Run the handler: its value, what it raised, or `Suspended`."""
        loop = self._loop = asyncio.get_running_loop()
        main = self._eager = EagerTask(loop, handler)
        self._main = main.task
        if not main.done:
            if self._over:
                self._end()  # The handler has caught what ended the leg, and goes on.
                self._late = loop.call_later(self._unwind_seconds, self._abandon)
            elif main.alone and self._waits_in(main.waits_for):
                self._rest_at_once(main)
            else:
                self._stir()
        if main.done:
            if self._afterwards or self._steps:
                await self._wind_up(main)
            return self._conclude()
        self._settled: asyncio.Future[None] = loop.create_future()
        self._main.add_done_callback(self._on_done)
        if self._parked and self._ending is not None:
            return self._ending
        return await self._until_settled()

    def _waits_in(self, future: Any) -> bool:
        """Whether this is what an ask or a pause waits for."""
        return any(future is asked for _, asked in self._asks.values()) or future in self._pauses.values()

    def read(self, responses: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to what a parked handler waits for; one that is none at all is an error."""
        values: dict[str, Any] = {}
        for key, (ask, _) in self._asks.items():
            if key in responses:
                try:
                    values[key] = ask.read(responses[key])
                except MalformedAnswer as problem:
                    raise _malformed(key, problem) from None
                except UnfitAnswer:
                    continue
        return values

    async def resume(self, values: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Any:
        """Go on with a parked handler: deliver what `read` read, and run on to its next end."""
        self._capabilities = capabilities
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
            if not self._parked:
                self._forget(main)
            return ending
        if ending is not None:
            raise ending  # type: ignore[misc]  # what is no Suspended is an exception
        error = main.exception()
        try:
            if error is not None:
                raise _escaped(error)
            if len(self.journal.seen) != len(self.journal.entries):
                for key in self.journal.missing_steps():
                    raise self._vanished(key, "it returned without it")
            return main.result()
        finally:
            self._close()
            self._forget(main)
            del error

    def _forget(self, main: EagerTask) -> None:
        """Let go of what refers back to us, so that nothing of a leg is left to the garbage collector."""
        main.error = self._eager = self._main = None
        del main.task
        self._asks.clear()

    async def _wind_up(self, main: EagerTask) -> None:
        """If the handler returned: do what it wanted done then."""
        if self._ending is None and main.exception() is None:
            try:
                for step in self._afterwards:
                    await self.step(step)
            except asyncio.CancelledError:
                self._raise_ending()
                raise

    def _raise_ending(self) -> None:
        """If an effect ended the leg with an error, that is the one to hear of, not its cancellation."""
        if isinstance(self._ending, Exception):
            raise self._ending from None

    async def stop(self) -> None:
        """Nobody waits for the outcome any more: cancel the handler, and let running steps end."""
        self._ending = self._ending or asyncio.CancelledError()
        self._end()
        if self._steps:
            await asyncio.wait(set(self._steps))
        if self._main is not None:
            await asyncio.wait({self._main}, timeout=self._unwind_seconds)

    def _on_done(self, main: asyncio.Task[Any]) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._ending is not None and not main.cancelled():
            self._dropped(main.exception())
        self._settle()

    def _dropped(self, error: BaseException | None) -> None:
        what = "returned a value" if error is None else f"raised {error!r}"
        _log.warning("%s %s while its round was ending; that is dropped", self.handler, what)

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
        self._suspend()
        if self._parked:
            self._settle()
        else:
            self._end()
            self._late = self._loop.call_later(self._unwind_seconds, self._abandon)

    def _rest_at_once(self, main: EagerTask) -> None:
        """The same, where nobody but the handler's own task runs, and that waits here and now."""
        self._suspend()
        if not self._parked:
            self._close()
            main.cancel()
            if not main.done:
                self._late = self._loop.call_later(self._unwind_seconds, self._abandon)
            elif not isinstance(main.error, asyncio.CancelledError):
                self._dropped(main.error)

    def _suspend(self) -> None:
        if self._asked:
            self._keep_unread()
        self._ending = Suspended({key: ask for key, (ask, _) in self._asks.items()}, list(self._pauses))
        if not self._parked and (key := self.journal.overtaken_step()) is not None:
            self._ending = self._vanished(key, "it went on beyond it")

    def _keep_unread(self) -> None:
        """Answers that the handler has not come to in this leg are kept for the next."""
        assert self._asked is not None
        for key, digest in self._asked.items():
            if key in self._responses and key not in self._unfit and f"a:{key}" not in self.journal.entries:
                self.journal.entries[f"a:{key}"] = Entry("answer", digest, self._responses[key], False)

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

    # Effects

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question, now or in a later leg."""
        if self._over:
            await self._refuse()
        self._not_in_a_step("ask")
        self.use("asks")
        name = self._name("a:", key, f"{ask.prefix}-{ask.digest}")
        answer = self._known_answer(name, ask)
        return answer if answer is not _UNANSWERED else await self._other_side(name[2:], ask)

    def _known_answer(self, name: str, ask: Ask) -> Any:
        """What was answered to a question: in an earlier leg, or with this request."""
        entry = self.journal.find(name)
        if entry is not None and entry.digest == ask.digest:
            try:
                return ask.read(entry.value)
            except (UnfitAnswer, MalformedAnswer):
                pass  # Not read before, or by validators of the author's own, who changed their mind.
        wire_key = name[2:]
        if wire_key not in self._responses or not self._counts_for(wire_key, ask):
            return _UNANSWERED
        raw = self._responses[wire_key]
        try:
            value = ask.read(raw)
        except MalformedAnswer as problem:
            self._fail(_malformed(wire_key, problem))
        except UnfitAnswer as problem:
            self._unfit.add(wire_key)
            _log.info("%s: the answer to %r is asked for again: %s", self.handler, wire_key, problem)
            return _UNANSWERED
        self._remember(name, Entry("answer", ask.digest, raw, self._in_order()))
        return value

    async def _other_side(self, wire_key: str, ask: Ask) -> Any:
        """Have the leg end with this question; in a parked one, wait for the answer."""
        if not declares(self._capabilities, ask.needs):
            self._fail(MissingCapability(ask.needs))
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asks[wire_key] = (ask, future)
        self._stir()
        try:
            return await future
        except asyncio.CancelledError:
            if not self._over:
                self._asks.pop(wire_key, None)  # The handler does not want to know any more.
            raise

    async def step(self, step: Step, key: str | None = None) -> Any:
        """What a step gave: out of the journal, or by running it now."""
        if self._over:
            await self._refuse()
        self._not_in_a_step("run a step")
        self._quiet = 0
        name = self._name("s:", key, f"{step.name}-{step.digest}")
        entry = self.journal.find(name)
        if entry is None:
            entry = await self._first_time(step, name)
        elif entry.digest != step.digest:
            self._fail(
                NonDeterminismError(
                    f"{self.handler}: step {name[2:]!r} has other arguments than in an earlier round",
                    before=f"arguments {entry.digest}",
                    now=f"arguments {step.digest}",
                )
            )
        if entry.kind == "cut":
            raise TimeoutError(f"step {step.name} was cut short in an earlier round")
        return step.recall(entry)

    async def _first_time(self, step: Step, name: str) -> Entry:
        in_order = self._in_order()
        self._freshen()
        self._busy += 1
        try:
            task = self._loop.create_task(self._perform(step, name, in_order))
            self._steps.add(task)
            task.add_done_callback(self._step_done)
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if not self._over and not task.done():
                    await self._cut(task, step, name, in_order)
                raise
            except (Ended, Restart) as ended:
                self._fail(ended)
        finally:
            self._busy -= 1
            self._stir()

    async def _cut(self, task: asyncio.Task[Entry], step: Step, name: str, in_order: bool) -> None:
        """The handler's own timeout cuts a step short. That is remembered: it does not start once more."""
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            entry = Entry("cut", step.digest, None, in_order)
            self.journal.add(name, entry)
            if self._memory is not None:
                await self._memory.commit({**self._drawn, name: entry})

    def _step_done(self, task: asyncio.Task[Entry]) -> None:
        self._steps.discard(task)
        # A step that nobody waits for any more may still find that its round has ended elsewhere.
        if not task.cancelled() and isinstance(error := task.exception(), Exception) and self._over:
            _log.debug("%s: a step ended after its leg: %r", self.handler, error)

    async def _perform(self, step: Step, name: str, in_order: bool) -> Entry:
        entry = await self._recall(name) if self._memory is not None else None
        if entry is None:
            current_step.set(f"{self._flow}:{name[2:]}")
            entry = await step.perform()
            entry.in_order = in_order
            if self._memory is not None:
                await self._memory.commit({**self._drawn, name: entry})
                self._drawn.clear()
        self.journal.add(name, entry)
        return entry

    async def _recall(self, name: str) -> Entry | None:
        """What an earlier attempt at this round made of a step, and of the draws that led to it."""
        assert self._memory is not None
        known = await self._memory.recall()
        draws = {key: entry for key, entry in known.items() if entry.kind == "draw"}
        if any(key in draws and draws[key].value != entry.value for key, entry in self._drawn.items()):
            raise Restart(draws)
        for key, entry in draws.items():
            self.journal.entries.setdefault(key, entry)
        return known.get(name)

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A value that must be the same in every leg: a time, an id, a random number."""
        if current_step.get(None) is not None:
            return make()  # A step runs once: what it draws needs no memory of its own.
        if self._over:
            raise asyncio.CancelledError
        _require_loop()
        self._quiet = 0
        name = self._name("d:", None if key is None else f"{what}:{key}", what)
        entry = self.journal.find(name)
        if entry is None:
            entry = self._drawn[name] = Entry("draw", "", make(), self._in_order())
            self._remember(name, entry)
        return entry.value

    async def pause(self, key: str | None = None) -> None:
        """End the leg with state only; the client comes straight back."""
        if self._over:
            await self._refuse()
        self._not_in_a_step("end its round")
        self.use("asks")
        name = self._name("p:", key, "checkpoint")
        if self.journal.find(name) is None:
            future = self._pauses[name] = self._loop.create_future()
            self._stir()
            try:
                await future
            except asyncio.CancelledError:
                if not self._over:
                    self._pauses.pop(name, None)
                raise

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """Go on as a task, once nothing is asked any more; where there are no tasks, just go on."""
        if self._over:
            await self._refuse()
        self._not_in_a_step("become a task")
        self._quiet = 0
        if self.can_background:
            future = self._pauses[BACKGROUND] = self._loop.create_future()
            self.wishes = (ttl, poll)
            self._stir()
            await future

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a moment that is the same in every leg."""
        until: float = self.draw("sleep", lambda: self.clock() + seconds, key)
        if (remaining := until - self.clock()) > 0:
            await asyncio.sleep(remaining)

    def afterwards(self, step: Step) -> None:
        """Have a step run when the handler has returned."""
        if not self._over:
            self._afterwards.append(step)

    def use(self, style: str) -> None:
        """A call either asks in its body or returns `InputRequired` itself; it cannot do both."""
        self._quiet = 0
        if self.style is None:
            self.style = style
        elif self.style != style:
            self._fail(mixed_styles(self.handler))

    def _not_in_a_step(self, what: str) -> None:
        _require_loop()
        if current_step.get(None) is not None:
            raise UsageError(f"{self.handler}: a step cannot {what}; do it before or after the step")

    # Names, order, and what is new

    def _name(self, space: str, key: str | None, derived: str) -> str:
        """The name of an effect: the author's, or its content and which of several identical ones it is.

        Each kind of effect has a name space of its own, so that no client-chosen answer meets a step.
        """
        name = space + (derived if key is None else key)
        if self.trace is not None:
            self.trace.append(name if key is None else f"{name} ({derived})")
        count, first = self._counts.get(name, (0, None))
        # In its first moments a handler is alone, and its task has no name yet.
        task = None if self._main is None else asyncio.current_task()
        if task is self._main:
            task = None
        self._counts[name] = (count + 1, first if count else task)
        if not count:
            return name
        if key is not None:
            self._fail(UsageError(f"{self.handler} uses key={key!r} twice in one call"))
        if task is not first and count == 1:
            _log.warning(
                "%s does the same thing (%s) in several branches at once; give each a key=, "
                "or a replay may swap their results",
                self.handler,
                derived,
            )
        return f"{name}-{count + 1}"

    def _counts_for(self, name: str, ask: Ask) -> bool:
        """Whether an answer to `name` was given to this very question. Without a token nobody can tell."""
        return self._asked is None or self._asked.get(name) == ask.digest

    def _in_order(self) -> bool:
        return self._main is None or asyncio.current_task() is self._main

    def _remember(self, name: str, entry: Entry) -> None:
        self._freshen()
        self.journal.add(name, entry)

    def _freshen(self) -> None:
        if not self.fresh:
            self.fresh = True
            if self.on_fresh is not None:
                self.on_fresh()

    async def _refuse(self) -> NoReturn:
        """An effect after the end. A handler that catches even this is put to sleep, or it would spin."""
        self._deaf += 1
        if self._deaf > _PATIENCE:
            await self._loop.create_future()
        raise asyncio.CancelledError

    def _vanished(self, key: str, now: str) -> NonDeterminismError:
        return NonDeterminismError(
            f"{self.handler} does not replay", before=f"it did step {key[2:]!r}", now=now
        )


def _require_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("a plain `def` handler has no effects; make it `async def`") from None


def mixed_styles(handler: str) -> UsageError:
    """The complaint about a handler that uses both ways in one call."""
    return UsageError(
        f"{handler} asks with `ctx` and also keeps its own state with `InputRequired` or "
        "`ctx.input_responses`: one call can do only one of them"
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


def _malformed(key: str, problem: MalformedAnswer) -> InvalidParams:
    return InvalidParams(f"Invalid params: the response {key!r} is no answer to what was asked: {problem}")
