"""The replay engine: one run of a handler over its journal.

The laws:

1. Once. A step's function is begun at most once in a call, unless its process died between its beginning and
   its record. Whatever ends a leg waits for its running steps, and remembers them.
2. Equal. What the handler was told in the first run, values, exceptions and its own timeouts, it is told in
   every replay, in the same order over all its branches (`turns`).
3. Accounted for. No new step begins while a step of the journal has not come up that it could stand for.
4. One owner. Nothing begins without the claim on the round, nor after the leg is over.
5. Uncatchable. What ends a leg unwinds the handler as a cancellation does. From then on every effect raises
   and remembers nothing, and whatever the handler returns or raises is dropped.
6. All asks that are pending together end the leg together.

How a leg begins and ends is in `running`, how a step is run in `performing`, how an effect waits and is cut
short in `waiting`; what the handler does, effect by effect, is here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any, ClassVar, Final, NoReturn

from ekiden.errors import (
    MalformedAnswer,
    MissingCapability,
    NonDeterminismError,
    NotRecalled,
    UnfitAnswer,
    UsageError,
)
from ekiden.rounds.asks import Ask, declares, name_of
from ekiden.rounds.journal import Entry
from ekiden.rounds.performing import current_step
from ekiden.rounds.running import Step, Suspended, malformed
from ekiden.rounds.waiting import CUT, Waiting

__all__ = [
    "BACKGROUND",
    "SOON",
    "Leg",
    "Step",
    "Suspended",
    "check_key",
    "current_step",
]

_log = logging.getLogger("ekiden.rounds")

BACKGROUND: Final = "b:background"
"""The pause of a handler that wants to go on as a task."""

_UNANSWERED: Final = object()
_PATIENCE: Final = 100
"""A handler that swallows cancellation and goes on calling effects is blocked for ever after this many."""

_OTHER_SLEEP: Final = (
    "%s did %s before, and is about to do %s instead, from now on. A sleep whose length changes with every "
    "round never ends: draw the length with `ctx.random`, or give the sleep a key="
)

SOON: Final = 0.001
"""Seconds. Clocks are no more exact than that: a sleep that is over so soon is over."""

_LONGEST_KEY: Final = 1000
"""Bytes. Databases do not index much longer ones."""


class Leg(Waiting, kw_only=True):
    """One run of one handler. `run` it once; a parked one can be `resume`d."""

    capabilities: Mapping[str, Any]
    """What the client is capable of."""
    now: Callable[[], float]
    frontier: Collection[str] = ()
    """The pauses that the last leg ended with: beyond them the handler is fresh."""
    can_background: bool | None = False
    """Whether the call can become a task; None if its handler was not registered for that."""
    wishes: tuple[float | None, float | None] = (None, None)
    """The time to live and the poll interval that the handler wants for its task."""
    trace: list[str] | None = None
    """If a list, every effect notes its name here."""
    style: str | None = None
    """How the handler asks: with effects (`asks`), or by itself (`manual`)."""
    _afterwards: tuple[tuple[Step, str | None], ...] = ()
    _deaf: int = 0
    _counts: dict[str, tuple[int, asyncio.Task[Any] | None]] = {}
    waits: ClassVar[bool] = False
    """Whether a leg waits for answers that may come while it runs."""

    def clock(self) -> float:
        """What time it is."""
        return self.now()

    async def go_on(self, values: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Any:
        """Go on with a parked handler; the client says again what it is capable of."""
        self.capabilities = capabilities
        return await self.resume(values)

    async def _whole(self, handler: Coroutine[Any, Any, Any]) -> Any:
        """The handler, and then what it wanted done when it has returned."""
        if not self.parked:
            self._stretch.begin()
        self._began = self._loop.time()
        self._main = asyncio.current_task()
        if current_step.get() is not None:
            current_step.set(None)  # A step has called this server: its handlers are not in that step.
        try:
            value = await handler
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(
                f"the handler raised {type(error).__name__}, which is not an Exception"
            ) from error
        if self._afterwards and not isinstance(value, Exception):  # One that asks by itself is not done.
            await self._wind_up()
        return value

    async def _wind_up(self) -> None:
        """Run the `on_complete` steps. What they raise does not undo what the handler did."""
        for missing in self.journal.missing_steps():
            entry = self.journal.entries[missing]
            if entry.branch >= 0 and entry.kind != "cut":
                self._fail(self._vanished(missing, "it returned without it"))
        self._winding_up = True
        for step, key in self._afterwards:
            try:
                await self.step(step, key)
            except Exception as error:
                log_failed_afterwards(self.handler, step, error)

    # Effects

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question, now or in a later leg."""
        if self._over:
            await self._refuse()
        self._enter("ask", "asks")
        name = self._name("a:", key, ask.name)
        entry = self._find(name)
        if entry is not None:
            if entry.digest == ask.digest:
                if entry.kind == "cut":
                    return await self._turn(name, ask.digest, None, CUT)
                value = self._known_answer(ask, entry)
                if value is not _UNANSWERED:
                    if not self._stretch.alone:
                        return await self._turn(name, ask.digest, None, value)
                    self.journal.backlog.pop(name, None)
                    return value
            self.journal.backlog.pop(name, None)  # It was answered when it was another question.
        if self._stretch.alone and not self.waits:
            value = self._fresh_answer(ask, name, 0) if name[2:] in self.responses else _UNANSWERED
            if value is _UNANSWERED:
                if not declares(self.capabilities, ask.needs):
                    self._fail(MissingCapability(ask.needs))
                self._rest_here({name[2:]: ask}, [])
            return value
        return await self._turn(name, ask.digest, partial(self._begin_ask, ask, name))

    def _known_answer(self, ask: Ask, entry: Entry) -> Any:
        try:
            return self._value_of(ask, entry.value)
        except (UnfitAnswer, MalformedAnswer):
            # Not read before, or by validators of the author's own, who changed their mind.
            return _UNANSWERED

    def _begin_ask(self, ask: Ask, name: str, branch: int) -> None:
        try:
            value = self._fresh_answer(ask, name, branch)
        except asyncio.CancelledError:
            return  # The leg has ended with an error.
        if value is not _UNANSWERED:
            self._my_turns().arrive(name, value)
        elif declares(self.capabilities, ask.needs):
            self._asks[name[2:]] = ask
        else:
            self._break(MissingCapability(ask.needs))

    def _fresh_answer(self, ask: Ask, name: str, branch: int) -> Any:
        """What was answered with this request, if it was to this very question."""
        wire_key = name[2:]
        raw = self.responses.get(wire_key, _UNANSWERED)
        # Without a token nobody can tell whether an answer was given to this very question.
        if raw is _UNANSWERED or (self.asked is not None and name_of(self.asked.get(wire_key)) != ask.name):
            return _UNANSWERED
        try:
            value = self._value_of(ask, raw)
        except MalformedAnswer as problem:
            self._fail(malformed(wire_key, problem))
        except UnfitAnswer as problem:
            self._unfit |= {wire_key}
            _log.info("%s: the answer to %r is asked for again: %s", self.handler, wire_key, problem)
            return _UNANSWERED
        self._remember(name, Entry("answer", ask.digest, raw, branch))
        return value

    async def step(self, step: Step, key: str | None = None) -> Any:
        """What a step gave: out of the journal, or by running it now."""
        if self._over:
            await self._refuse()
        self._enter("run a step")
        name = self._name("s:", key, f"{step.name}-{step.digest}")
        entry = self.journal.find(name)
        if entry is None:
            self._account_for(step, name)
            step.prepare()
            entry = await self._turn(
                name, step.digest, partial(self._begin_step, step, name, copy_context()), None, step
            )
        elif entry.digest != step.digest:
            self._fail(
                NonDeterminismError(
                    f"{self.handler}: step {name[2:]!r} is another function, or has other arguments",
                    before=entry.about,
                    now=step.about,
                )
            )
        elif entry.kind == "cut" or not self._stretch.alone:
            known = CUT if entry.kind == "cut" else entry
            entry = await self._turn(name, step.digest, None, known, step)
        else:
            self.journal.backlog.pop(name, None)
        return self._recalled(step, name, entry)

    def _recalled(self, step: Step, name: str, entry: Entry) -> Any:
        try:
            return step.recall(entry)
        except NotRecalled as problem:
            self._fail(
                NonDeterminismError(
                    f"{self.handler}: what was kept of step {name[2:]!r} does not fit its annotation any "
                    "more (give what is new in it a default, or keep the old annotation until the calls that "
                    "have begun are over)",
                    before=entry.about,
                    now=str(problem),
                )
            )

    def _account_for(self, step: Step, name: str) -> None:
        """Refuse a new step at once where it stands for another one of its own branch."""
        if self.journal.backlog and (old := self._changed(self._branch_of(name))) is not None:
            self._fail(self._vanished(old, f"it is about to do step {name[2:]!r} ({step.about})"))

    # Effects that need nobody

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A value that must be the same in every leg: a time, an id, a random number."""
        if current_step.get() is not None:
            return make()  # A step runs once: what it draws needs no memory of its own.
        if self._over:
            raise asyncio.CancelledError
        if get_ident() != self._thread:
            raise _in_a_thread()
        name = self._name("d:", None if key is None else f"{what}:{key}", what)
        entry = self.journal.find(name)
        if entry is None:
            entry = Entry("draw", "", make(), self._branch_of(name))
            self._remember(name, entry)
        else:
            self.journal.backlog.pop(name, None)
            if self._held:
                self._look_at_held()
        return entry.value

    async def pause(self, key: str | None = None) -> None:
        """End the leg with state only; the client comes straight back."""
        if self._over:
            await self._refuse()
        self._enter("end its round", "asks")
        await self._pause(self._name("p:", key, "checkpoint"))

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """Go on as a task, once nothing is asked any more; where there are no tasks, just go on."""
        if self._over:
            await self._refuse()
        self._enter("become a task")
        if self.can_background is None:
            raise not_for_tasks(self.handler)
        if self.can_background:
            self.wishes = (ttl, poll)
            await self._pause(BACKGROUND)

    async def _pause(self, name: str) -> None:
        if await self._passed(name, partial(self._begin_pause, name)):
            return
        self._rest_here({}, [name])

    async def _passed(self, name: str, begin: Callable[[int], None]) -> bool:
        """Wait for an effect without a value; False if it is new and would end the leg on the spot."""
        entry = self._find(name)
        if entry is None:
            if self._stretch.alone and not self.waits:
                return False
            await self._turn(name, "", begin)
        elif entry.kind == "cut" or not self._stretch.alone:
            await self._turn(name, "", None, CUT if entry.kind == "cut" else None)
        self.journal.backlog.pop(name, None)
        if name in self.frontier and not self.fresh:
            self._freshen()
        return True

    def _begin_pause(self, name: str, branch: int) -> None:
        self._pauses[name] = None

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a moment that is the same in every leg."""
        if current_step.get() is not None:
            await asyncio.sleep(seconds)
            return
        if self._over:
            await self._refuse()
        self._enter("sleep")
        what = "sleep"
        if key is None and not self._stretch.alone and asyncio.current_task() is not self._main:
            what = f"sleep-{float(seconds)}"  # Which of several comes first may change.
            if self.journal.backlog:
                self._look_for_another_sleep(what)
        until: float = self.draw(what, lambda: self.clock() + seconds, key)
        name = self._name("z:", key, what)
        begin = partial(self._begin_sleep, name, until)
        if not await self._passed(name, begin):
            await self._turn(name, "", begin)

    def _look_for_another_sleep(self, what: str) -> None:
        """Say so if a branch sleeps for another time than before: it may be another one in every round."""
        if f"d:{what}" not in self.journal.entries:
            taken = self._my_turns().branches.values()
            for old in self.journal.backlog:
                if old.startswith("d:sleep-") and self.journal.entries[old].branch not in taken:
                    _log.warning(_OTHER_SLEEP, self.handler, old[2:], what)
                    return

    def _begin_sleep(self, name: str, until: float, branch: int) -> None:
        """A sleep needs the claim on its round, as a step does: a late copy of the round would sleep less."""
        if self.memory is None:
            self._set_alarm(name, until, branch)
        else:
            self._run_beside(self._sleep_as_owner(name, until, branch))

    async def _sleep_as_owner(self, name: str, until: float, branch: int) -> None:
        if await self._may_begin(name):
            self._set_alarm(name, until, branch)

    def _set_alarm(self, name: str, until: float, branch: int) -> None:
        remaining = until - self.clock()
        if remaining < SOON:
            self._awake(name, branch)
        else:
            self._my_turns().alarms[name] = self._loop.call_later(remaining, self._awake, name, branch)

    def _awake(self, name: str, branch: int) -> None:
        if self._turns is not None:
            self._turns.alarms.pop(name, None)
        if self._turns is not None and not self._over and name in self._turns.waiting:
            self._remember(name, Entry("slept", "", None, branch))
            self._turns.arrive(name, None)

    def afterwards(self, step: Step, key: str | None = None) -> None:
        """Have a step run when the handler has returned."""
        if not self._over:
            self._afterwards += ((step, key),)

    def use(self, style: str) -> None:
        """A call either asks in its body or returns `InputRequired` itself; it cannot do both."""
        if self.style is None:
            self.style = style
        elif self.style != style:
            self._fail(mixed_styles(self.handler))

    def _enter(self, what: str, style: str | None = None) -> None:
        """An effect begins: it must not be within a step, and fit the way in which the handler asks."""
        if get_ident() != self._thread:
            raise _in_a_thread()
        if current_step.get() is not None:
            raise UsageError(f"{self.handler}: a step cannot {what}; do it before or after the step")
        if style is not None and self.style != style:
            if self.style is not None:
                self._fail(mixed_styles(self.handler))
            self.style = style

    # Names

    def _name(self, space: str, key: str | None, derived: str) -> str:
        """The name of an effect: the author's, or its content and which of several identical ones it is.

        Each kind of effect has a name space of its own, so that no client-chosen answer meets a step.
        """
        if key is not None:
            check_key(key)
        name = space + (derived if key is None else key)
        if self.trace is not None:
            self.trace.append(name if key is None else f"{name} ({derived})")
        task = None if self._stretch.alone else asyncio.current_task()
        before = self._counts.get(name)
        if before is None:
            self._counts[name] = (1, task)
            return name
        count, first = before
        self._counts[name] = (count + 1, first)
        if key is not None:
            self._fail(UsageError(f"{self.handler} uses key={key!r} twice in one call"))
        if task is not first and count == 1 and self._main not in (task, first):
            _log.warning(
                "%s does the same thing (%s) in several branches at once; give each a key=, "
                "or a replay may swap their results if what they do in between takes another time",
                self.handler,
                derived,
            )
        return f"{name}-{count + 1}"

    def _forget(self) -> None:
        super()._forget()
        self._counts.clear()
        self._afterwards = ()

    async def _refuse(self) -> NoReturn:
        """An effect after the end. A handler that catches even this is put to sleep, or it would spin."""
        self._deaf += 1
        if self._deaf > _PATIENCE:
            await self._loop.create_future()
        raise asyncio.CancelledError


def check_key(key: str) -> None:
    """Refuse a `key=` that some store or client could not carry."""
    try:
        fits = 0 < len(key.encode()) <= _LONGEST_KEY and "\0" not in key
    except (AttributeError, UnicodeError):
        fits = False
    if not fits:
        raise UsageError(f"key= must be a string of 1 to {_LONGEST_KEY} bytes, without NUL characters")


def log_failed_afterwards(handler: str, step: Step, error: Exception) -> None:
    """Say that an `on_complete` step failed; the handler's result stays as it is."""
    _log.error("%s has ended well, but its on_complete step %s failed: %r", handler, step.name, error)


def not_for_tasks(handler: str) -> UsageError:
    """The complaint about a handler that wants to be a task without having said so."""
    return UsageError(f'{handler} calls ctx.background(): register it with task="deferred"')


def _in_a_thread() -> UsageError:
    return UsageError("a plain `def` handler has no effects; make it `async def`")


def mixed_styles(handler: str) -> UsageError:
    """The complaint about a handler that uses both ways in one call."""
    return UsageError(
        f"{handler} asks with `ctx` and also keeps its own state with `InputRequired` or "
        "`ctx.input_responses`: one call can do only one of them"
    )
