"""What may be done to a task's row: functions without I/O or a clock, each one transaction of a store.

A move changes the record it is given, or raises and leaves it as it was: `IllegalMove` where the state
does not allow it, `LostClaim` where another worker holds the fence by now. Those that a runner makes
can be repeated: a commit whose reply was lost is simply tried again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import IllegalMove, LostClaim
from ekiden.rounds.journal import UNKNOWN_BRANCH, Entry
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.states import Move, State, move

__all__ = [
    "Ending",
    "Suspension",
    "answer",
    "cancel",
    "claim",
    "expire",
    "finish",
    "give_up",
    "publish",
    "release",
    "stop",
    "survive",
    "suspend",
    "tidied",
    "wake",
    "woken",
]


_SLEEPS_UNTIL: Final = "d:sleep"
"""How the journal names the moment until which a handler sleeps; a `key=` follows a colon."""


class Ending(msgspec.Struct, frozen=True):
    """How a task ends: a result or an error, as JSON."""

    result: bytes | None = None
    error: bytes | None = None
    tool_failed: bool = False
    """Whether the result says that the tool failed (`isError`)."""
    why: str | None = None
    """Why the task or its tool failed, in words."""


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a leg leaves behind."""

    asked: tuple[Question, ...] = ()
    """New questions."""
    read: tuple[str, ...] = ()
    """Keys of the answers that the handler has read; they are in the journal now."""
    withdrawn: tuple[str, ...] = ()
    """Keys of questions whose answers the handler does not wait for any more."""
    seen: frozenset[str] = frozenset()
    """Keys of all the answers that the leg knew of. If there are others, the task is due at once."""
    wake: float | None = None
    message: str | None = None


def claim(record: TaskRecord, *, now: float, lease: float) -> None:
    """Take the task: its fence grows, and only the new one counts from now on."""
    if record.due is None or record.due > now:
        raise LostClaim(f"task {record.id} is not due")
    before = record.state
    record.state = move(before, "claim")
    record.fence += 1
    if before == "stopping":
        _close(record, now)
    if before not in ("queued", "waiting"):
        record.losses += 1  # Its worker did not give it back. This also limits the tries of a clean-up.
    record.due = now + lease


def survive(record: TaskRecord, fence: int) -> None:
    """The worker with this fence lost the task to another, and lives: that loss does not count."""
    record.state = move(record.state, "survive")
    if record.fence <= fence or not record.losses:
        raise LostClaim(f"task {record.id} has no such loss")
    record.losses -= 1


def publish(record: TaskRecord, fence: int, leaves: Suspension, *, now: float) -> None:
    """Put questions while the leg goes on, and say how far it is."""
    record.state = _owned(record, fence, "publish")
    _leave(record, leaves, now)


def suspend(record: TaskRecord, fence: int, leaves: Suspension, *, now: float) -> None:
    """The leg has ended: the task waits. If an answer came that the leg did not see, it is due at once."""
    if record.fence == fence and record.state == "waiting":
        return
    state = _owned(record, fence, "suspend")
    _leave(record, leaves, now)
    unseen = any(q.answered and key not in leaves.seen for key, q in record.questions.items())
    record.state = "queued" if unseen else state
    record.due = now if unseen else leaves.wake
    record.losses = 0


def _leave(record: TaskRecord, leaves: Suspension, now: float) -> None:
    before = record.status, record.message, len(record.open_questions())
    for key in (*leaves.read, *leaves.withdrawn):
        record.questions.pop(key, None)
    for question in leaves.asked:
        if record.asked.get(question.name, 0) < question.attempt:
            record.asked[question.name] = question.attempt
            record.questions[question.key] = question
    if leaves.message is not None:
        record.message = leaves.message
    if (record.status, record.message, len(record.open_questions())) != before:
        record.updated = now


def release(record: TaskRecord, fence: int, *, now: float, after: float = 0.0) -> None:
    """Hand the task over: any worker may claim it now, or after a while."""
    record.state = _owned(record, fence, "release")
    record.due = now + after
    if record.state != "queued":
        record.losses -= 1  # Its claim will count one, although nobody is lost.


def finish(record: TaskRecord, fence: int, ending: Ending, *, now: float, message: str | None = None) -> None:
    """The handler has ended."""
    after: State = "completed" if ending.error is None else "failed"
    if record.fence == fence and record.state == after:
        return
    record.state = _owned(record, fence, "complete" if ending.error is None else "fail")
    record.result, record.error, record.tool_failed = ending.result, ending.error, ending.tool_failed
    record.message = message
    _close(record, now)


