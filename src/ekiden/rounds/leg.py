"""The replay engine: what an effect means in a round and in a task.

The laws:

1. Once. A step's function is begun at most once in a call, unless its process died between its beginning and
   its record. Whatever ends a leg waits for its running steps, and records them.
2. Equal. What the handler was told in the first run, values, exceptions and its own timeouts, it is told in
   every replay, in the same order over all its branches (`turns`).
3. Accounted for. No new step begins while a step of the journal has not come up that it could stand for
   (`accounting`).
4. One owner. Nothing begins without the claim on the round, nor after the leg is over.
5. Uncatchable. What ends a leg unwinds the handler as a cancellation does. From then on every effect raises
   and records nothing, and whatever the handler returns or raises is dropped.
6. All asks that are pending together end the leg together.

What the handler does, effect by effect, is here. How it begins and ends, waits and is recorded, is in
`replay`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any, Final

from ekiden.errors import InsufficientScope, MissingCapability, NonDeterminismError, NotRecalled
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.asks import UNANSWERED, Ask, declares
from ekiden.rounds.handler_task import OVER
from ekiden.rounds.interpreter import (
    Step,
    log_failed_afterwards,
    log_other_sleep,
    mixed_styles,
    not_for_tasks,
    not_in_a_step,
    not_in_a_thread,
)
from ekiden.rounds.journal import Entry
from ekiden.rounds.outcome import Suspended
from ekiden.rounds.performing import current_step
from ekiden.rounds.replay import Replay
from ekiden.rounds.waiting import CUT
from ekiden.signals import MalformedAnswer, UnfitAnswer

__all__ = ["BACKGROUND", "Leg", "Suspended", "current_step"]

BACKGROUND: Final = "b:background"
"""The pause of a handler that wants to go on as a task."""


class Leg(PrivateStruct):
    """The effects of one run of one handler. Implements `ekiden.rounds.interpreter.Interpreter`."""

    replay: Replay
    frontier: Collection[str] = ()
    """The pauses that the last leg ended with: beyond them the handler is fresh."""
    can_background: bool | None = False
    """Whether the call can become a task; None if its handler was not registered for that."""
    wishes: tuple[float | None, float | None] = (None, None)
    """The time to live and the poll interval that the handler wants for its task."""
    style: str | None = None
    """How the handler asks: with effects (`asks`), or by itself (`manual`)."""
    lacks: dict[str, tuple[str, ...]] | None = None
    """The scopes that the handler waits for, by the name of what waits. None if it waits for none."""
    was_manual: bool = False
    """Whether it asked by itself before `background`. After that it may ask with effects."""
    answered: int = 0
    """The bytes of the answers that a parked handler got in its rounds so far."""

    @property
    def handler(self) -> str:
        """The handler in words, for logs and errors."""
        return self.replay.task.title

    @property
    def fresh(self) -> bool:
        """Whether the handler is beyond what earlier legs did."""
        return self.replay.fresh

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked."""
        return self.replay.questions.capabilities

    def clock(self) -> float:
        """What time it is."""
        return self.replay.clock()

    async def run(self, handler: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run the handler with these arguments: its value, what it raised, or `Suspended`."""
        task = self.replay.task
        if not task.start(self.whole(handler, arguments)):
            await task.settled()
        return self.replay.conclude()

    async def go_on(self, values: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Any:
        """Go on with a parked handler, with the answers that `read` read. The client declares again."""
        self.replay.questions.capabilities = capabilities
        return await self.replay.resume(values)

    def read(self, responses: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to what a parked handler waits for; one that does not answer it at all is an error."""
        return self.replay.read(responses)

    async def stop(self) -> None:
        """The outcome is not wanted any more: cancel the handler, and let running steps end."""
        await self.replay.task.stop()
        self.replay.forget()

    def give_up(self, error: Exception) -> None:
        """End the leg with an error, and leave the handler behind, which was cancelled and does not end."""
        self.replay.task.give_up(error)

    async def whole(self, handler: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """The handler, and then its `on_complete` steps."""
        replay = self.replay
        replay.task.begin(replay.parked)
        if current_step.get() is not None:
            current_step.set(None)  # A step has called this server: its handlers are not in that step.
        try:
            value = await handler(**arguments)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(
                f"the handler raised {type(error).__name__}, which is not an Exception"
            ) from error
        if replay.afterwards and not isinstance(value, Exception):
            await self._complete()  # Not after `InputRequired`: the call is not over then.
        return value

    async def _complete(self) -> None:
        """Run the `on_complete` steps. What they raise does not undo what the handler did."""
        replay, task = self.replay, self.replay.task
        for missing in replay.journal.missing_steps():
            entry = replay.journal.entries[missing]
            if entry.branch >= 0 and entry.kind != "cut":
                task.fail_here(replay.vanished(missing, "it returned without it"))
        task.finish()
        for step, key in replay.afterwards:
            try:
                await self.step(step, key)
            except Exception as error:
                log_failed_afterwards(self.handler, step, error)

    # Effects

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question, now or in a later leg."""
        replay = self.replay
        task = replay.task
        if task.phase in OVER:
            await task.refuse()
        self._enter("ask", "asks")
        name = replay.name("a:", key, ask.name)
        entry = replay.find(name) if replay.journal.entries else None
        if entry is not None:
            if entry.digest == ask.digest:
                if entry.kind == "cut":
                    return await replay.turn(name, ask.digest, None, CUT)
                value = self._known_answer(ask, entry)
                if value is not UNANSWERED:
                    if not task.alone:
                        return await replay.turn(name, ask.digest, None, value)
                    replay.journal.backlog.pop(name, None)
                    return value
            replay.journal.backlog.pop(name, None)  # It was answered when it was another question.
        if task.alone and not replay.is_durable:
            value = self._new_answer(ask, name, 0) if replay.questions.responses else UNANSWERED
            if value is UNANSWERED:
                if not declares(replay.questions.capabilities, ask.needs):
                    task.fail_here(MissingCapability(ask.needs, question=ask.words))
                # There are no siblings to wait for: suspend now, instead of after the idle passes.
                raise task.suspend_here(replay.suspension({name[2:]: ask}, []))
            return value
        return await replay.turn(name, ask.digest, partial(self.begin_ask, ask, name))

    def begin_ask(self, ask: Ask, name: str, branch: int) -> None:
        """Find the answer to a question that a branch waits for, or put the question."""
        replay = self.replay
        try:
            value = self._new_answer(ask, name, branch)
        except asyncio.CancelledError:
            return  # The leg has ended with an error.
        if value is not UNANSWERED:
            replay.waits().turns.arrive(name, value)
        elif declares(replay.questions.capabilities, ask.needs):
            replay.asks[replay.questions.put(ask, name[2:], branch)] = ask
        else:
            replay.task.fail(MissingCapability(ask.needs, question=ask.words))

    def _known_answer(self, ask: Ask, entry: Entry) -> Any:
        try:
            return self.replay.value_of(ask, entry.value)
        except (UnfitAnswer, MalformedAnswer):
            # Not read before, or the author's own validators have changed.
            return UNANSWERED

    def _new_answer(self, ask: Ask, name: str, branch: int) -> Any:
        """The value of an answer that has come to this very question and fits; it is in the journal then."""
        replay = self.replay
        raw = replay.questions.answer_to(ask, name[2:])
        if raw is UNANSWERED:
            return UNANSWERED
        try:
            value = replay.value_of(ask, raw)
        except (MalformedAnswer, UnfitAnswer) as problem:
            if (error := replay.questions.misfits(name[2:], problem)) is not None:
                replay.task.fail_here(error)
            return UNANSWERED
        replay.record(name, Entry("answer", ask.digest, raw, branch))
        return value

    async def step(self, step: Step, key: str | None = None) -> Any:
        """The value of a step: out of the journal, or by running it now."""
        replay, task = self.replay, self.replay.task
        if task.phase in OVER:
            await task.refuse()
        self._enter("run a step")
        name = replay.name("s:", key, f"{step.name}-{step.digest}")
        entry = replay.journal.find(name)
        if entry is None:
            if replay.journal.backlog:
                self._account_for(step, name)
            step.prepare()
            begin = partial(replay.steps().begin, step, name, copy_context())
            entry = await replay.turn(name, step.digest, begin, None, step)
        elif entry.digest != step.digest:
            problem = f"{self.handler}: step {name[2:]!r} is another function, or has other arguments"
            task.fail_here(NonDeterminismError(problem, before=entry.about, now=step.about))
        elif entry.kind == "cut" or not task.alone:
            known = CUT if entry.kind == "cut" else entry
            entry = await replay.turn(name, step.digest, None, known, step)
        else:
            replay.journal.backlog.pop(name, None)
        try:
            return step.recall(entry)
        except NotRecalled as misfit:
            problem = (
                f"{self.handler}: what was kept of step {name[2:]!r} does not fit its annotation any "
                "more (give what is new in it a default, or keep the old annotation until the calls that "
                "have begun are over)"
            )
            task.fail_here(NonDeterminismError(problem, before=entry.about, now=str(misfit)))

    def _account_for(self, step: Step, name: str) -> None:
        """Refuse a new step at once where it stands for another one of its own branch."""
        replay = self.replay
        old = replay.journal.missing_step_of(replay.branch_of(name))
        if old is not None:
            now = f"it is about to do step {name[2:]!r} ({step.about})"
            replay.task.fail_here(replay.vanished(old, now))

    def draw(self, what: str, make: Callable[[], Any], key: str | None = None) -> Any:
        """A value that must be the same in every leg: a time, an id, a random number."""
        replay, task = self.replay, self.replay.task
        if current_step.get() is not None:
            return make()  # A step runs once: what it draws needs no memory of its own.
        if task.phase in OVER:
            raise asyncio.CancelledError
        if get_ident() != task.thread:
            raise not_in_a_thread()
        name = replay.name("d:", None if key is None else f"{what}:{key}", what)
        entry = replay.journal.find(name)
        if entry is None:
            entry = Entry("draw", "", make(), replay.branch_of(name))
            replay.record(name, entry)
        else:
            replay.journal.backlog.pop(name, None)
            if replay.waiting is not None and replay.waiting.accounting.held:
                replay.waiting.accounting.came_up()
        return entry.value

    async def pause(self, key: str | None = None) -> None:
        """A checkpoint: in a round the leg ends with state only, in a task all is committed."""
        replay, task = self.replay, self.replay.task
        if task.phase in OVER:
            await task.refuse()
        self._enter("end its round", None if replay.is_durable else "asks")
        await self._pause(replay.name("p:", key, "checkpoint"))

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """Go on as a task, once nothing is asked any more; where there are no tasks, just go on."""
        if self.replay.task.phase in OVER:
            await self.replay.task.refuse()
        self._enter("become a task")
        if self.can_background is None:
            raise not_for_tasks(self.handler)
        if self.style == "manual":
            self.style, self.was_manual = None, True
        if self.can_background:
            self.wishes = (ttl, poll)
            await self._pause(BACKGROUND)

    async def _pause(self, name: str) -> None:
        if not await self._passed(name, partial(self._begin_pause, name)):
            raise self.replay.task.suspend_here(self.replay.suspension({}, [name]))

    def _begin_pause(self, name: str, branch: int) -> None:
        replay, passed = self.replay, Entry("pause", "", None, branch)
        if replay.is_durable:
            replay.task.run_beside(replay.steps().finish(name, passed))
        elif name[:2] == "q:" and (self.lacks is None or name not in self.lacks):
            replay.record(name, passed)
            replay.waits().turns.arrive(name, None)
        else:
            replay.pauses[name] = None

    async def permit(self, scopes: tuple[str, ...], granted: bool) -> None:
        """Go on if these scopes are granted; else the leg ends, and a later one may have them."""
        replay, task = self.replay, self.replay.task
        if task.phase in OVER:
            await task.refuse()
        self._enter("ask for a scope")
        name = replay.name("q:", None, " ".join(scopes))
        if granted:
            await self._passed(name, partial(self._begin_pause, name))
            return
        if replay.is_durable or replay.parked:
            task.fail_here(InsufficientScope(scopes))
        self.lacks = {**(self.lacks or {}), name: scopes}
        replay.journal.backlog.pop(name, None)
        await replay.turn(name, "", partial(self._begin_pause, name))

    async def _passed(self, name: str, begin: Callable[[int], None]) -> bool:
        """Wait for an effect without a value; False if it is new and would end the leg on the spot."""
        replay, task = self.replay, self.replay.task
        entry = replay.find(name)
        if entry is None:
            if task.alone and not replay.is_durable:
                return False
            await replay.turn(name, "", begin)
        elif entry.kind == "cut" or not task.alone:
            await replay.turn(name, "", None, CUT if entry.kind == "cut" else None)
        replay.journal.backlog.pop(name, None)
        if name in self.frontier:
            replay.freshen()
        return True

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a moment that is the same in every leg."""
        replay, task = self.replay, self.replay.task
        if current_step.get() is not None:
            await asyncio.sleep(seconds)
            return
        if task.phase in OVER:
            await task.refuse()
        self._enter("sleep")
        what = "sleep"
        if key is None and not task.alone and asyncio.current_task() is not task.task:
            what = f"sleep-{float(seconds)}"  # Which of several comes first may change.
            if replay.journal.backlog:
                self._look_for_another_sleep(what)
        until: float = self.draw(what, lambda: replay.clock() + seconds, key)
        name = replay.name("z:", key, what)
        begin = partial(self._begin_sleep, name, until)
        if not await self._passed(name, begin):
            await replay.turn(name, "", begin)

    def _look_for_another_sleep(self, what: str) -> None:
        """Say so if a branch sleeps for another time than before: it may be another one in every round."""
        replay = self.replay
        if f"d:{what}" not in replay.journal.entries:
            taken = replay.waits().turns.branches.values()
            for old in replay.journal.backlog:
                if old.startswith("d:sleep-") and replay.journal.entries[old].branch not in taken:
                    log_other_sleep(self.handler, old[2:], what)
                    return

    def _begin_sleep(self, name: str, until: float, branch: int) -> None:
        self.replay.steps().begin_sleep(name, until, branch)

    def afterwards(self, step: Step, key: str | None = None) -> None:
        """Have a step run when the handler has returned."""
        if self.replay.task.phase not in OVER:
            self.replay.afterwards += ((step, key),)

    def use(self, style: str) -> None:
        """A call asks in its body or returns `InputRequired` itself; both only with `background` between."""
        if self.was_manual:
            return  # What it was answered before may be read again.
        if self.style is None:
            self.style = style
        elif self.style != style:
            self.replay.task.fail_here(mixed_styles(self.handler))

    def _enter(self, what: str, style: str | None = None) -> None:
        """An effect begins: it must not be within a step, and fit the way in which the handler asks."""
        if get_ident() != self.replay.task.thread:
            raise not_in_a_thread()
        if current_step.get() is not None:
            raise not_in_a_step(self.handler, what)
        if style is not None and self.style != style:
            if self.style is not None:
                self.replay.task.fail_here(mixed_styles(self.handler))
            self.style = style
