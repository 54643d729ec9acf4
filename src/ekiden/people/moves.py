"""What may be done to a question: functions without I/O or a clock. Each is one conditional write of a store.

A move changes the record that it is given and returns True, or returns False and leaves it as it was.
`pass_time` returns what has happened instead, or None. `due_at` changes nothing.
"""

from typing import Any, Final, Literal, TypeAlias

from ekiden.people.record import Inquiry

__all__ = ["AGAIN_SECONDS", "NOBODY", "Happening", "add_link", "answer", "due_at", "pass_time", "withdraw"]

NOBODY: Final = "nobody, in time"
"""Who has answered a question that its deadline has answered."""

_MOST_LINKS: Final = 8
"""Links of one question that are good at the same time. The oldest is forgotten first."""

AGAIN_SECONDS: Final = 30.0
"""After how long another process tells a person, if the one that wanted to has died or failed."""

Happening: TypeAlias = Literal["tell", "ended"]


def answer(inquiry: Inquiry, given: dict[str, Any], *, by: str, now: float, turn: int | None = None) -> bool:
    """Take an answer. There is only one: whoever comes later is told so, and whose `turn` is over, too."""
    if inquiry.state != "open" or turn not in (None, inquiry.turn):
        return False
    inquiry.state, inquiry.answer = "answered", given
    inquiry.answered_by, inquiry.answered = by, now
    inquiry.links = []
    inquiry.newest = ""
    return True


def withdraw(inquiry: Inquiry) -> bool:
    """Nobody waits for the answer any more."""
    if inquiry.state != "open":
        return False
    inquiry.state, inquiry.links, inquiry.newest = "withdrawn", [], ""
    return True


def add_link(inquiry: Inquiry, hashed: str, sealed: str) -> bool:
    """Let one more link open the question."""
    if inquiry.state != "open":
        return False
    inquiry.links = [*inquiry.links, hashed][-_MOST_LINKS:]
    inquiry.newest = sealed
    return True


def due_at(inquiry: Inquiry) -> float | None:
    """When somebody must look at it: to tell a person or a task, to remind, to go to the next, to end it."""
    if inquiry.state == "answered":
        return inquiry.answered if inquiry.task is not None and not inquiry.delivered else None
    if inquiry.state == "withdrawn":
        return None
    ends = None if inquiry.deadline is None else inquiry.since + inquiry.deadline
    reminder = None if inquiry.remind is None else inquiry.since + inquiry.remind * (inquiry.reminded + 1)
    times = [time for time in (ends, reminder, inquiry.untold_until) if time is not None]
    return min(times, default=None)


def pass_time(inquiry: Inquiry, *, now: float) -> Happening | None:
    """What is due by now. Of several reminders that were missed, one is sent."""
    if inquiry.state != "open":
        return None
    if inquiry.deadline is not None and inquiry.since + inquiry.deadline <= now:
        if inquiry.turn + 1 < len(inquiry.persons):
            inquiry.turn += 1
            inquiry.since, inquiry.reminded, inquiry.links, inquiry.newest = now, 0, [], ""
            inquiry.untold_until = now + AGAIN_SECONDS
            return "tell"
        given: dict[str, Any] = {"action": "decline"}
        if inquiry.default is not None:
            given = {"action": "accept", "content": inquiry.default}
        answer(inquiry, given, by=NOBODY, now=now)
        return "ended"
    if inquiry.remind is not None and inquiry.since + inquiry.remind * (inquiry.reminded + 1) <= now:
        inquiry.reminded = int((now - inquiry.since) // inquiry.remind)
        inquiry.untold_until = now + AGAIN_SECONDS
        return "tell"
    if inquiry.untold_until is not None and inquiry.untold_until <= now:
        inquiry.untold_until = now + AGAIN_SECONDS
        return "tell"
    return None
