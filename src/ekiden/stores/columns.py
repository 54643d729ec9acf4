"""The columns that a store has for a task beside its encoded record, and the groups of states in queries.

A store searches by columns, and some changes write only columns and leave the record as it was. So a
reader takes `LIVE` from the columns, never from the record.
"""

from collections.abc import Sequence
from typing import Any, Final, LiteralString, get_args

from ekiden.tasks.record import TaskRecord, decode_record
from ekiden.tasks.states import FINAL, State
from ekiden.tasks.store import Due

__all__ = [
    "ANY_STATE",
    "DUE",
    "ENDED",
    "FIXED",
    "LEASED",
    "LIVE",
    "OVER",
    "ROW",
    "RUNNING",
    "due_of",
    "live_values",
    "read_row",
    "sql_list",
]

FIXED: Final[tuple[LiteralString, ...]] = (
    *("id", "flow", "audience", "tool", "principal", "created", "expires"),
)
"""Fields with a column that never change."""
LIVE: Final[tuple[LiteralString, ...]] = ("state", "fence", "losses", "due")
"""Fields whose column may be newer than the record."""
ROW: Final[tuple[LiteralString, ...]] = (*FIXED, *LIVE)
"""All fields with a column."""
DUE: Final[tuple[LiteralString, ...]] = ("id", "principal", "due", "state", "fence", "losses")
"""The columns of `Due`, in the order of its fields."""
assert Due.__struct_fields__ == DUE

RUNNING: Final[tuple[LiteralString, ...]] = ("running", "stopping", "failing")
"""States in which a handler may run, and its steps are added to the journal."""
LEASED: Final[tuple[LiteralString, ...]] = (*RUNNING, "tidying")
"""States in which `due` is the end of a worker's lease."""
ENDED: Final[tuple[LiteralString, ...]] = ("completed", "failed", "cancelled", "tidying", "failing")
"""States in which a task does not expire any more: as `TaskRecord.final` says it."""
OVER: Final[tuple[LiteralString, ...]] = ("completed", "failed", "cancelled")
"""States in which nothing is left to do."""
assert frozenset(OVER) == FINAL


ANY_STATE: Final[tuple[State, ...]] = get_args(State)


def sql_list(states: tuple[LiteralString, ...]) -> LiteralString:
    """States for `IN (...)`."""
    return ", ".join([f"'{state}'" for state in states])


def live_values(record: TaskRecord) -> tuple[Any, ...]:
    """The values of `LIVE`."""
    return record.state, record.fence, record.losses, record.due


def read_row(data: bytes, live: Sequence[Any]) -> TaskRecord:
    """A record out of its bytes and the values of `LIVE`."""
    record = decode_record(data)
    record.state, record.fence, record.losses, record.due = live
    return record


def due_of(record: TaskRecord) -> Due:
    """What `TaskStore.due` says of a record."""
    return Due(record.id, record.principal, record.due or 0.0, record.state, record.fence, record.losses)
