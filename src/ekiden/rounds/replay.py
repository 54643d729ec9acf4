"""One run of a handler over its journal: how it begins and ends, waits, and is recorded.

A replay has a `HandlerTask`, which starts and ends the handler, and `Questions`, which know where answers
come from. What has to wait for its turn goes to `Waiting`, a step that is new to `Steps`; a handler that is
alone and runs no step needs neither. What an effect means is not said here, but in `leg`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import NonDeterminismError, UsageError
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.accounting import Accounting, vanished
from ekiden.rounds.asks import Ask, Questions, malformed
from ekiden.rounds.handler_task import OVER, HandlerTask
from ekiden.rounds.interpreter import Step, Watcher, check_key
from ekiden.rounds.journal import LEFT_BEHIND, UNKNOWN_BRANCH, Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.outcome import Suspended
from ekiden.rounds.performing import Steps
from ekiden.rounds.turns import Turns
from ekiden.rounds.waiting import Waiting
from ekiden.signals import MalformedAnswer, UnfitAnswer

__all__ = ["Replay"]

_log = logging.getLogger(__name__)

_SAME_THING: Final = (
    "%s does the same thing (%s) in several branches at once; give each a key=, or a replay may swap their "
    "results if what they do in between takes another time"
)

_AFTERWARDS: Final = -1
"""The branch of steps that are run when the handler has returned."""


class Replay(PrivateStruct):
    """One run of one handler. A parked one can go on in a later round."""

    task: HandlerTask
    journal: Journal
    questions: Questions
    clock: Callable[[], float]
    """What time it is."""
    flow: str = ""
    """The call of which this is a leg."""
    memory: RoundMemory | None = None
    fresh: bool = True
    """Whether the handler is beyond what earlier legs did. Before that, its progress is not reported."""
    parked: bool = False
    rerun_seconds: float | None = None
    """How long the handler took to come to what is new; None if it has not, or all was new from the start."""
    is_durable: bool = False
    """Whether this is the leg of a task: it waits for answers that may come while it runs, its sleeps are
    times in the row, and a checkpoint is a commit."""
    saving: asyncio.Lock | None = None
    """Held while entries are saved, if others than the steps save some, too."""
    asks: dict[str, Ask] = {}
    """The questions that wait for an answer, by the key that it comes with."""
    pauses: dict[str, float | None] = {}
    """What else waits for the next leg, by name, and until when."""
    afterwards: tuple[tuple[Step, str | None], ...] = ()
    """The steps to run when the handler has returned, with their `key=`."""
    trace: list[str] | None = None
    """If a list, every effect notes its name here."""
    _used: dict[str, tuple[int, asyncio.Task[Any] | None]] = {}
    """How often each name was used, and by which task first: None for a handler that was alone then."""
    waiting: Waiting | None = None
    _steps: Steps | None = None
    watcher: Watcher | None = None
    """Whoever is told what the handler does."""

    @property
    def is_over(self) -> bool:
        """Whether effects count no more."""
        return self.task.phase in OVER

    # From its beginning to its end

    async def resume(self, values: Mapping[str, Any]) -> Any:
        """Go on with a parked handler: deliver these answers, and run on to its next end."""
        task = self.task
        if type(task.ending) is Suspended:
            task.ending = None
        if task.task is not None and not task.task.done():
            if task.phase == "resting":
                task.resume()
                self._deliver(values)
            await task.settled()
        return self.conclude()

    def read(self, responses: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to what a parked handler waits for; one that does not answer it at all is an error."""
        values: dict[str, Any] = {}
        for key, ask in self.asks.items():
            if key in responses:
                try:
                    values[key] = self.value_of(ask, responses[key])
                except MalformedAnswer as problem:
                    raise malformed(key, problem) from None
                except UnfitAnswer:
                    continue
                except asyncio.CancelledError:
                    break  # The leg has ended with an error, which `resume` raises.
        return values

    def value_of(self, ask: Ask, raw: Any) -> Any:
        """An answer as its question reads it. All else that an author's validator raises ends the call."""
        try:
            return ask.read(raw)
        except (MalformedAnswer, UnfitAnswer, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.task.fail_here(_escaped(error))

    def _deliver(self, values: Mapping[str, Any]) -> None:
        turns = self.waits().turns
        for key, value in values.items():
            if self.asks.pop(key, None) is not None:
                turns.arrive(f"a:{key}", value)
        for name in self.pauses:
            turns.arrive(name, None)
        self.pauses.clear()
        turns.stir()

    def _at_rest(self) -> None:
        """Nothing can go on by itself. If something waits for the other side, the leg ends."""
        task = self.task
        if task.beside or not (self.asks or self.pauses) or (task.task is not None and task.task.done()):
            return
        task.suspend(self.suspension(dict(self.asks), list(self.pauses)), parked=self.parked)

    def suspension(self, asks: dict[str, Ask], pauses: list[str]) -> Suspended | NonDeterminismError:
        """How the leg ends if it waits for these; an error if the handler has passed over a step."""
        if self.questions.responses:
            self.questions.keep_unread(self.journal, asks)
        if self.journal.backlog and not self.parked and (step := self.journal.overtaken_step()) is not None:
            return self.vanished(step, "it went on without it")
        return Suspended(asks, pauses)

    def conclude(self) -> Any:
        """How the leg ended: the handler's value, what is to be raised, or `Suspended`."""
        task, ending = self.task, self.task.ending
        if self.parked and type(ending) is Suspended:
            return ending
        try:
            if ending is None:
                return self._value()
            if type(ending) is Suspended:
                return ending
            raise ending  # type: ignore[misc]  # what is not Suspended is an exception
        except NonDeterminismError as differs:
            if self.watcher is not None:
                self.watcher.differs(differs)
            raise
        finally:
            self.forget()
            del ending, task

    def forget(self) -> None:
        """Let go of what refers back to us, so that nothing of a leg is left to the garbage collector."""
        task = self.task
        if task.turns is not None:
            task.turns.leave_branches()
            task.turns = None
        task.task = task.ending = None
        self._used.clear()
        if self.waiting is not None:
            self.waiting = self._steps = None
        if self.afterwards:
            self.afterwards = ()

    def _value(self) -> Any:
        """What the handler returned; raises what it raised, or that it passed over a step."""
        assert self.task.task is not None
        try:
            value = self.task.task.result()
        except asyncio.CancelledError:
            raise RuntimeError("the handler let a cancellation escape that was not its own") from None
        except Exception:
            raise
        except BaseException as error:
            raise _escaped(error) from error
        if self.journal.backlog:
            for key in self.journal.missing_steps():
                entry = self.journal.entries[key]
                # Of a cut step, or of a branch that was left behind, the handler did not need the end.
                if entry.kind != "cut" and entry.branch != LEFT_BEHIND:
                    raise self.vanished(key, "it returned without it")
        return value

    # Waiting and recording

    def name(self, space: str, key: str | None, derived: str) -> str:
        """The name of an effect: the author's, or its content and which of several identical ones it is.

        Each kind of effect has a name space of its own, so that no client-chosen answer meets a step.
        """
        if key is not None:
            check_key(key)
        name = space + (derived if key is None else key)
        if self.trace is not None:
            self.trace.append(name if key is None else f"{name} ({derived})")
        task = None if self.task.alone else asyncio.current_task()
        used = self._used.get(name)
        if used is None:
            self._used[name] = (1, task)
            return name
        count, first = used
        self._used[name] = (count + 1, first)
        if key is not None:
            self.task.fail_here(UsageError(f"{self.task.title} uses key={key!r} twice in one call"))
        by_handler = (None, self.task.task)  # None while it was alone.
        if task is not first and count == 1 and task not in by_handler and first not in by_handler:
            _log.warning(_SAME_THING, self.task.title, derived)
        return f"{name}-{count + 1}"

    def find(self, name: str) -> Entry | None:
        """The entry of an effect that has come up; one that was written between two legs has a branch now."""
        entry = self.journal.find(name)
        if entry is not None and entry.branch == UNKNOWN_BRANCH:
            entry.branch = self.branch_of(name)
        return entry

    def branch_of(self, name: str) -> int:
        """Which of the handler's tasks this is: the one that did the first thing which it does again, too."""
        task, is_finishing = self.task, self.task.phase == "finishing"
        if task.alone or (current := asyncio.current_task()) is task.task:
            return _AFTERWARDS if is_finishing else 0
        return LEFT_BEHIND if is_finishing else self.waits().branch_of(current, name)

    def turn(
        self,
        name: str,
        digest: str,
        begin: Callable[[int], None] | None,
        value: Any = None,
        step: Step | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Wait until it is the turn of an effect; its value. See `Waiting.turn`."""
        waiting = self.waiting or self.waits()
        return waiting.turn(name, self.branch_of(name), digest, begin, value, step)

    def waits(self) -> Waiting:
        """Made when first needed: a handler that is alone has no need of turns."""
        if self.waiting is None:
            task, journal, questions = self.task, self.journal, self.questions
            task.turns = Turns(task.loop, journal, self._at_rest, self._not_cut, task.fail)
            accounting = Accounting(task, journal, task.turns, questions.of_last_leg)
            self.waiting = Waiting(
                task, journal, task.turns, accounting, questions.responses, self.record, self._on_cut
            )
        return self.waiting

    def steps(self) -> Steps:
        """Made when first needed."""
        if self._steps is None:
            self._steps = Steps(
                task=self.task,
                journal=self.journal,
                waiting=self.waits(),
                flow=self.flow,
                memory=self.memory,
                record=self.record,
                freshen=self.freshen,
                clock=self.clock,
                saving=self.saving or asyncio.Lock(),
                pauses=self.pauses if self.is_durable else None,
                watcher=self.watcher,
            )
        return self._steps

    def _on_cut(self, name: str) -> None:
        """The handler does not wait for this effect any more."""
        if name[:2] == "a:" and (key := self.questions.withdraw(name[2:])) is not None:
            self.asks.pop(key, None)
        self.pauses.pop(name, None)
        if self._steps is not None:
            self._steps.cut(name)

    def record(self, name: str, entry: Entry) -> None:
        """Add an entry to the journal: the handler is beyond what earlier legs did."""
        if not self.fresh:
            self.freshen()
        self.journal.add(name, entry)
        if self.watcher is not None:
            self.watcher.done(name, entry)

    def freshen(self) -> None:
        """The handler is beyond what earlier legs did."""
        if not self.fresh:
            self.fresh = True
            self.rerun_seconds = self.task.loop.time() - self.task.began

    def _not_cut(self, name: str) -> None:
        """An effect that was cut in an earlier round is not cut in this one."""
        entry = self.journal.entries[name]
        before = f"it cut {entry.about or name[2:]} short after {entry.value[0]:.3g} s"
        problem = f"{self.task.title} does not replay"
        error = NonDeterminismError(problem, before=before, now="it does not", effect=name[2:])
        self.task.fail(error)

    def vanished(self, key: str, now: str) -> NonDeterminismError:
        """The error of a handler that does `now` and has not come to what it did before."""
        return vanished(self.task.title, self.journal, key, now)


def _escaped(error: BaseException) -> BaseException:
    """What a handler raised, as its caller may see it: never what would end more than the call."""
    if not isinstance(error, Exception):
        wrong = RuntimeError(f"the handler raised {type(error).__name__}, which is not an Exception")
        wrong.__cause__ = error
        return wrong
    return error
