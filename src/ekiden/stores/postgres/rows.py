"""The statements for tasks. Each is one transaction by itself, for as many rows as its arrays name.

A worker that is frozen at any point leaves no transaction open, and so blocks no other. A row is read,
changed in this process, and written only if its version is still the one that was read. Rows that another
connection is writing are skipped instead of waited for; the caller reads a skipped row again.
"""
# ruff: noqa: S608  Statements are put together from the constants of this package only.

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, LiteralString

import msgspec

from ekiden.rounds.journal import Entry
from ekiden.stores import columns
from ekiden.stores.columns import ENDED, LEASED, LIVE, OVER, ROW, RUNNING, read_row, sql_list
from ekiden.stores.keys_of_entries import key_digest, key_from_bytes, key_to_bytes
from ekiden.stores.large_rows import SMALL
from ekiden.tasks.record import TaskRecord, encode_record
from ekiden.tasks.store import Due, Signal

__all__ = [
    "APPEND",
    "AUDIENCES",
    "BY_FLOW",
    "BY_ID",
    "CHANGE",
    "DUE",
    "ENTRIES",
    "EXTEND",
    "FORGET",
    "HELD",
    "INSERT",
    "NEWEST",
    "NEXT_DUE",
    "OTHERS_DUE",
    "OVERDUE",
    "SEARCH",
    "SMALL_BY_ID",
    "TOOLS",
    "USAGE",
    "Append",
    "Write",
    "due_of",
    "entries_by_task",
    "entry_columns",
    "record_of",
    "row_columns",
]

_TYPES: Final[dict[str, LiteralString]] = {
    "id": "text",
    "flow": "text",
    "audience": "text",
    "tool": "text",
    "principal": "bytea",
    "created": "float8",
    "state": "text",
    "fence": "bigint",
    "losses": "bigint",
    "due": "float8",
    "expires": "float8",
    "record": "bytea",
    "version": "bigint",
}


def _arrays(names: tuple[LiteralString, ...]) -> LiteralString:
    """Columns as the arguments of `unnest`."""
    return ", ".join([f"%({name})b::{_TYPES[name]}[]" for name in names])


_INSERTED: Final = (*ROW, "record")
_CHANGED: Final = (*LIVE, "record")
"""What a change writes. Nothing else of a row ever changes, but its version."""

_LIVE: Final[LiteralString] = f"version, {', '.join(LIVE)}"
_COLUMNS: Final[LiteralString] = f"record, {_LIVE}"

BY_ID: Final[LiteralString] = f"SELECT {_COLUMNS}, id FROM ekiden_tasks WHERE id = ANY(%s)"
_SMALL: Final[LiteralString] = f"CASE WHEN octet_length(record) <= 65536 THEN record END, {_LIVE}, id"
"""The record only if it is small."""
assert SMALL == 65536
SMALL_BY_ID: Final[LiteralString] = f"SELECT {_SMALL} FROM ekiden_tasks WHERE id = ANY(%s)"
BY_FLOW: Final[LiteralString] = f"SELECT {_COLUMNS}, flow FROM ekiden_tasks WHERE flow = ANY(%s)"
ENTRIES: Final[LiteralString] = (
    "SELECT task_id, key, entry FROM ekiden_task_entries WHERE task_id = ANY(%s) ORDER BY number"
)

_NEW_ENTRIES: Final[LiteralString] = """
    SELECT task_id, digest, key, entry
    FROM unnest(%(entry_task)b::text[], %(entry_digest)b::bytea[], %(entry_key)b::bytea[], %(entry)b::bytea[])
        WITH ORDINALITY AS new(task_id, digest, key, entry, place)
"""
_TELL: Final[LiteralString] = """
    (SELECT count(pg_notify('ekiden_tasks', payload)) FROM unnest(%(news)b::text[]) AS payload)
"""

