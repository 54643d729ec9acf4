"""The schema of a store in Postgres."""

from typing import Any, Final, LiteralString, TypeAlias

import psycopg

from ekiden.errors import UsageError
from ekiden.stores.keys_of_entries import key_to_bytes
from ekiden.tasks.record import decode_record

__all__ = ["Connection", "check", "migrate"]

Connection: TypeAlias = psycopg.AsyncConnection[Any]

_MIGRATIONS: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE ekiden_rounds (
        id text PRIMARY KEY,
        answers text NOT NULL,
        fence bigint NOT NULL,
        leased_until double precision NOT NULL,
        expires double precision NOT NULL,
        outcome bytea
    );
    CREATE TABLE ekiden_round_steps (
        round_id text NOT NULL REFERENCES ekiden_rounds ON DELETE CASCADE,
        key text NOT NULL,
        entry bytea NOT NULL,
        PRIMARY KEY (round_id, key)
    );
    CREATE TABLE ekiden_journals (
        id text PRIMARY KEY,
        data bytea NOT NULL,
        expires double precision NOT NULL
    );
    CREATE INDEX ekiden_rounds_expires ON ekiden_rounds (expires);
    CREATE INDEX ekiden_journals_expires ON ekiden_journals (expires);
    CREATE TABLE ekiden_tasks (
        id text PRIMARY KEY,
        flow text NOT NULL UNIQUE,
        audience text NOT NULL,
        state text NOT NULL,
        fence bigint NOT NULL,
        attempts integer NOT NULL,
        due double precision,
        expires double precision,
        created double precision NOT NULL,
        record bytea NOT NULL
    );
    CREATE INDEX ekiden_tasks_due ON ekiden_tasks (audience, due) WHERE due IS NOT NULL;
    CREATE INDEX ekiden_tasks_expires ON ekiden_tasks (expires) WHERE expires IS NOT NULL;
    CREATE INDEX ekiden_tasks_created ON ekiden_tasks (created);
    CREATE TABLE ekiden_task_entries (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        task_id text NOT NULL REFERENCES ekiden_tasks ON DELETE CASCADE,
        key text NOT NULL,
        entry bytea NOT NULL,
        UNIQUE (task_id, key)
    );
    """,
    """
    ALTER TABLE ekiden_rounds RENAME COLUMN answers TO history;
    ALTER TABLE ekiden_round_steps RENAME TO ekiden_unordered_steps;
    CREATE TABLE ekiden_round_steps (
        number bigint GENERATED ALWAYS AS IDENTITY,
        round_id text NOT NULL REFERENCES ekiden_rounds ON DELETE CASCADE,
        digest bytea NOT NULL,
        key bytea NOT NULL,
        entry bytea NOT NULL,
        UNIQUE (round_id, digest)
    );
    INSERT INTO ekiden_round_steps (round_id, digest, key, entry)
        SELECT round_id, sha256(convert_to(key, 'UTF8')), convert_to(key, 'UTF8'), entry
        FROM ekiden_unordered_steps ORDER BY round_id, key;
    DROP TABLE ekiden_unordered_steps;
    """,
    """
    ALTER TABLE ekiden_tasks RENAME COLUMN attempts TO losses;
    ALTER TABLE ekiden_tasks
        ADD COLUMN version bigint NOT NULL DEFAULT 0,
        ADD COLUMN tool text NOT NULL DEFAULT '',
        ADD COLUMN principal bytea NOT NULL DEFAULT '';
    DROP INDEX ekiden_tasks_due, ekiden_tasks_created;
    CREATE INDEX ekiden_tasks_due ON ekiden_tasks (audience, tool, due) WHERE due IS NOT NULL;
    CREATE INDEX ekiden_tasks_whose_due ON ekiden_tasks (audience, principal, due) WHERE due IS NOT NULL;
    CREATE INDEX ekiden_tasks_newest ON ekiden_tasks (created, id);
    CREATE INDEX ekiden_tasks_mine ON ekiden_tasks (audience, principal, created, id);
    CREATE INDEX ekiden_tasks_overdue ON ekiden_tasks (expires)
        WHERE state NOT IN ('completed', 'failed', 'cancelled', 'tidying', 'failing');
    ALTER TABLE ekiden_task_entries RENAME TO ekiden_text_entries;
    CREATE TABLE ekiden_task_entries (
        number bigint GENERATED ALWAYS AS IDENTITY,
        task_id text NOT NULL,
        digest bytea NOT NULL,
        key bytea NOT NULL,
        entry bytea NOT NULL,
        PRIMARY KEY (task_id, digest)
    );
    INSERT INTO ekiden_task_entries (task_id, digest, key, entry)
        SELECT task_id, sha256(convert_to(key, 'UTF8')), convert_to(key, 'UTF8'), entry
        FROM ekiden_text_entries ORDER BY number;
    DROP TABLE ekiden_text_entries;
    """,
    """
    CREATE TABLE ekiden_sessions (
        key text PRIMARY KEY,
        audience text NOT NULL,
        principal bytea NOT NULL,
        used double precision NOT NULL,
        expires double precision NOT NULL,
        data bytea NOT NULL
    );
    CREATE INDEX ekiden_sessions_unused ON ekiden_sessions (audience, used);
    CREATE INDEX ekiden_sessions_mine ON ekiden_sessions (audience, principal, used);
    CREATE INDEX ekiden_sessions_expires ON ekiden_sessions (expires);
    CREATE TABLE ekiden_questions (
        session text NOT NULL REFERENCES ekiden_sessions ON DELETE CASCADE,
        number bigint NOT NULL,
        expires double precision NOT NULL,
        answer bytea,
        PRIMARY KEY (session, number)
    );
    CREATE INDEX ekiden_questions_expires ON ekiden_questions (expires);
    CREATE TABLE ekiden_streams (
        session text NOT NULL REFERENCES ekiden_sessions ON DELETE CASCADE,
        number bigint NOT NULL,
        owner text NOT NULL,
        leased_until double precision NOT NULL,
        waiting bytea NOT NULL,
        expires double precision,
        PRIMARY KEY (session, number)
    );
    CREATE INDEX ekiden_streams_open ON ekiden_streams (owner) WHERE expires IS NULL;
    CREATE INDEX ekiden_streams_expires ON ekiden_streams (expires) WHERE expires IS NOT NULL;
    CREATE TABLE ekiden_events (
        session text NOT NULL,
        stream bigint NOT NULL,
        number bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (session, stream, number),
        FOREIGN KEY (session, stream) REFERENCES ekiden_streams ON DELETE CASCADE
    );
    """,
    """
    CREATE TABLE ekiden_people (
        id text PRIMARY KEY,
        call text NOT NULL,
        audience text NOT NULL,
        due double precision,
        expires double precision NOT NULL,
        version bigint NOT NULL,
        data bytea NOT NULL
    );
    CREATE INDEX ekiden_people_of_call ON ekiden_people (call);
    CREATE INDEX ekiden_people_due ON ekiden_people (audience, due) WHERE due IS NOT NULL;
    CREATE INDEX ekiden_people_expires ON ekiden_people (expires);
    """,
    """
    CREATE INDEX ekiden_tasks_by_tool ON ekiden_tasks (tool, state, created, id);
    CREATE TABLE ekiden_calls (
        id text PRIMARY KEY,
        audience text NOT NULL,
        method text NOT NULL,
        target bytea NOT NULL,
        principal bytea NOT NULL,
        started double precision NOT NULL,
        updated double precision NOT NULL,
        state text NOT NULL,
        task text NOT NULL,
        size bigint NOT NULL,
        facts bytea NOT NULL
    );
    CREATE INDEX ekiden_calls_newest ON ekiden_calls (started, id);
    CREATE INDEX ekiden_calls_by_state ON ekiden_calls (state, started, id);
    CREATE INDEX ekiden_calls_by_target ON ekiden_calls (target, state, started, id);
    CREATE INDEX ekiden_calls_quiet ON ekiden_calls (updated, size);
    CREATE TABLE ekiden_call_events (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        call_id text NOT NULL,
        data bytea NOT NULL
    );
    CREATE INDEX ekiden_call_events_of_call ON ekiden_call_events (call_id, number);
    CREATE TABLE ekiden_actions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at double precision NOT NULL,
        data bytea NOT NULL
    );
    CREATE INDEX ekiden_actions_newest ON ekiden_actions (at, number);
    """,
)
"""The statements that lead from each schema version to the next."""

_WHOSE: Final = 3
"""The schema version since which tasks have their tool and their principal in columns."""

_LOCK: Final = 0x656B6964656E
"""The advisory lock that is held during a migration."""


async def check(connection: Connection) -> None:
    """`UsageError` if the tables are not those of this version."""
    version = await _version(connection)
    if version < len(_MIGRATIONS):
        raise UsageError(
            "the tables of the store are missing or old: run `ekiden store migrate postgresql://...`"
        )
    if version > len(_MIGRATIONS):
        raise UsageError(f"the store was written by a newer ekiden (schema {version})")


async def migrate(connection: Connection) -> None:
    """Make the tables, or bring them up to date."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await connection.execute("CREATE TABLE IF NOT EXISTS ekiden_schema (version integer NOT NULL)")
    await connection.execute("ALTER TABLE ekiden_schema DROP COLUMN IF EXISTS queue")
    version = await _version(connection)
    if version > len(_MIGRATIONS):
        raise UsageError(f"the store was written by a newer ekiden (schema {version})")
    for script in _MIGRATIONS[version:]:
        await connection.execute(script)
    if 0 < version < _WHOSE:
        await _say_whose(connection)
    await connection.execute("DELETE FROM ekiden_schema")
    await connection.execute("INSERT INTO ekiden_schema VALUES (%s)", (len(_MIGRATIONS),))


async def _say_whose(connection: Connection) -> None:
    """Fill the columns for the tool and the principal of each task out of its record."""
    last = ""
    while True:
        found = await connection.execute(
            "SELECT id, record FROM ekiden_tasks WHERE id > %s ORDER BY id LIMIT 1000", (last,)
        )
        records = [(task_id, decode_record(record)) for task_id, record in await found.fetchall()]
        if not records:
            return
        await connection.cursor().executemany(
            "UPDATE ekiden_tasks SET tool = %s, principal = %s WHERE id = %s",
            [(record.tool, key_to_bytes(record.principal), task_id) for task_id, record in records],
        )
        last = records[-1][0]


async def _version(connection: Connection) -> int:
    row = await (await connection.execute("SELECT to_regclass('ekiden_schema')")).fetchone()
    if row is None or row[0] is None:
        return 0
    row = await (await connection.execute("SELECT version FROM ekiden_schema")).fetchone()
    return 0 if row is None else int(row[0])
