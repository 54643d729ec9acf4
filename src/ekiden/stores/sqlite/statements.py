"""Every statement that tasks in a SQLite file need. A test holds each of them to an index."""
# ruff: noqa: S608  Statements are put together from the constants of this package only.

from typing import Final

from ekiden.stores import columns
from ekiden.stores.columns import ENDED, LEASED, LIVE, OVER, ROW, RUNNING, sql_list
from ekiden.tasks.states import State
from ekiden.tasks.store import Place

__all__ = [
    "ADD_ENTRY",
    "BY_FLOW",
    "BY_ID",
    "CHANGE",
    "CLAIM",
    "DUE",
    "ENTRIES",
    "EXTEND",
    "EXTENDED",
    "FORGET",
    "FORGET_ENTRIES",
    "HELD",
    "INSERT",
    "NEWEST",
    "NEWEST_OF_PRINCIPAL",
    "NEXT_AUDIENCE",
    "NEXT_DUE",
    "NEXT_PRINCIPAL",
    "NEXT_TOOL",
    "OF_PRINCIPAL",
    "OF_TOOL",
    "OLD",
    "OVERDUE",
    "PROGRESS",
    "SMALL_BY_ID",
    "SMALL_BY_PLACE",
    "USAGE",
    "newest",
]

_LIVE: Final = ", ".join(LIVE)
_SET_LIVE: Final = ", ".join(f"{name} = ?" for name in LIVE)
_DUE: Final = ", ".join(columns.DUE)

# One row

INSERT: Final = f"""
    INSERT INTO tasks ({", ".join(ROW)}, record) VALUES ({"?, " * len(ROW)}?) ON CONFLICT (flow) DO NOTHING
"""
BY_ID: Final = f"SELECT record, {_LIVE} FROM tasks WHERE id = ?"
_SMALL: Final = f"SELECT CASE WHEN length(record) <= ? THEN record END, {_LIVE}, rowid FROM tasks WHERE"
"""The record only if it is small: SQLite knows how long a blob is without reading it."""
SMALL_BY_ID: Final = f"{_SMALL} id = ?"
SMALL_BY_PLACE: Final = f"{_SMALL} rowid = ? AND id = ?"
"""Without the index of ids, which is as deep as the table. Only `VACUUM` moves a row to another place."""
BY_FLOW: Final = f"SELECT record, {_LIVE} FROM tasks WHERE flow = ?"
CHANGE: Final = f"UPDATE tasks SET {_SET_LIVE}, record = ? WHERE id = ?"
CLAIM: Final = f"UPDATE tasks SET {_SET_LIVE} WHERE id = ?"
_LEASED: Final = f"""
    state IN ({sql_list(LEASED)})
    AND (id, fence) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
"""
EXTEND: Final = f"UPDATE tasks SET due = ? WHERE {_LEASED}"
EXTENDED: Final = f"SELECT json_group_array(id) FROM tasks WHERE {_LEASED}"
"""All tasks at once, as one text: a thread that stands by for a blocked event loop waits after each row."""
HELD: Final = f"SELECT state, losses FROM tasks WHERE id = ? AND fence = ? AND state IN ({sql_list(RUNNING)})"
PROGRESS: Final = "UPDATE tasks SET losses = 0 WHERE id = ?"
FORGET: Final = "DELETE FROM tasks WHERE id = ?"

# Its journal

ADD_ENTRY: Final = "INSERT OR REPLACE INTO task_entries (task_id, key, entry) VALUES (?, ?, ?)"
ENTRIES: Final = "SELECT key, entry FROM task_entries WHERE task_id = ? ORDER BY number"
FORGET_ENTRIES: Final = "DELETE FROM task_entries WHERE task_id = ?"

# Looking for tasks

USAGE: Final = f"""
    SELECT count(*) FILTER (WHERE state NOT IN ({sql_list(ENDED)})), coalesce(sum(length(record)), 0)
    FROM tasks WHERE audience = ? AND principal = ?
"""

DUE: Final = f"""
    SELECT {_DUE} FROM tasks
    WHERE audience = ? AND tool = ? AND due <= ? ORDER BY due LIMIT ?
"""
NEXT_PRINCIPAL: Final = f"""
    SELECT {_DUE} FROM tasks
    WHERE audience = ? AND tool = ? AND principal >= ? AND due IS NOT NULL ORDER BY principal, due LIMIT 1
"""
NEXT_DUE: Final = """
    SELECT due FROM tasks WHERE audience = ? AND tool = ? AND due IS NOT NULL ORDER BY due LIMIT 1
"""
OVERDUE: Final = f"""
    SELECT id FROM tasks WHERE expires <= ? AND state NOT IN ({sql_list(ENDED)})
    ORDER BY expires LIMIT ?
"""
OLD: Final = f"""
    SELECT id FROM tasks WHERE expires < :before AND (
        (state IN ({sql_list(OVER)}) AND (:audience IS NULL OR audience = :audience)) OR expires < :abandoned
    ) ORDER BY expires LIMIT :limit
"""

_PAGE: Final = """
    (created, id) < (:created, :id) AND (:audience IS NULL OR audience = :audience)
    AND (:principal IS NULL OR principal = :principal) AND (:state IS NULL OR state = :state)
    ORDER BY created DESC, id DESC LIMIT :limit
"""
_FOUND: Final = f"SELECT record, {_LIVE} FROM tasks WHERE"
NEWEST: Final = f"{_FOUND} {_PAGE}"
NEWEST_OF_PRINCIPAL: Final = f"{_FOUND} audience = :audience AND principal = :principal AND {_PAGE}"


_PLACE: Final = "(created, id) < (?, ?)"
_ORDER: Final = "ORDER BY created DESC, id DESC LIMIT ?"
OF_TOOL: Final = f"{_FOUND} tool = ? AND state = ? AND {_PLACE} {_ORDER}"
OF_PRINCIPAL: Final = f"{_FOUND} audience = ? AND principal = ? AND {_PLACE} {_ORDER}"
NEXT_TOOL: Final = "SELECT min(tool) FROM tasks WHERE tool > ?"
NEXT_AUDIENCE: Final = "SELECT min(audience) FROM tasks WHERE audience > ?"


def newest(
    audience: str | None, principal: str | None, state: State | None, after: Place | None, limit: int
) -> tuple[str, dict[str, object]]:
    """The statement for a page of tasks, the newest first, that reads the fewest rows; and its values."""
    created, task_id = after or (float("inf"), "")
    values: dict[str, object] = {
        "audience": audience,
        "principal": principal,
        "state": state,
        "created": created,
        "id": task_id,
        "limit": limit,
    }
    return (NEWEST if audience is None or principal is None else NEWEST_OF_PRINCIPAL), values
