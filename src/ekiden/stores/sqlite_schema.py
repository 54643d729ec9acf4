"""The schema of a store in a SQLite file."""

from typing import Final

__all__ = ["MIGRATIONS"]

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
)
"""The statements that lead from each schema version to the next."""
