"""The laws, held against what the processes noted, what the clients know, and what the store has."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ekiden.tasks.queue import SUSPECT
from tests.chaos.clients import Started
from tests.chaos.fleet import Disturbance

__all__ = ["Begin", "Evidence", "Tidied", "Verdict", "judge", "read_notes"]

WINDOW_PART = 0.25
"""A worker looks at its lease before it begins a step, and is sure for three quarters of it. If it stands
still for longer than the rest between look and beginning, it begins what may not be its own any more."""
TAKE_OVER_SECONDS = 2.0
"""How much longer than a lease it may take until somebody goes on with what a dead worker had."""
_SHOWN = 12
_ENOUGH = 20
"""Take-overs from which on the slowest twentieth says something."""


@dataclass(frozen=True)
class Begin:
    """A step that began somewhere."""

    task_id: str
    step: str
    run: str
    fence: int
    at: float
    looked: float
    process: int


@dataclass
class Hold:
    """A task while a process had it."""

    task_id: str
    fence: int
    losses: int
    process: int
    since: float
    until: float = float("inf")
    """For ever, if it died before it said that it let go."""


@dataclass(frozen=True)
class Tidied:
    """A clean-up after a task that did not come to its end."""

    at: float
    told: frozenset[str]
    """The committed steps that it was told of, each with the run that was committed."""


@dataclass
class Evidence:
    """All that is known in the end."""

    lease: float
    tasks: Mapping[str, Started]
    rows: Mapping[str, Any]
    journals: Mapping[str, Mapping[str, Any]]
    """By task: what was committed, by the key of the step."""
    disturbances: Sequence[Disturbance]
    begins: list[Begin] = field(default_factory=list)
    commits: dict[tuple[str, str], float] = field(default_factory=dict)
    """When the commit of a step was known at the latest."""
    holds: dict[tuple[str, int], Hold] = field(default_factory=dict)
    """By task and fence."""
    ended: set[str] = field(default_factory=set)
    """Runs of steps that came to their end."""
    tidied: dict[str, list[Tidied]] = field(default_factory=lambda: defaultdict(list))
    """The clean-ups of each task."""
    slow_stops: Sequence[int] = ()


@dataclass
class Verdict:
    """What was found."""

    broken: dict[str, list[str]]
    begun_twice: int
    in_the_window: int
    take_overs: list[tuple[float, str]]
    ends: Counter[str]
    killed: int = 0
    """Tasks that were given up because their last worker, too, was killed from outside."""

    @property
    def is_good(self) -> bool:
        """Whether no law was broken."""
        return not any(self.broken.values())

    def figures(self) -> str:
        """Everything in a few lines."""
        lines = [f"{law}: {len(found)}" for law, found in self.broken.items()]
        lines += [f"steps begun twice, with a reason: {self.begun_twice}"]
        lines += [f"given up because every worker that ran them was killed: {self.killed}"]
        lines += [f"begun in the window between look and beginning: {self.in_the_window}"]
        lines += [f"ends: {dict(self.ends)}", f"take-over: {spread(self.take_overs)}"]
        for law, found in self.broken.items():
            lines += [f"  {law}: {each}" for each in found[:_SHOWN]]
        return "\n".join(lines)


def spread(taken: Sequence[tuple[float, str]]) -> str:
    """How times are spread, and whose the longest was."""
    if not taken:
        return "none"
    ordered = sorted(taken)
    p50, p95 = (ordered[int(len(ordered) * part)][0] for part in (0.5, 0.95))
    longest, whose = ordered[-1]
    return f"{len(ordered)} times, p50 {p50:.2f} s, p95 {p95:.2f} s, max {longest:.2f} s ({whose})"


def read_notes(folder: Path, evidence: Evidence) -> list[Disturbance]:
    """Add what the processes noted; what they say of their own standing still."""
    stalls: list[Disturbance] = []
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            what, at, *words = line.split()
            if what == "stalled":
                stalls.append(Disturbance("stalled", int(file.name), float(words[0]), float(at)))
            elif (add := _NOTES.get(what)) is not None:
                add(evidence, int(file.name), float(at), *words)
    evidence.begins.sort(key=lambda begin: begin.at)
    for begin in evidence.begins:  # A later step begins only with the value of the one before.
        number = int(begin.step[1:])
        if number:
            _committed(evidence, begin.process, begin.at, begin.task_id, f"s{number - 1}")
    return stalls


def _begin(
    evidence: Evidence, process: int, at: float, task_id: str, step: str, run: str, fence: str, looked: str
) -> None:
    evidence.begins.append(Begin(task_id, step, run, int(fence), at, float(looked), process))


def _committed(evidence: Evidence, process: int, at: float, task_id: str, step: str, run: str = "") -> None:
    known = evidence.commits.get((task_id, step), at)
    evidence.commits[task_id, step] = min(known, at)


def _taken(evidence: Evidence, process: int, at: float, task_id: str, fence: str, losses: str) -> None:
    evidence.holds[task_id, int(fence)] = Hold(task_id, int(fence), int(losses), process, at)


def _left(evidence: Evidence, process: int, at: float, task_id: str, fence: str) -> None:
    evidence.holds[task_id, int(fence)].until = at


def _tidied(evidence: Evidence, process: int, at: float, task_id: str, *steps: str) -> None:
    evidence.tidied[task_id].append(Tidied(at, frozenset(steps)))


def _ended(evidence: Evidence, process: int, at: float, run: str) -> None:
    evidence.ended.add(run)


_NOTES: Mapping[str, Callable[..., None]] = {
    "begin": _begin,
    "committed": _committed,
    "taken": _taken,
    "left": _left,
    "tidied": _tidied,
    "end": _ended,
}


def judge(evidence: Evidence) -> Verdict:
    """Hold everything to the laws."""
    by_step: dict[tuple[str, str], list[Begin]] = defaultdict(list)
    for begin in evidence.begins:
        by_step[begin.task_id, begin.step].append(begin)
    again, window = _begun_after_commit(evidence, by_step)
    unexplained, explained = _begun_twice(evidence, by_step)
    take_overs = _take_overs(evidence)
    broken = {
        "lost": [_told(task) for task in evidence.tasks.values() if evidence.rows.get(task.task_id) is None],
        "stuck": [_row(row) for row in evidence.rows.values() if row is not None and not _is_over(row)],
        "a committed step begun again": again,
        "failed without blame": list(_failed_without_blame(evidence)),
        "poison that did not end": list(_survived(evidence)),
        "a wrong result": list(_wrong(evidence)),
        "begun twice without a reason": unexplained,
        "ended early and not cleaned up": list(_untidy(evidence)),
        "cleaned up without knowing of a step": list(_tidied_too_early(evidence)),
        "taken over too late": list(_too_late(evidence, take_overs)),
        "did not stop": [str(process) for process in evidence.slow_stops],
    }
    ends = Counter(f"{row.tool} {row.state}" for row in evidence.rows.values() if row is not None)
    killed = sum(
        row is not None
        and row.state == "failed"
        and row.tool != "poison"
        and not row.expired
        and _died_alone(evidence, row)
        for row in evidence.rows.values()
    )
    return Verdict(broken, explained, window, take_overs, ends, killed)


def _told(task: Started) -> str:
    return f"{task.task_id} ({task.tool}, {task.call})"


def _row(row: Any) -> str:
    return f"{row.id} ({row.tool}, {row.state}, fence {row.fence}, losses {row.losses}, due {row.due})"


def _is_over(row: Any) -> bool:
    return row.state in ("completed", "failed", "cancelled")


# Steps


def _begun_after_commit(
    evidence: Evidence, by_step: Mapping[tuple[str, str], list[Begin]]
) -> tuple[list[str], int]:
    found, window = [], 0
    for (task_id, step), begins in by_step.items():
        committed = evidence.commits.get((task_id, step))
        value = evidence.journals.get(task_id, {}).get(step)
        for begin in begins:
            if committed is None or begin.run == value or begin.at <= committed:
                continue
            if begin.at - begin.looked > WINDOW_PART * evidence.lease:
                window += 1
            else:
                found.append(
                    f"{task_id} {step}: {value} was committed by {committed:.3f}, and then came {begin}"
                )
    return found, window


def _begun_twice(evidence: Evidence, by_step: Mapping[tuple[str, str], list[Begin]]) -> tuple[list[str], int]:
    found, explained = [], 0
    for (task_id, step), begins in by_step.items():
        for first, second in itertools.pairwise(begins):
            if _is_disturbed(evidence, first, second.at) or _is_disturbed(evidence, second, second.at):
                explained += 1
            else:
                found.append(f"{task_id} {step}: {first}, and then {second}")
    return found, explained


def _is_disturbed(evidence: Evidence, begin: Begin, until: float) -> bool:
    """Whether anything was done to who ran a step, or to the store, that may have cost it its lease.

    A blocked event loop is no reason: its process lives, and a thread renews the leases.
    """
    since = begin.at - 2 * evidence.lease
    return any(
        each.process in (None, begin.process)
        and each.began <= until
        and each.ended >= since
        and not _is_blocked(evidence, each)
        for each in evidence.disturbances
    )


def _is_blocked(evidence: Evidence, what: Disturbance) -> bool:
    """Whether this is an event loop that was blocked, or what its process noticed of that."""
    return what.kind == "block" or (
        what.kind == "stalled"
        and any(
            each.kind == "block"
            and each.process == what.process
            and each.began <= what.ended
            and each.ended >= what.began
            for each in evidence.disturbances
        )
    )


# Taking over


def _take_overs(evidence: Evidence) -> list[tuple[float, str]]:
    """Seconds from the death of a worker until each of its tasks went on elsewhere."""
    taken: list[tuple[float, str]] = []
    gone: set[int | None] = set()
    for death in evidence.disturbances:
        if not _is_gone(evidence, death) or death.process in gone:
            continue
        gone.add(death.process)
        for hold in evidence.holds.values():
            is_held = hold.process == death.process and hold.since <= death.began < hold.until
            if is_held and (seconds := _taken_over_after(evidence, hold, death)) is not None:
                whose = f"{hold.task_id} of {death.process}, {death.kind} at {death.began:.2f}"
                taken.append((seconds, whose))
    return taken


def _is_gone(evidence: Evidence, what: Disturbance) -> bool:
    """Whether somebody else had to go on with the tasks of a process."""
    is_long = what.ended - what.began > evidence.lease + TAKE_OVER_SECONDS
    return what.kind in ("kill", "died") or (what.kind == "freeze" and is_long)


def _taken_over_after(evidence: Evidence, hold: Hold, death: Disturbance) -> float | None:
    after = evidence.holds.get((hold.task_id, hold.fence + 1))
    if after is None or after.losses == 0:
        return None  # It had let go, and just did not come to say so.
    if after.losses >= SUSPECT:
        return None  # It waits on purpose.
    if _is_away(evidence, death.began - evidence.lease, after.since):
        return None  # There was nobody who could have told.
    return after.since - death.began


def _is_away(evidence: Evidence, since: float, until: float) -> bool:
    """Whether the store was away, or this machine stood still."""
    return any(
        each.process is None and each.began <= until and each.ended >= since for each in evidence.disturbances
    )


def _too_late(evidence: Evidence, take_overs: Sequence[tuple[float, str]]) -> Iterable[str]:
    ordered, bound = sorted(take_overs), evidence.lease + TAKE_OVER_SECONDS
    part = 0.95 if len(ordered) > _ENOUGH else 0.5
    if ordered and ordered[int(len(ordered) * part)][0] > bound:
        yield f"the bound is {bound:.1f} s: {spread(take_overs)}"


# Ends


def _failed_without_blame(evidence: Evidence) -> Iterable[str]:
    for row in evidence.rows.values():
        may_fail = row is not None and (row.tool == "poison" or (row.tool == "expires" and row.expired))
        is_innocent = row is not None and row.state == "failed" and not may_fail
        if is_innocent and not _died_alone(evidence, row):
            yield f"{_row(row)}: {row.error!r}"


def _died_alone(evidence: Evidence, row: Any) -> bool:
    """Whether the last try of a task was ended by a kill from outside: nobody can tell it from poison."""
    last = evidence.holds.get((row.id, row.fence - 1))
    return last is not None and any(
        each.kind == "kill" and each.process == last.process and each.began >= last.since
        for each in evidence.disturbances
    )


def _survived(evidence: Evidence) -> Iterable[str]:
    for row in evidence.rows.values():
        if row is not None and row.tool == "poison":
            is_given_up = row.state == "failed" and b"workers were lost too often" in (row.error or b"")
            if not is_given_up:
                yield f"{_row(row)}: {row.error!r}"


def _wrong(evidence: Evidence) -> Iterable[str]:
    for task in evidence.tasks.values():
        row = evidence.rows.get(task.task_id)
        if row is None or row.state not in ("completed", "cancelled"):
            continue
        if row.state == "cancelled":
            if not task.is_cancelled:
                yield f"{_row(row)}: nobody cancelled it"
            continue
        wanted = {"short": f"{task.call} 5", "asks": f"{task.call} answer to {task.call}"}
        if f'"{wanted.get(task.tool, task.call)}"'.encode() not in row.result:
            yield f"{_row(row)}: {row.result!r}"


def _untidy(evidence: Evidence) -> Iterable[str]:
    for row in evidence.rows.values():
        is_early = row is not None and (row.state == "cancelled" or (row.expired and _is_over(row)))
        if is_early and row.id not in evidence.tidied:
            yield _row(row)


def _tidied_too_early(evidence: Evidence) -> Iterable[str]:
    """What is committed must be known, and what a worker did to its end to which nothing was done."""
    for task_id, tidied in evidence.tidied.items():
        committed = {f"{step}={run}" for step, run in evidence.journals.get(task_id, {}).items()}
        for each in tidied:
            if each.told != committed:
                yield f"{task_id}: told of {sorted(each.told)}, committed are {sorted(committed)}"
    for begin in evidence.begins:
        for each in evidence.tidied.get(begin.task_id, ()):
            is_unknown = begin.run in evidence.ended and f"{begin.step}={begin.run}" not in each.told
            if is_unknown and not _is_disturbed(evidence, begin, each.at):
                yield f"{begin.task_id}: told of {sorted(each.told)} at {each.at:.3f}, not of {begin}"