INSERT: Final[LiteralString] = f"""
    WITH made AS (
        INSERT INTO ekiden_tasks ({", ".join(_INSERTED)}) SELECT * FROM unnest({_arrays(_INSERTED)})
        ON CONFLICT (flow) DO NOTHING RETURNING id
    ), added AS (
        INSERT INTO ekiden_task_entries (task_id, digest, key, entry)
        {_NEW_ENTRIES} WHERE task_id IN (SELECT id FROM made) ORDER BY place
    )
    SELECT array(SELECT id FROM made), {_TELL}
"""

CHANGE: Final[LiteralString] = f"""
    WITH wanted AS (
        SELECT * FROM unnest({_arrays(("id", "version", *_CHANGED))})
            AS wanted(id, version, {", ".join(_CHANGED)})
    ), ours AS (
        SELECT task.id FROM wanted JOIN ekiden_tasks AS task USING (id)
        WHERE task.version = wanted.version FOR NO KEY UPDATE OF task SKIP LOCKED
    ), changed AS (
        UPDATE ekiden_tasks AS task
        SET version = wanted.version + 1, {", ".join([f"{name} = wanted.{name}" for name in _CHANGED])}
        FROM wanted WHERE task.id = wanted.id AND task.id IN (SELECT id FROM ours) RETURNING task.id
    ), added AS (
        INSERT INTO ekiden_task_entries (task_id, digest, key, entry)
        {_NEW_ENTRIES} WHERE task_id IN (SELECT id FROM changed) ORDER BY place
        ON CONFLICT (task_id, digest) DO UPDATE SET entry = EXCLUDED.entry, number = DEFAULT
    )
    SELECT array(SELECT id FROM changed), {_TELL}
"""

APPEND: Final[LiteralString] = f"""
    WITH ours AS (
        SELECT task.id, task.state, task.losses
        FROM unnest(%(id)b::text[], %(fence)b::bigint[]) AS wanted(id, fence)
            JOIN ekiden_tasks AS task USING (id)
        WHERE task.fence = wanted.fence AND task.state IN ({sql_list(RUNNING)})
        FOR NO KEY UPDATE OF task SKIP LOCKED
    ), progress AS (
        UPDATE ekiden_tasks SET losses = 0, version = version + 1
        WHERE id IN (SELECT id FROM ours WHERE losses > 0)
    ), added AS (
        INSERT INTO ekiden_task_entries (task_id, digest, key, entry)
        {_NEW_ENTRIES} WHERE task_id IN (SELECT id FROM ours) ORDER BY place
        ON CONFLICT (task_id, digest) DO UPDATE SET entry = EXCLUDED.entry, number = DEFAULT
    )
    SELECT id, state FROM ours
"""

_MINE: Final[LiteralString] = f"""
    FROM unnest(%(id)b::text[], %(fence)b::bigint[]) AS wanted(id, fence) JOIN ekiden_tasks AS task USING (id)
    WHERE task.fence = wanted.fence AND task.state IN ({sql_list(LEASED)})
"""
HELD: Final[LiteralString] = f"SELECT task.id {_MINE}"
EXTEND: Final[LiteralString] = f"""
    WITH ours AS (SELECT task.id {_MINE} FOR NO KEY UPDATE OF task SKIP LOCKED)
    UPDATE ekiden_tasks SET due = %(until)s, version = version + 1
    WHERE id IN (SELECT id FROM ours) RETURNING id
"""

