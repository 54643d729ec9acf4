"""Which of the tasks that are due a worker claims next. No I/O, no clock.

1. Principals take turns: however many tasks one of them has, the first task of another comes next.
2. A task whose worker is silent is not taken over at once. It is watched for a moment first, which counts
   only if the store was there throughout, and could be written at its beginning, so that live workers could
   renew their leases after an outage.
3. A task that has lost several workers without any progress is a suspect. A worker runs one suspect at a
   time: if a task kills its workers, no other suspect is lost with them.
4. The last try before a task is given up is made alone: the worker runs nothing else until that task has
   made progress, or has lived for as long as a lease. So no task is given up for what another one does.
"""

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from ekiden.tasks.store import Due

__all__ = ["SUSPECT", "Queue", "is_suspect"]

_HELD: Final = ("running", "stopping", "failing")
"""The states of a task whose handler some worker may run; one that is failing is being stopped. Without a
sign of life it is due when its lease runs out."""
_WATCH_SECONDS: Final = 1.0
_WATCH_PART: Final = 1 / 3
"""How long a lease that has run out is watched: a part of it, and no longer than that. Live workers
try to renew theirs several times meanwhile."""

SUSPECT: Final = 2
"""Workers lost in a row, without any progress, from which on a task is a suspect."""

_ALONE_SECONDS: Final = 30.0
"""How long a last try waits for a worker that runs nothing else. Where all are always busy, it is made beside
other tasks."""

_BACK_OFF_SECONDS: Final = 1.0
"""How much longer a suspect waits after each further loss, at first; it doubles."""
_LONGEST_BACK_OFF: Final = 30.0
_MOST_KNOWN: Final = 10_000
"""Principals whose last turn is remembered."""


class _Silence(msgspec.Struct, frozen=True):
    fence: int
    due: float
    since: float
    """By the worker's own clock."""


def is_suspect(found: Due) -> bool:
    """Whether a task will be a suspect if it is claimed now."""
    return _losses(found) >= SUSPECT


def _losses(found: Due) -> int:
    """The workers that it will have lost then."""
    return found.losses + (found.state == "running")


class Queue:
    """What one worker knows of the tasks that wait."""

    def __init__(self, lease: float, attempts: int) -> None:
        self._last_try = max(SUSPECT, attempts - 1)
        self._watch = min(_WATCH_SECONDS, lease * _WATCH_PART)
        self._silent: dict[str, _Silence] = {}
        self._turns: dict[str, None] = {}
        """Principals that had a turn, the last one last."""

    def interrupted(self) -> None:
        """The store was away: begin to watch all leases anew."""
        self._silent.clear()

    def is_surprised_by(self, found: Collection[Due]) -> bool:
        """Whether a worker is silent that was not watched so far. `choose` begins to watch it."""
        return any(each.state in _HELD and not self._is_watched(each) for each in found)

    def _is_watched(self, found: Due) -> bool:
        known = self._silent.get(found.id)
        return known is not None and (known.fence, known.due) == (found.fence, found.due)

    def choose(
        self,
        found: Sequence[Due],
        *,
        room: int,
        now: float,
        time: float,
        has_suspect: bool,
        is_idle: bool = True,
    ) -> list[str]:
        """The tasks to claim, at most `room`. `now` is the time of the rows, `time` that of the worker.

        `is_idle` says that the worker runs nothing.
        """
        ready = [each for each in found if self._is_ready(each, now, time)]
        self._silent = {each.id: self._silent[each.id] for each in found if each.id in self._silent}
        chosen: list[str] = []
        for each in self._in_turn(ready):
            if len(chosen) >= room:
                break
            if is_suspect(each):
                if has_suspect:
                    continue
                if _losses(each) == self._last_try and now - each.due < _ALONE_SECONDS:
                    if chosen or not is_idle:
                        continue
                    room = 1
                has_suspect = True
            chosen.append(each.id)
            self._had_a_turn(each.principal)
        return chosen

    def look_again(self, time: float) -> float | None:
        """Seconds after which the first of those that are watched can be taken over."""
        waits = [silence.since + self._watch - time for silence in self._silent.values()]
        return max(0.0, min(waits)) if waits else None

    def _is_ready(self, found: Due, now: float, time: float) -> bool:
        if found.state not in _HELD:
            return True
        if not self._is_watched(found):
            self._silent[found.id] = _Silence(found.fence, found.due, time)
            return False
        since = self._silent[found.id].since
        return time - since >= self._watch and now - found.due >= _back_off(found)

    def _in_turn(self, ready: Sequence[Due]) -> list[Due]:
        """One of each principal, then the second of each, and so on; the longest without a turn is first."""
        waiting: dict[str, list[Due]] = {}
        for each in ready:
            waiting.setdefault(each.principal, []).append(each)
        order = {principal: place for place, principal in enumerate(self._turns)}
        principals = sorted(waiting, key=lambda whose: order.get(whose, -1))
        in_turn = zip_longest(*(waiting[principal] for principal in principals))
        return [each for one_of_each in in_turn for each in one_of_each if each is not None]

    def _had_a_turn(self, principal: str) -> None:
        self._turns.pop(principal, None)
        self._turns[principal] = None
        if len(self._turns) > _MOST_KNOWN:
            del self._turns[next(iter(self._turns))]


def _back_off(found: Due) -> float:
    further = _losses(found) - SUSPECT
    if further <= 0:
        return 0.0
    return float(min(_BACK_OFF_SECONDS * 2 ** (further - 1), _LONGEST_BACK_OFF))
