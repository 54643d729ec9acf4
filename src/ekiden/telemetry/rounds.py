"""What happens to calls over their rounds, as metrics."""

from collections.abc import Collection

from ekiden.rounds.outcome import Interim, Outcome, Task
from ekiden.telemetry.metrics import CALL_ROUNDS, REASKS, add, is_metered, of_call, record
from ekiden.telemetry.spans import error_type
from ekiden.wire.modern import Request

__all__ = ["call_ended", "count_reasks"]


def call_ended(request: Request, rounds_before: int, outcome: Outcome) -> None:
    """Record how many rounds a call took, if this outcome ends it or makes it a task."""
    if type(outcome) is Interim or not is_metered():
        return
    attributes = of_call(request.method, request.name)
    if isinstance(outcome, Task):
        attributes["ekiden.call.ended"] = "task"
    else:
        attributes["ekiden.call.ended"] = "completed" if error_type(outcome) is None else "failed"
    record(CALL_ROUNDS, rounds_before + 1, attributes)


def count_reasks(request: Request, asks: Collection[str], asked: Collection[str]) -> None:
    """Count the questions of a round that were asked before, and came back with an answer."""
    if is_metered():
        answered = request.params.get("inputResponses", ())
        again = sum(key in asked and key in answered for key in asks)
        if again:
            add(REASKS, of_call(request.method, request.name), again)
