"""The states of a task and every legal move between them, in one table.

The laws:

1. Every change of a task is a move of this table, made on its row in one transaction.
2. A runner must hold the row's fence to make its moves; every claim gives out a new fence.
3. A final state is never left.
4. A client sees five statuses. A task that is not final is `input_required` while a question of it
   is open, and `working` otherwise, whatever its state.
"""

from typing import Final, Literal, TypeAlias

from ekiden.errors import IllegalMove

__all__ = ["FINAL", "MOVES", "Move", "State", "Status", "move"]

State: TypeAlias = Literal[
    "queued", "running", "waiting", "stopping", "tidying", "failing", "completed", "failed", "cancelled"
]
"""`queued` is due now or at its time; `waiting` for an answer or a timer; `stopping` is running although
its cancellation was asked for; `tidying` is cancelled, and its clean-up is still to be run; `failing` is
failed because its time was over or it was given up, and its clean-up is still to be run. If its time was over
while it ran, its handler is stopped before."""

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""What a client sees (SEP-2663, Task Status)."""

Move: TypeAlias = Literal[
    "claim",
    "survive",
    "publish",
    "suspend",
    "release",
    "answer",
    "complete",
    "fail",
    "cancel",
    "stop",
    "give_up",
    "tidied",
    "expire",
    "wake",
]

FINAL: Final[frozenset[State]] = frozenset({"completed", "failed", "cancelled"})

MOVES: Final[dict[tuple[State, Move], State]] = {
    # A worker takes it: because it is due, or because the last one's lease has lapsed.
    ("queued", "claim"): "running",
    ("waiting", "claim"): "running",
    ("running", "claim"): "running",
    # The worker that it was taken from lives after all: the task did not end it.
    ("queued", "survive"): "queued",
    ("running", "survive"): "running",
    ("waiting", "survive"): "waiting",
    ("stopping", "survive"): "stopping",
    ("tidying", "survive"): "tidying",
    ("failing", "survive"): "failing",
    # Its runner goes on with it.
    ("running", "publish"): "running",
    ("stopping", "publish"): "stopping",
    ("running", "suspend"): "waiting",
    ("running", "release"): "queued",
    ("stopping", "release"): "stopping",
    ("tidying", "release"): "tidying",
    ("failing", "release"): "failing",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    # A client answers.
    ("waiting", "answer"): "queued",
    ("queued", "answer"): "queued",
    ("running", "answer"): "running",
    # An operator does not want to wait for its time.
    ("waiting", "wake"): "queued",
    # A client cancels. What waits is cancelled at once; a running handler is told.
    ("queued", "cancel"): "tidying",
    ("waiting", "cancel"): "tidying",
    ("running", "cancel"): "stopping",
    ("stopping", "cancel"): "stopping",
    ("stopping", "complete"): "completed",
    ("stopping", "fail"): "failed",
    ("stopping", "stop"): "tidying",
    # The worker that should have stopped it is gone: there is nothing left to stop.
    ("stopping", "claim"): "tidying",
    ("tidying", "claim"): "tidying",
    ("tidying", "tidied"): "cancelled",
    # Its time is over, or it has lost too many workers. Whoever runs it keeps the claim, and stops it.
    ("queued", "expire"): "failing",
    ("running", "expire"): "failing",
    ("waiting", "expire"): "failing",
    ("stopping", "expire"): "failing",
    ("running", "give_up"): "failing",
    ("failing", "stop"): "failing",
    ("failing", "claim"): "failing",
    ("failing", "tidied"): "failed",
}


def move(state: State, what: Move) -> State:
    """The state after a move."""
    try:
        return MOVES[state, what]
    except KeyError:
        raise IllegalMove(state, what) from None