_DUE: Final[LiteralString] = ", ".join([f"task.{name}" for name in columns.DUE])
DUE: Final[LiteralString] = f"""
    SELECT found.* FROM unnest(%(tools)s::text[]) AS known(tool) CROSS JOIN LATERAL (
        SELECT {_DUE} FROM ekiden_tasks AS task
        WHERE task.audience = %(audience)s AND task.tool = known.tool AND task.due <= %(now)s
        ORDER BY task.due LIMIT %(limit)s
    ) AS found ORDER BY found.due LIMIT %(limit)s
"""
OTHERS_DUE: Final[LiteralString] = f"""
    WITH RECURSIVE whose AS (
        (SELECT principal FROM ekiden_tasks
         WHERE audience = %(audience)s AND due IS NOT NULL AND principal >= %(start)s
         ORDER BY principal LIMIT 1)
        UNION ALL
        SELECT (SELECT principal FROM ekiden_tasks AS task
                WHERE task.audience = %(audience)s AND task.due IS NOT NULL
                    AND task.principal > whose.principal
                ORDER BY task.principal LIMIT 1)
        FROM whose WHERE whose.principal IS NOT NULL
    )
    SELECT found.*, whose.principal
    FROM (SELECT principal FROM whose WHERE principal IS NOT NULL LIMIT %(most)s) AS whose
    LEFT JOIN LATERAL (
        SELECT {_DUE} FROM ekiden_tasks AS task
        WHERE task.audience = %(audience)s AND task.principal = whose.principal AND task.due <= %(now)s
            AND task.tool = ANY(%(tools)s)
        ORDER BY task.due LIMIT 1
    ) AS found ON true ORDER BY whose.principal
"""
NEXT_DUE: Final[LiteralString] = """
    SELECT min(found.due) FROM unnest(%(tools)s::text[]) AS known(tool) CROSS JOIN LATERAL (
        SELECT task.due FROM ekiden_tasks AS task
        WHERE task.audience = %(audience)s AND task.tool = known.tool AND task.due IS NOT NULL
        ORDER BY task.due LIMIT 1
    ) AS found
"""
OVERDUE: Final[LiteralString] = f"""
    SELECT id FROM ekiden_tasks
    WHERE expires <= %s AND state NOT IN ({sql_list(ENDED)})
    ORDER BY expires LIMIT %s
"""
FORGET: Final[LiteralString] = f"""
    WITH old AS (
        SELECT id FROM ekiden_tasks WHERE expires < %(before)s AND (
            (state IN ({sql_list(OVER)}) AND (%(audience)s::text IS NULL OR audience = %(audience)s))
            OR expires < %(abandoned)s
        ) ORDER BY expires LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), emptied AS (
        DELETE FROM ekiden_task_entries WHERE task_id IN (SELECT id FROM old)
    )
    DELETE FROM ekiden_tasks WHERE id IN (SELECT id FROM old)
"""
_NEWEST: Final[LiteralString] = f"SELECT {_SMALL} FROM ekiden_tasks"
NEWEST: Final[dict[str, LiteralString]] = {
    "all": f"""{_NEWEST} WHERE (created, id) < (%(created)s, %(id)s)
        AND (%(audience)s::text IS NULL OR audience = %(audience)s)
        AND (%(principal)s::bytea IS NULL OR principal = %(principal)s)
        AND (%(state)s::text IS NULL OR state = %(state)s)
        ORDER BY created DESC, id DESC LIMIT %(limit)s""",
    "mine": f"""{_NEWEST} WHERE audience = %(audience)s AND principal = %(principal)s
        AND (created, id) < (%(created)s, %(id)s)
        AND (%(state)s::text IS NULL OR state = %(state)s)
        ORDER BY created DESC, id DESC LIMIT %(limit)s""",
}
"""Tasks from a place on, the newest first: everybody's, or those of one principal of one audience."""

