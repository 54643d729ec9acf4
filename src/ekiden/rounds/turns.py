"""The order in which effects give a handler their values: one at a time, in a replay as in the first run.

A handler may have many branches (tasks that it has started). If two of their effects are done at the same
moment, or are in the journal already, it matters which branch goes on first: it may put its value into a
queue, take a lock, or win a race. So there are turns. One effect is told: its branch gets the value. Then
all branches come to rest, which takes the loop a few passes in which no branch begins or ends an effect. Then
the next one is told.

In a replay the order is that of the journal. What is new begins when the journal has nothing more to tell.
An effect that the handler itself cut short keeps its turn, too: the others wait until it is cut again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ekiden.patience import Patience
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.journal import UNKNOWN_BRANCH, Journal

__all__ = ["PATIENCE_SECONDS", "Arrival", "Turns", "Waiter"]

_IDLE_PASSES: Final = 12
"""Passes of the loop without an effect after which a handler is at rest. To come back through a `gather`, a
task group or a queue takes two each: five of them nested into each other are well within."""

PATIENCE_SECONDS: Final = 1.5
"""How long a replay waits for a branch to come to what it did before. It may be busy with plain I/O."""

_TOLD: Final = ("a:", "s:", "p:", "z:", "b:")
"""The name spaces of the effects that a handler waits for: the others have their value at once."""

_CUT_AGAIN_SECONDS: Final = 5.0
"""How much later than at first an effect may be cut in a replay. After that it is taken not to be cut."""


class Waiter(PrivateStruct):
    """An effect that its branch waits for."""

    name: str
    branch: int
    """Which of the handler's tasks waits."""
    future: asyncio.Future[Any]
    since: float
    after: str
    """What the handler was told last before it began to wait."""
    told_before: int
    """How much the handler had been told by then."""
    cancels: int = 0
    """Cancellations of its task that it had been told of when it began to wait."""
    begin: Callable[[int], None] | None = None
    """What is to be done for it, and for which branch, once the journal has nothing more to tell; None if
    that was done."""
    value: Any = None
    """What it will be told, where that is known already."""
    is_known: bool = False
    """Whether the journal knew it when it came up."""
    is_told: bool = False
    is_cancelled: bool = False
    """Whether the handler has cut it, in a replay, before its turn to be cut."""
    why: tuple[Any, ...] = ()
    """The arguments of its cancellation: anyio's scopes absorb only their own."""


class Arrival(PrivateStruct):
    """Something that a waiter is to be told when its turn comes."""

    name: str
    value: Any
    ready: bool = True
    """False while the store does not know of it yet; it keeps its place in the meantime."""