def stop(record: TaskRecord, fence: int, *, now: float, lease: float, tidy: bool) -> None:
    """The handler has stopped as it had to; where there is a clean-up, its runner keeps the claim."""
    if record.fence == fence and record.state in ("tidying", "cancelled", "failed"):
        return
    record.state = _owned(record, fence, "stop")
    if record.state == "tidying":
        _close(record, now)  # One whose time was over is closed since then.
    if tidy:
        record.due = now + lease
    else:
        record.state, record.due = move(record.state, "tidied"), None


def give_up(
    record: TaskRecord, fence: int, error: bytes, *, now: float, lease: float, tidy: bool, message: str
) -> None:
    """Too many workers were lost with it; where there is a clean-up, its runner keeps the claim."""
    if record.fence == fence and record.state in ("failing", "failed"):
        return
    record.state = _owned(record, fence, "give_up")
    record.error, record.message = error, message
    _close(record, now)
    if tidy:
        record.due = now + lease
    else:
        record.state = move(record.state, "tidied")


def tidied(record: TaskRecord, fence: int) -> None:
    """The clean-up after a cancellation, an expiry or too many lost workers is done."""
    if record.fence == fence and record.state in ("cancelled", "failed"):
        return
    record.state = _owned(record, fence, "tidied")
    record.due = None


def answer(record: TaskRecord, responses: Mapping[str, Any], *, now: float) -> tuple[str, ...]:
    """Keep the answers to open questions; the keys of those that were. All others are ignored."""
    if record.final or record.state == "stopping":
        return ()
    kept = tuple(key for key in responses if key in record.questions and not record.questions[key].answered)
    if kept:
        for key in kept:
            record.questions[key].answered = True
            record.questions[key].response = responses[key]
        before = record.state
        record.state = move(before, "answer")
        if before == "waiting":
            record.due = now
        record.updated = now
    return kept


def wake(record: TaskRecord, fence: int, *, now: float) -> None:
    """Let a task that waits go on now. `fence` is that of the row for which `woken` was worked out."""
    record.state = _owned(record, fence, "wake")
    record.due = record.updated = now


def woken(entries: Mapping[str, Entry], *, now: float) -> dict[str, Entry]:
    """What the journal of a task gets that is woken: its sleeps are over, and no try has to wait."""
    added: dict[str, Entry] = {}
    for key, entry in entries.items():
        if key.startswith(_SLEEPS_UNTIL):
            name = key.removeprefix(_SLEEPS_UNTIL)
            slept = f"z:{name[1:]}" if name.startswith(":") else f"z:sleep{name}"
            if slept not in entries:
                added[slept] = Entry("slept", "", None, UNKNOWN_BRANCH)
        elif entry.kind == "again" and entry.value[1] > now:
            added[key] = Entry("again", entry.digest, [entry.value[0], now], entry.branch)
    return added


def cancel(record: TaskRecord, *, now: float, tidy: bool, message: str | None = None) -> bool:
    """Ask for the task to be cancelled; False if it had ended before. `tidy`: it has a clean-up to run."""
    if record.final:
        return False
    record.state = move(record.state, "cancel")
    if message is not None:
        record.message = message
    if record.state == "tidying":
        _close(record, now)
        record.due = now
        if not tidy:
            record.state, record.due = move(record.state, "tidied"), None
    return True


def expire(record: TaskRecord, error: bytes, *, now: float, message: str) -> bool:
    """The time to live is over; False if that changes nothing.

    A worker that runs the handler keeps its claim: it waits for the running steps, commits them, cleans up.
    Otherwise any worker cleans up. If there is no clean-up, it says so.
    """
    if record.final or record.expires is None or record.expires > now:
        return False
    before, due = record.state, record.due
    record.state = move(before, "expire")
    record.error, record.message, record.expired = error, message, True
    _close(record, now)
    record.due = due if before in ("running", "stopping") else now
    return True


def _close(record: TaskRecord, now: float) -> None:
    record.questions, record.asked = {}, {}
    record.losses = 0
    record.due = None
    record.updated = now


def _owned(record: TaskRecord, fence: int, what: Move) -> State:
    if record.fence != fence:
        raise LostClaim(f"task {record.id} was taken over by another worker")
    try:
        return move(record.state, what)
    except IllegalMove as illegal:
        raise LostClaim(f"task {record.id}: {illegal}") from illegal


def unread(record: TaskRecord, known: Iterable[str]) -> dict[str, Any]:
    """Answers beyond those that are known."""
    familiar = frozenset(known)
    return {
        key: question.response
        for key, question in record.questions.items()
        if question.answered and key not in familiar
    }