SEARCH: Final[LiteralString] = f"""
    SELECT found.* FROM unnest(%(tools)s::text[]) AS known(tool)
    CROSS JOIN unnest(%(states)s::text[]) AS wanted(state) CROSS JOIN LATERAL (
        SELECT {_SMALL}, task.created FROM ekiden_tasks AS task
        WHERE task.tool = known.tool AND task.state = wanted.state
            AND (task.created, task.id) < (%(created)s, %(id)s)
        ORDER BY task.created DESC, task.id DESC LIMIT %(limit)s
    ) AS found ORDER BY found.created DESC, found.id DESC LIMIT %(limit)s
"""
TOOLS: Final[LiteralString] = """
    WITH RECURSIVE known AS (
        (SELECT tool FROM ekiden_tasks ORDER BY tool LIMIT 1)
        UNION ALL
        SELECT (SELECT task.tool FROM ekiden_tasks AS task WHERE task.tool > known.tool
                ORDER BY task.tool LIMIT 1)
        FROM known WHERE known.tool IS NOT NULL
    )
    SELECT tool FROM known WHERE tool IS NOT NULL
"""
AUDIENCES: Final[LiteralString] = """
    WITH RECURSIVE known AS (
        (SELECT audience FROM ekiden_tasks ORDER BY audience LIMIT 1)
        UNION ALL
        SELECT (SELECT task.audience FROM ekiden_tasks AS task WHERE task.audience > known.audience
                ORDER BY task.audience LIMIT 1)
        FROM known WHERE known.audience IS NOT NULL
    )
    SELECT audience FROM known WHERE audience IS NOT NULL
"""

USAGE: Final[LiteralString] = f"""
    SELECT count(*) FILTER (WHERE state NOT IN ({sql_list(ENDED)})), coalesce(sum(octet_length(record)), 0)
    FROM ekiden_tasks WHERE audience = %s AND principal = %s
"""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Entry).decode


def record_of(row: Sequence[Any]) -> TaskRecord:
    """A row as a record."""
    record = read_row(row[0], row[2:6])
    record.version = row[1]
    return record


class Write:
    """A row to be written, with the version that was read and the new entries of its journal."""

    __slots__ = ("data", "entries", "record", "signal", "size")

    def __init__(self, record: TaskRecord, entries: Mapping[str, Entry], signal: Signal | None) -> None:
        self.record = record
        self.data = encode_record(record)
        self.entries = [(record.id, key_to_bytes(key), _pack(entry)) for key, entry in entries.items()]
        self.signal = signal
        """What watchers are told; None if they need not be."""
        self.size = len(self.data) + sum(len(entry) for _, _, entry in self.entries)


def row_columns(writes: Sequence[Write]) -> dict[str, Any]:
    """Rows and entries as the arrays of a statement."""
    records = [write.record for write in writes]
    fields = {name: [_adapted(name, getattr(record, name)) for record in records] for name in ROW}
    return {
        **fields,
        "version": [record.version for record in records],
        "record": [write.data for write in writes],
        **entry_columns(entry for write in writes for entry in write.entries),
    }


def _adapted(name: str, value: Any) -> Any:
    """A value as the column has it: an array takes numbers of one kind only, and text without zeros."""
    if _TYPES[name] == "bytea":
        return key_to_bytes(value)
    return float(value) if _TYPES[name] == "float8" and value is not None else value


def entry_columns(entries: Iterable[tuple[str, bytes, bytes]]) -> dict[str, list[Any]]:
    """Entries, each with the id of its task and its key, as the arrays of a statement."""
    rows = list(entries)
    return {
        "entry_task": [task_id for task_id, _, _ in rows],
        "entry_digest": [key_digest(key) for _, key, _ in rows],
        "entry_key": [key for _, key, _ in rows],
        "entry": [entry for _, _, entry in rows],
    }


class Append:
    """Entries for the journal of a task that is held with a fence."""

    __slots__ = ("entries", "fence", "size", "task_id")

    def __init__(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> None:
        self.task_id = task_id
        self.fence = fence
        self.entries = [(task_id, key_to_bytes(key), _pack(entry)) for key, entry in entries.items()]
        self.size = sum(len(entry) for _, _, entry in self.entries)


def entries_by_task(rows: Iterable[Any]) -> dict[str, dict[str, Entry]]:
    """Journals, each in the order in which it was written."""
    found: dict[str, dict[str, Entry]] = {}
    for task_id, key, entry in rows:
        found.setdefault(task_id, {})[key_from_bytes(key)] = _unpack(entry)
    return found


def due_of(row: Sequence[Any]) -> Due:
    """A row of `DUE`."""
    return Due(row[0], key_from_bytes(row[1]), *row[2:6])
