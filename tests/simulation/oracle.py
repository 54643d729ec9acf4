"""The oracle: which laws a case has broken, in words.

The measure is the push interpreter: it runs the handler once, without replay, so there is nothing that it
could get wrong. What it gives without any fault is what every other world must give.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.simulation.case import Happened, happen
from tests.simulation.faults import (
    BAD_DEPLOYS,
    BY_STORE,
    CRASHES,
    DEPLOYS,
    HALFWAY,
    HARMLESS,
    LATE_CLAIM,
    LEASE,
    STALLS,
    Setting,
)
from tests.simulation.programs import Program, nodes
from tests.simulation.running import Event, Run
from tests.simulation.world import GRACE, Effect, Worker

__all__ = ["Violation", "judge"]


@dataclass(frozen=True)
class Violation:
    """A law that was broken."""

    law: str
    detail: str

    def __str__(self) -> str:
        return f"{self.law}: {self.detail}"


def judge(happened: Happened) -> list[Violation]:
    """All laws that a case has broken."""
    if happened.endless:
        return [Violation("ends", happened.endless), *_once(happened)]
    found = [*_once(happened), *_owned(happened), *_left(happened), *_uncatchable(happened)]
    world = happened.world
    if not world.program.loose:
        found += _equal(happened)
        if not world.setting.has(*BAD_DEPLOYS) and not _asks_twice(happened):
            found += [*_ended_well(happened), *_deterministic(happened)]
            found += [*_as_pushed(happened), *_told(happened), *_forks(happened)]
        else:
            found += _accounted(happened)
    return found


def _asks_twice(happened: Happened) -> bool:
    """Where two versions came, each with a question before a known step, a round takes the step for gone."""
    world = happened.world
    asked = sum(kind in ("front", "between") for kind in world.fired)
    return asked > 1 and dict(world.setting.options).get("task") != "required"


_LASTING = ("answer", "value", "failure", "drawn", "chose", "left")
"""Events that a branch sees once at most under one label."""


# Law 1: once


def _once(happened: Happened) -> list[Violation]:
    begun: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in happened.world.effects:
        begun[effect.flow, effect.label].append(effect)
    found = []
    for (_, label), effects in begun.items():
        most = 3 if effects[0].run.node(label)["value"] == "retried" else 1
        pairs = zip(effects, [*effects[1:], None], strict=True)
        excused = sum(_excused(happened, effect, again) for effect, again in pairs)
        if len(effects) > most + excused * most:
            times = ", ".join(f"{e.began:.2f} s on worker {e.worker.number}" for e in effects)
            found.append(Violation("once", f"step {label} began {len(effects)} times: {times}"))
    return found


def _excused(happened: Happened, effect: Effect, again: Effect | None) -> bool:
    """Three excuses: its process died between effect and record, or was told to stop and had too little time
    for it; or its lease was lost although it tried."""
    world = happened.world
    if again is not None and world.overrun(effect) and again.began >= effect.worker.told_to_stop + GRACE:
        return True
    if effect.worker.dead and effect.ended is None:
        return True
    recorded = world.records.get((effect.run.ctx.request.task or "", effect.step, effect.worker), [])
    if effect.worker.dead and not any(effect.began <= when < effect.worker.died for when in recorded):
        return True
    if again is None or again.worker is effect.worker:
        return False
    if _was_frozen(happened, effect.worker, again.began):
        return True
    since = again.began - 0.6 * LEASE
    return any(worker is effect.worker and since <= when <= again.began for when, worker in world.struggled)


def _was_frozen(happened: Happened, worker: Worker, at: float) -> bool:
    """Whether all of a process stood still for so long that its lease had run out by then."""
    return any(
        who is worker and kind == "frozen" and end - start > LEASE / 2 and start < at < end + LEASE / 2
        for who, kind, start, end in happened.world.stalls
    )


# Law 4: one owner


def _owned(happened: Happened) -> list[Violation]:
    """Nobody begins a step that another worker has recorded: whoever has lost a round finds out first."""
    world = happened.world
    for effect in world.effects:
        task = effect.run.ctx.request.task or ""
        for (whose, step, worker), times in world.records.items():
            is_known = (whose, step) == (task, effect.step) and min(times) < effect.began
            if is_known and worker is not effect.worker and not effect.flow.endswith("'"):
                text = f"step {effect.label} began on worker {effect.worker.number} at {effect.began:.2f} s"
                return [Violation("owner", f"{text}, and worker {worker.number} had recorded it")]
    return []


# Law 2: equal


def _equal(happened: Happened) -> list[Violation]:
    """A later run begins as the one before it did, in all branches, in the same order."""
    world, found = happened.world, []
    for before, after in _successions(happened):
        if before.program is not after.program or before.worker.dead:
            continue
        values = {event[:3]: event[3] for event in _lasting(before)}
        for *what, value in after.trace:
            if what[2] in _LASTING and values.get(key := (what[0], what[1], what[2]), value) != value:  # type: ignore[comparison-overlap]
                found.append(Violation("equal", f"{key} was {values[key]}, replayed it is {value}"))
        for number, (one, other) in enumerate(zip(_lasting(before), _seen(after), strict=False)):
            if one != other and not _fired_together(happened):
                found.append(Violation("order", f"event {number} was {one}, replayed it is {other}"))
                break
    client = happened.client
    drawn = any(node.kind == "draw" for node in nodes(world.program.body))
    if not drawn and not world.setting.has(*DEPLOYS):
        found += [Violation("one reply", what) for what in getattr(client, "unequal", [])]
    return found


def _fired_together(happened: Happened) -> bool:
    """Whether a scope may have fired in the very pass in which the handler was told something else: an event
    loop that stood still had both to do. A replay tells the one, and then waits for the other."""
    scoped = any(node.kind == "scope" for node in nodes(happened.world.program.body))
    return scoped and bool(happened.world.stalls)


def _seen(run: Run) -> list[Event]:
    """What a run saw. To tell the client something shows the handler nothing."""
    return [event for event in run.trace if event[2] != "told"]


def _lasting(run: Run) -> list[Event]:
    """What a run saw that others must see, too. What a leg drew last and never recorded does not count.

    Nor does it count that a branch which returned such a draw was the next to end.
    """
    trace = _seen(run)
    if run.world.setting.mode == "tasks" and run.world.setting.faults:
        last = len(trace)
        while last and trace[last - 1][2] in ("drawn", "holds", "next"):
            last -= 1
        while last < len(trace) and trace[last][2] == "next":
            last += 1
        del trace[last:]
    return trace


def _successions(happened: Happened) -> list[tuple[Run, Run]]:
    """Runs of the same history, one after the other."""
    if happened.world.setting.mode == "tasks":
        return _legs(happened)
    return _rounds(happened)


def _rounds(happened: Happened) -> list[tuple[Run, Run]]:
    """The run that gave a token, and one that was given it."""
    return [
        (attempt.parent, run)
        for attempt in happened.world.attempts
        if attempt.parent is not None
        for run in attempt.runs
    ]


def _legs(happened: Happened) -> list[tuple[Run, Run]]:
    """The legs of each task, one after the other."""
    legs: dict[str, list[Run]] = defaultdict(list)
    for run in happened.world.runs:
        if run.ctx.request.task is not None and not run.worker.dead:
            legs[run.ctx.request.task].append(run)
    return [pair for runs in legs.values() for pair in pairwise(runs)]


# The measure


def _as_pushed(happened: Happened) -> list[Violation]:
    world = happened.world
    if _races(happened) or world.setting.mode == "push" or "result" not in happened.reply:
        return []
    pushed = _pushed(happened, happened.program or world.version, frozenset())
    found = []
    if _text(happened) != _text(pushed):
        found.append(Violation("result", f"{_text(happened)} instead of {_text(pushed)}"))
    expected = {effect.label for effect in pushed.world.effects}
    done = {effect.label for effect in world.effects if not effect.flow.endswith("'")}
    if not happened.forks and done != expected:
        found.append(Violation("effects", f"too many: {done - expected}, missing: {expected - done}"))
    return found


def _pushed(happened: Happened, program: Program, flips: frozenset[str]) -> Happened:
    world = happened.world
    if world.setting.mode == "tasks":  # Only a tool that may become a task may ask for it.
        push = Setting("push", "memory", options=(("task", "deferred"),), pace=world.setting.pace)
    else:
        push = Setting("push", pace=world.setting.pace)
    return happen(world.seed, program, push, flips)


_STEP_ENDS_ALONE = ("double", "leave")
"""Where nobody waits for a leg any more, its steps end, and the scopes around them do not cut them."""


def _races(happened: Happened) -> bool:
    """Whether the push interpreter may rightly do something else."""
    world = happened.world
    scoped = any(node.kind == "scope" for node in nodes(world.program.body))
    stopped = world.setting.mode == "tasks" and world.setting.has(*DEPLOYS)
    timed = (
        stopped  # A step that runs then goes on to its end, with no scope around it.
        or world.setting.pace != 1
        or world.setting.latency
        or world.setting.has(*BY_STORE, *CRASHES, *HALFWAY, *STALLS, LATE_CLAIM, *_STEP_ENDS_ALONE)
    )
    return world.program.racy or bool(scoped and timed)


def _text(happened: Happened, reply: dict[str, object] | None = None) -> str:
    return str((reply or happened.reply).get("result", {}).get("content"))  # type: ignore[attr-defined]


# How it ended


_OTHER_ANSWERS = "has become a task before, with other answers"


def _ended_well(happened: Happened) -> list[Violation]:
    reply, deployed = happened.reply, happened.world.setting.has(*DEPLOYS)
    if deployed and _OTHER_ANSWERS in str(reply.get("error")):
        return []  # It was a task before it was asked one question more, and its client did not hear of it.
    if "error" in reply:
        return [Violation("refused", str(reply["error"]))]
    if reply["result"].get("isError"):
        return [Violation("failed", str(reply["result"]["content"]))]
    return []


def _deterministic(happened: Happened) -> list[Violation]:
    notes = [note for note in happened.logged if "NonDeterminismError" in note]
    return [Violation("replays", note) for note in notes[:1]]


def _uncatchable(happened: Happened) -> list[Violation]:
    for run in happened.world.runs:
        for event in (*run.trace, *run.unwound):
            if "StoreUnavailable" in event[3]:
                return [Violation("uncatchable", f"the handler saw {event}")]
    return []


def _left(happened: Happened) -> list[Violation]:
    return [Violation("left", what) for what in happened.left[:1]]


def _accounted(happened: Happened) -> list[Violation]:
    """Where a deploy took a step away nothing fresh is run: it could be the changed self of that step."""
    for before, run in (*_rounds(happened), *_legs(happened)):
        if before.program is run.program or before.worker.dead:
            continue
        known = {label for _, label, event, _ in before.trace if event in ("value", "failure")}
        gone = {label for label in known if label[0].isdigit() and run.node(label).kind == "pass"}
        if gone and run.began:
            return [Violation("accounted", f"{run.began} began although {gone} had been done and was gone")]
    return []


def _told(happened: Happened) -> list[Violation]:
    """Progress is told once, where no round is repeated."""
    world, client = happened.world, happened.client
    faults = {fault.kind for fault in world.setting.faults}
    if (
        client is None
        or faults - set(HARMLESS)
        or not world.program.straight
        or world.setting.mode == "tasks"
    ):
        return []
    expected = [label for _, label, event, _ in world.runs[-1].trace if event == "told"]
    if client.told != expected:
        return [Violation("told", f"progress {client.told} instead of {expected}")]
    return []


# Law 6: one history


def _forks(happened: Happened) -> list[Violation]:
    world, found = happened.world, []
    for fork in happened.forks:
        claimed = bool(fork.began) or dict(world.setting.options).get("once") is True
        refused = "error" in fork.reply
        if fork.kind == "again" and claimed and not refused and world.setting.mode == "rounds":
            same = {key: fork.before.get(key) for key in ("content", "inputRequests")}
            if "content" in fork.before and fork.reply["result"].get("content") != same["content"]:
                found.append(Violation("one reply", f"{fork.reply['result']} instead of {same}"))
        if fork.kind == "fork" and claimed and not refused:
            found.append(
                Violation(
                    "history",
                    f"a round in which {fork.began} ran was answered otherwise: "
                    f"{_text(happened, fork.reply)}",
                )
            )
        if fork.kind == "fork" and not claimed and not refused and not _races(happened):
            pushed = _pushed(happened, world.version, fork.all_flips)
            if _text(happened, fork.reply) != _text(pushed):
                found.append(
                    Violation("history", f"{_text(happened, fork.reply)} instead of {_text(pushed)}")
                )
    return found
