"""The replay engine: one run of a handler over its journal.

The laws:

1. An effect that the journal knows is answered from it, at once, without a wait.
2. All asks that are pending together end the leg together, once no step is running and the loop
   has made a few passes in which no branch came to another effect.
3. A running step is never cut short by that. It ends, it is remembered, and then the leg looks again.
4. The end of a leg unwinds the handler as a cancellation does. From then on every effect raises and
   remembers nothing, and whatever the handler returns or raises is dropped.
5. A step that was done before and does not come up again is an error, never a silence.

How a leg comes to rest and ends is in `running`; what the handler does, effect by effect, is here.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from threading import get_ident
from typing import Any, Final, NoReturn

from ekiden.errors import MissingCapability, NonDeterminismError, UsageError
from ekiden.rounds.asks import Ask, MalformedAnswer, UnfitAnswer, declares
from ekiden.rounds.eagerly import EagerTask
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.running import Ended, Restart, Running, Step, Suspended, malformed

__all__ = ["BACKGROUND", "Ended", "Leg", "Restart", "Step", "Suspended", "current_step"]

_log = logging.getLogger("ekiden.rounds")

BACKGROUND: Final = "b:background"
"""The pause of a handler that wants to go on as a task."""

_UNANSWERED: Final = object()

_PATIENCE: Final = 100
"""Effects that an ended handler may try before it is taken to be deaf, and put to sleep."""

current_step: ContextVar[str] = ContextVar("current_step")
"""The key of the step that the current task performs."""


class Leg(Running, kw_only=True):
    """One run of one handler. `run` it once; a parked one can be `resume`d."""

    capabilities: Mapping[str, Any]
    """What the client is capable of."""
    now: Callable[[], float]
    flow: str = ""
    """The call of which this is a leg."""
    memory: RoundMemory | None = None
    fresh: bool = True
    """Whether the handler is beyond what earlier legs did. Before that, its progress is no news."""
    on_fresh: Callable[[], None] | None = None
    can_background: bool = False
    """Whether the call can become a task."""
    wishes: tuple[float | None, float | None] = (None, None)
    """The time to live and the poll interval that the handler wants for its task."""
    trace: list[str] | None = None
    """If a list, every effect notes its name here."""
    style: str | None = None
    """How the handler asks: with effects (`asks`), or by itself (`manual`)."""
    _deaf: int = 0
    _counts: dict[str, tuple[int, asyncio.Task[Any] | None]] = {}
    _drawn: dict[str, Entry] = {}
    """Draws of this leg that the memory does not know yet."""

    def clock(self) -> float:
        """What time it is."""
        return self.now()

    async def go_on(self, values: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Any:
        """Go on with a parked handler; the client says again what it is capable of."""
        self.capabilities = capabilities
        return await self.resume(values)

    async def _wind_up(self, main: EagerTask) -> None:
        """If the handler returned: do what it wanted done then. An exception as its value is no end yet."""
        if self._ending is None and main.exception() is None and not isinstance(main.result(), Exception):
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

    # Effects

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question, now or in a later leg."""
        if self._over:
            await self._refuse()
        self._enter("ask", "asks")
        name = self._name("a:", key, ask.name)
        wire_key = name[2:]
        if name in self.journal.entries or wire_key in self.responses:
            answer = self._known_answer(name, ask)
            if answer is not _UNANSWERED:
                return answer
        if not declares(self.capabilities, ask.needs):
            self._fail(MissingCapability(ask.needs))
        self._rest_here({wire_key: ask}, [])
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asks[wire_key] = (ask, future)
        self._stir()
        try:
            return await future
        except asyncio.CancelledError:
            if not self._over:
                self._asks.pop(wire_key, None)  # The handler does not want to know any more.
            raise

    def _known_answer(self, name: str, ask: Ask) -> Any:
        """What was answered to a question: in an earlier leg, or with this request."""
        entry = self.journal.find(name)
        if entry is not None and entry.digest == ask.digest:
            try:
                return ask.read(entry.value)
            except (UnfitAnswer, MalformedAnswer):
                pass  # Not read before, or by validators of the author's own, who changed their mind.
        wire_key = name[2:]
        raw = self.responses.get(wire_key, _UNANSWERED)
        # Without a token nobody can tell whether an answer was given to this very question.
        if raw is _UNANSWERED or (self.asked is not None and self.asked.get(wire_key) != ask.digest):
            return _UNANSWERED
        try:
            value = ask.read(raw)
        except MalformedAnswer as problem:
            self._fail(malformed(wire_key, problem))
        except UnfitAnswer as problem:
            self._unfit.add(wire_key)
            _log.info("%s: the answer to %r is asked for again: %s", self.handler, wire_key, problem)
            return _UNANSWERED
        self._remember(name, Entry("answer", ask.digest, raw, self._in_order()))
        return value

    async def step(self, step: Step, key: str | None = None) -> Any:
        """What a step gave: out of the journal, or by running it now."""
        if self._over:
            await self._refuse()
        self._enter("run a step")
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
        if not self.fresh:
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
            if self.memory is not None:
                await self.memory.commit({**self._drawn, name: entry})

    def _step_done(self, task: asyncio.Task[Entry]) -> None:
        self._steps.discard(task)
        # A step that nobody waits for any more may still find that its round has ended elsewhere.
        if not task.cancelled() and isinstance(error := task.exception(), Exception) and self._over:
            _log.debug("%s: a step ended after its leg: %r", self.handler, error)

    async def _perform(self, step: Step, name: str, in_order: bool) -> Entry:
        entry = await self._recall(name) if self.memory is not None else None
        if entry is None:
            current_step.set(f"{self.flow}:{name[2:]}")
            entry = await step.perform()
            entry.in_order = in_order
            if self.memory is not None:
                await self.memory.commit({**self._drawn, name: entry})
                self._drawn.clear()
        self.journal.add(name, entry)
        return entry

    async def _recall(self, name: str) -> Entry | None:
        """What an earlier attempt at this round made of a step, and of the draws that led to it."""
        assert self.memory is not None
        known = await self.memory.recall()
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
        if get_ident() != self._thread:
            raise _in_a_thread()
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
        self._enter("end its round", "asks")
        name = self._name("p:", key, "checkpoint")
        if self.journal.find(name) is None:
            self._rest_here({}, [name])
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
        self._enter("become a task")
        if self.can_background:
            self.wishes = (ttl, poll)
            self._rest_here({}, [BACKGROUND])
            future = self._pauses[BACKGROUND] = self._loop.create_future()
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

    def _enter(self, what: str, style: str | None = None) -> None:
        """An effect begins: it must not be within a step, and fit the way in which the handler asks."""
        if get_ident() != self._thread:
            raise _in_a_thread()
        self._quiet = 0
        if current_step.get(None) is not None:
            raise UsageError(f"{self.handler}: a step cannot {what}; do it before or after the step")
        if style is not None and self.style != style:
            if self.style is not None:
                self._fail(mixed_styles(self.handler))
            self.style = style

    # Names, order, and what is new

    def _name(self, space: str, key: str | None, derived: str) -> str:
        """The name of an effect: the author's, or its content and which of several identical ones it is.

        Each kind of effect has a name space of its own, so that no client-chosen answer meets a step.
        """
        name = space + (derived if key is None else key)
        if self.trace is not None:
            self.trace.append(name if key is None else f"{name} ({derived})")
        # In its first moments a handler is alone, and its task has no name yet.
        task = None if self._main is None or (current := asyncio.current_task()) is self._main else current
        known = self._counts.get(name)
        if known is None:
            self._counts[name] = (1, task)
            return name
        count, first = known
        self._counts[name] = (count + 1, first)
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

    def _in_order(self) -> bool:
        return self._main is None or asyncio.current_task() is self._main

    def _remember(self, name: str, entry: Entry) -> None:
        if not self.fresh:
            self._freshen()
        self.journal.add(name, entry)

    def _freshen(self) -> None:
        """The handler is beyond what earlier legs did."""
        self.fresh = True
        if self.on_fresh is not None:
            self.on_fresh()

    async def _refuse(self) -> NoReturn:
        """An effect after the end. A handler that catches even this is put to sleep, or it would spin."""
        self._deaf += 1
        if self._deaf > _PATIENCE:
            await self._loop.create_future()
        raise asyncio.CancelledError


def _in_a_thread() -> UsageError:
    return UsageError("a plain `def` handler has no effects; make it `async def`")


def mixed_styles(handler: str) -> UsageError:
    """The complaint about a handler that uses both ways in one call."""
    return UsageError(
        f"{handler} asks with `ctx` and also keeps its own state with `InputRequired` or "
        "`ctx.input_responses`: one call can do only one of them"
    )
