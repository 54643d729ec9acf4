"""The schema of a store in a SQLite file."""

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

__all__ = ["FILLS", "MIGRATIONS"]

MIGRATIONS: Final = (
    """
    CREATE TABLE IF NOT EXISTS rounds (
        id TEXT PRIMARY KEY,
        answers TEXT NOT NULL,
        fence INTEGER NOT NULL,
        leased_until REAL NOT NULL,
        expires REAL NOT NULL,
        outcome BLOB
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS round_steps (
        round_id TEXT NOT NULL,
        key TEXT NOT NULL,
        entry BLOB NOT NULL,
        PRIMARY KEY (round_id, key)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS journals (
        id TEXT PRIMARY KEY,
        data BLOB NOT NULL,
        expires REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS rounds_expires ON rounds (expires);
    CREATE INDEX IF NOT EXISTS journals_expires ON journals (expires);
    """,
    """
    CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        flow TEXT NOT NULL UNIQUE,
        audience TEXT NOT NULL,
        state TEXT NOT NULL,
        fence INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        due REAL,
        expires REAL,
        created REAL NOT NULL,
        record BLOB NOT NULL
    );
    CREATE INDEX tasks_due ON tasks (audience, due) WHERE due IS NOT NULL;
    CREATE INDEX tasks_expires ON tasks (expires) WHERE expires IS NOT NULL;
    CREATE INDEX tasks_created ON tasks (created);
    CREATE TABLE task_entries (
        number INTEGER PRIMARY KEY,
        task_id TEXT NOT NULL,
        key TEXT NOT NULL,
        entry BLOB NOT NULL,
        UNIQUE (task_id, key)
    );
    """,
    """
    ALTER TABLE rounds RENAME COLUMN answers TO history;
    ALTER TABLE round_steps RENAME TO unordered_steps;
    CREATE TABLE round_steps (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        round_id TEXT NOT NULL,
        key BLOB NOT NULL,
        entry BLOB NOT NULL,
        UNIQUE (round_id, key)
    );
    INSERT INTO round_steps (round_id, key, entry)
        SELECT round_id, CAST(key AS BLOB), entry FROM unordered_steps ORDER BY round_id, key;
    DROP TABLE unordered_steps;
    """,
    """
    ALTER TABLE tasks RENAME COLUMN attempts TO losses;
    UPDATE tasks SET losses = max(losses - 1, 0);
    ALTER TABLE tasks ADD COLUMN tool TEXT NOT NULL DEFAULT '';
    ALTER TABLE tasks ADD COLUMN principal TEXT NOT NULL DEFAULT '';
    DROP INDEX tasks_due;
    DROP INDEX tasks_created;
    CREATE INDEX tasks_due ON tasks (audience, tool, due) WHERE due IS NOT NULL;
    CREATE INDEX tasks_due_by_principal ON tasks (audience, tool, principal, due) WHERE due IS NOT NULL;
    CREATE INDEX tasks_open ON tasks (expires)
        WHERE state NOT IN ('completed', 'failed', 'cancelled', 'tidying', 'failing');
    CREATE INDEX tasks_created ON tasks (created, id);
    CREATE INDEX tasks_created_by_principal ON tasks (audience, principal, created, id);
    """,
    """
    CREATE TABLE sessions (
        key TEXT PRIMARY KEY,
        audience TEXT NOT NULL,
        principal TEXT NOT NULL,
        used REAL NOT NULL,
        expires REAL NOT NULL,
        data BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX sessions_unused ON sessions (audience, used);
    CREATE INDEX sessions_mine ON sessions (audience, principal, used);
    CREATE INDEX sessions_expires ON sessions (expires);
    CREATE TABLE questions (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        expires REAL NOT NULL,
        answer BLOB,
        PRIMARY KEY (session, number)
    ) WITHOUT ROWID;
    CREATE INDEX questions_expires ON questions (expires);
    CREATE TABLE streams (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        owner TEXT NOT NULL,
        leased_until REAL NOT NULL,
        waiting BLOB NOT NULL,
        expires REAL,
        PRIMARY KEY (session, number)
    ) WITHOUT ROWID;
    CREATE INDEX streams_open ON streams (owner) WHERE expires IS NULL;
    CREATE INDEX streams_expires ON streams (expires) WHERE expires IS NOT NULL;
    CREATE TABLE events (
        session TEXT NOT NULL,
        stream INTEGER NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (session, stream, number)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE people (
        id TEXT PRIMARY KEY,
        call TEXT NOT NULL,
        audience TEXT NOT NULL,
        due REAL,
        expires REAL NOT NULL,
        version INTEGER NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX people_of_call ON people (call);
    CREATE INDEX people_due ON people (audience, due) WHERE due IS NOT NULL;
    CREATE INDEX people_expires ON people (expires);
    """,
    """
    CREATE INDEX tasks_by_tool ON tasks (tool, state, created, id);
    CREATE TABLE calls (
        id TEXT PRIMARY KEY,
        audience TEXT NOT NULL,
        method TEXT NOT NULL,
        target TEXT NOT NULL,
        principal TEXT NOT NULL,
        started REAL NOT NULL,
        updated REAL NOT NULL,
        state TEXT NOT NULL,
        task TEXT NOT NULL,
        size INTEGER NOT NULL,
        facts BLOB NOT NULL
    );
    CREATE INDEX calls_newest ON calls (started, id);
    CREATE INDEX calls_by_state ON calls (state, started, id);
    CREATE INDEX calls_by_target ON calls (target, state, started, id);
    CREATE INDEX calls_quiet ON calls (updated, size);
    CREATE TABLE call_events (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        call_id TEXT NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX call_events_of_call ON call_events (call_id, number);
    CREATE TABLE actions (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX actions_newest ON actions (at, number);
    """,
)
"""The statements that lead from each schema version to the next."""


class _Owned(msgspec.Struct):
    """What of a stored record got columns of its own; everything else in it is skipped."""

    tool: str
    principal: str


def _fill_tool_and_principal(connection: sqlite3.Connection) -> None:
    decode = msgspec.msgpack.Decoder(_Owned).decode
    last = -1
    # A few at a time: a file may hold more than fits into memory.
    while rows := connection.execute(
        "SELECT rowid, record FROM tasks WHERE rowid > ? ORDER BY rowid LIMIT 100", (last,)
    ).fetchall():
        last = rows[-1][0]
        owned = [(decode(record), rowid) for rowid, record in rows]
        connection.executemany(
            "UPDATE tasks SET tool = ?, principal = ? WHERE rowid = ?",
            [(each.tool, each.principal, rowid) for each, rowid in owned],
        )


FILLS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {4: _fill_tool_and_principal}
"""What is done after the statements that lead to a version, in the same transaction: SQL reads no records."""