class Turns(PrivateStruct):
    """The effects that a handler waits for, and what has arrived for them."""

    _loop: asyncio.AbstractEventLoop
    _journal: Journal
    _at_rest: Callable[[], None]
    """Called when the handler is at rest and there is nothing to tell it."""
    _not_cut: Callable[[str], None]
    """Called with an effect that was cut in an earlier round and is not cut in this one."""
    _failed: Callable[[BaseException], None]
    """Called with what the beginning of an effect has raised."""
    waiting: dict[str, Waiter] = {}
    caught_up: bool = False
    """Whether the journal has told all that the handler asked of it."""
    _arrived: deque[Arrival] = msgspec.field(default_factory=deque[Arrival])
    _quiet: int = 0
    """Passes of the loop since the last effect."""
    _ticking: bool = False
    _closed: bool = False
    _guard: Patience | None = None
    _guarded: str = ""
    _late: Patience | None = None
    given_up: set[str] = set()
    """Effects of the journal that were waited for in vain."""
    _cuts: list[str] = []
    """Effects of the journal that were cut."""
    _told_at: list[float] = []
    """When the handler was told something."""
    _last: str = ""
    unheard: str = ""
    """The effect that was told last, until its branch goes on."""
    _pace: asyncio.TimerHandle | None = None
    alarms: dict[str, asyncio.TimerHandle | Patience] = {}
    """Timers of sleeps, retries and held steps, by name. One that outlives its leg would keep it alive."""
    branches: dict[asyncio.Task[Any] | None, int] = {}
    """The numbers by which the journal knows the tasks that the handler has started."""
    undelivered: dict[asyncio.Task[Any], tuple[int, tuple[Any, ...]]] = {}
    """How many cancellations a replay has kept from each task, and the arguments of the last one."""

    def __post_init__(self) -> None:
        backlog = self._journal.backlog
        self.caught_up = not backlog
        if backlog:
            self._cuts = [name for name in backlog if self._is_to_be_cut(name)]

    def wait(self, name: str, branch: int, begin: Callable[[int], None] | None, value: Any = None) -> Waiter:
        """Wait for an effect: one that the journal knows, with its value, or a new one, with its `begin`."""
        waiter = Waiter(
            name,
            branch,
            self._loop.create_future(),
            self._loop.time(),
            self._last,
            len(self._told_at),
            begin=begin,
            value=value,
            is_known=begin is None,
        )
        self.waiting[name] = waiter
        if self._late is not None:
            self._late.cancel()  # An effect came up: look again what to wait for.
            self._late = None
        self.stir()  # Others may be about to come up: none is told at once.
        if begin is None and name in self._journal.backlog:
            self.caught_up = False  # It may come late: something new went ahead of it.
            if name in self.given_up:
                self.given_up.clear()
        elif self.caught_up:
            if begin is not None:
                self._begin(waiter)
            elif not self._is_to_be_cut(name):
                self.arrive(name, value)
        return waiter

    def _is_to_be_cut(self, name: str) -> bool:
        entry = self._journal.entries.get(name)
        return entry is not None and entry.kind == "cut"

    def arrive(self, name: str, value: Any, *, ready: bool = True) -> Arrival:
        """Tell this effect its value when its turn comes, after all that arrived before."""
        arrival = Arrival(name, value, ready)
        self._arrived.append(arrival)
        if ready:
            self.go_on()
        return arrival

    def untold(self) -> list[str]:
        """The effects for which something has arrived that they were not told yet, in order."""
        return [arrival.name for arrival in self._arrived if arrival.name in self.waiting]

    def drop(self, name: str) -> None:
        """The handler has cut this effect short."""
        self.waiting.pop(name, None)
        self._journal.backlog.pop(name, None)
        if (alarm := self.alarms.pop(name, None)) is not None:
            alarm.cancel()
        self._drop_guard()
        self.stir()

    def told_while(self, waiter: Waiter) -> list[float]:
        """What the handler was told while this effect waited: after how many seconds, each."""
        return [round(moment - waiter.since, 3) for moment in self._told_at[waiter.told_before :]]

    def stir(self) -> None:
        """An effect has begun or ended: the next one is told when the handler is at rest again."""
        self._quiet = 0
        if not self._ticking and not self._closed:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def go_on(self) -> None:
        """There may be something to tell. If the handler is at rest, tell it at once."""
        if not self._ticking and not self._closed:
            self._next()

    def close(self) -> None:
        """The leg is over: cancel all that waits."""
        self._closed = True
        self._drop_guard()
        if self._pace is not None:
            self._pace.cancel()
        for alarm in self.alarms.values():
            alarm.cancel()
        self.alarms.clear()
        for waiter in self.waiting.values():
            waiter.future.cancel()
        self.waiting.clear()
        self._arrived.clear()

    def leave_branches(self) -> None:
        """Cancel the branches that go on although their handler has ended and nobody waits for them."""
        for task in self.branches:
            if task is not None and not task.done():
                task.cancel()
        self.branches.clear()
        self.undelivered.clear()

    def _tick(self) -> None:
        if self.undelivered:
            self._forget_ended_scopes()
        if self._closed:
            self._ticking = False
        elif self._quiet < _IDLE_PASSES:
            self._quiet += 1
            self._loop.call_soon(self._tick)
        else:
            self._ticking = False
            self._next()

    def _forget_ended_scopes(self) -> None:
        """A cancellation that was kept from a task, and whose scope has ended since, is never delivered."""
        for task, (kept, why) in list(self.undelivered.items()):
            if (due := min(kept, task.cancelling())) == 0:
                del self.undelivered[task]
            else:
                self.undelivered[task] = (due, why)

    def _next(self) -> None:
        """The handler is at rest: tell the next effect, if there is one."""
        if not self.caught_up:
            self._next_of_old()
            return
        while self._arrived:
            if not self._arrived[0].ready:
                return
            arrival = self._arrived.popleft()
            if self._tell(arrival.name, arrival.value):
                if self._journal.backlog:
                    self._went_ahead()
                return
        for name, waiter in self.waiting.items():
            if waiter.is_known and self._is_to_be_cut(name):
                self._await_cut(name)
                return
        self._at_rest()

    def _next_of_old(self) -> None:
        for name in self._journal.backlog:
            if (waiter := self.waiting.get(name)) is not None and waiter.begin is None:
                if not self._cuts or not self._is_too_soon(name):
                    self._tell_known(waiter)
                return
            if self._is_late(name):
                return
        self._catch_up()

    def _is_late(self, name: str) -> bool:
        """Whether an effect that has not come up may still do so: its branch may be busy with plain I/O.

        If its branch waits for something else, it will not. For others we wait a while.
        """
        if name[:2] not in _TOLD or name in self.given_up:
            return False
        branch = self._journal.entries[name].branch
        waiting = {waiter.branch for waiter in self.waiting.values()}
        if branch == UNKNOWN_BRANCH:
            is_elsewhere = waiting == {0} and all(e.branch <= 0 for e in self._journal.entries.values())
        else:
            is_elsewhere = branch < 0 or branch in waiting
        if is_elsewhere:
            return False
        if self._late is None:
            self._late = Patience(self._loop, PATIENCE_SECONDS, self._give_up, name)
        return True

    def _is_too_soon(self, name: str) -> bool:
        """Whether this effect was told later in the first run, as seen from effects that were cut after it.

        Those had begun by then, so they must have begun here, too. And their timeouts run in real time in
        every run: if other branches were told sooner, their own timeouts would begin and end sooner.
        """
        due = 0.0
        for cut in self._cuts:
            if cut == name or cut not in self._journal.backlog:
                continue
            after, told_at = self._journal.entries[cut].value[2:]
            if (waiter := self.waiting.get(cut)) is None:
                if after not in self._journal.backlog and self._is_late(cut):
                    return True
            elif (number := len(self._told_at) - waiter.told_before) < len(told_at):
                due = max(due, waiter.since + told_at[number])
        if due <= self._loop.time():
            return False
        if self._pace is None:
            self._pace = self._loop.call_at(due, self._keep_pace)
        return True

    def _keep_pace(self) -> None:
        self._pace = None
        self.go_on()

    def _give_up(self, name: str) -> None:
        """No branch has come to this effect in time, nor to others that a turn waits for."""
        self._late = None
        self.given_up.add(name)
        for key in self._journal.backlog:
            if key in self.waiting:
                break
            if key[:2] in _TOLD:
                self.given_up.add(key)
        self.go_on()

    def is_next(self, name: str) -> bool:
        """Whether it is the turn of an effect that the journal knows."""
        if self.unheard:
            return False
        if not self.caught_up:
            for key in self._journal.backlog:
                if key == name:
                    break
                if key in self.waiting or self._is_late(key):
                    return False
        return True

    def _tell_known(self, waiter: Waiter) -> None:
        if self._is_to_be_cut(waiter.name):
            self._await_cut(waiter.name)
        else:
            del self._journal.backlog[waiter.name]
            self._tell(waiter.name, waiter.value)

    def _await_cut(self, name: str) -> None:
        """Wait until the handler cuts an effect again: only it can. If it does not, it does not replay."""
        waiter = self.waiting[name]
        if waiter.is_cancelled:
            waiter.future.cancel(*waiter.why)  # It has been cut already, before its turn.
        elif self._guarded != name:
            self._drop_guard()
            self._guarded = name
            seconds = self._journal.entries[name].value[0] + _CUT_AGAIN_SECONDS
            self._guard = Patience(self._loop, seconds, self._not_cut, name)

    def _drop_guard(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
            self._guarded = ""

    def _tell(self, name: str, value: Any) -> bool:
        waiter = self.waiting.pop(name, None)
        if waiter is None:
            return False  # It was cut meanwhile.
        waiter.is_told, waiter.value = True, value
        self._last = self.unheard = name
        self._told_at.append(self._loop.time())
        if not waiter.future.done():
            waiter.future.set_result(value)
        self.stir()
        return True

    def _catch_up(self) -> None:
        self.caught_up = True
        for waiter in list(self.waiting.values()):
            self._begin(waiter)
        self.stir()

    def _went_ahead(self) -> None:
        """Something new was told. What is left of the journal is told later than that."""
        self._journal.move_to_the_end([*self._journal.backlog, *self.untold()])
        self.caught_up = False

    def _begin(self, waiter: Waiter) -> None:
        if waiter.begin is not None and not self._closed:
            begin, waiter.begin = waiter.begin, None
            try:
                begin(waiter.branch)
            except Exception as error:
                self._failed(error)
