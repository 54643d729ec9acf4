"""The schema of a store in Postgres: ours, and that of the queue which wakes workers."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from procrastinate.schema import SchemaManager

from ekiden.errors import UsageError

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
)
"""The statements that lead from each schema version to the next."""

_LOCK: Final = 0x656B6964656E
"""The advisory lock of who migrates."""


async def check(connection: Connection) -> None:
    """Complain if the tables are not those of this version."""
    version = await _version(connection)
    if version < len(_MIGRATIONS):
        raise UsageError(
            "the tables of the store are missing or old: run `ekiden store migrate postgresql://...`"
        )
    if version > len(_MIGRATIONS):
        raise UsageError(f"the store was written by a newer ekiden (schema {version})")


async def migrate(connection: Connection) -> None:
    """Make the tables, ours and the queue's, or bring them up to date."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS ekiden_schema (version integer NOT NULL, queue text NOT NULL)"
    )
    version = await _version(connection)
    if version > len(_MIGRATIONS):
        raise UsageError(f"the store was written by a newer ekiden (schema {version})")
    for script in _MIGRATIONS[version:]:
        await connection.execute(script)
    await _migrate_queue(connection)
    await connection.execute("DELETE FROM ekiden_schema")
    await connection.execute(
        "INSERT INTO ekiden_schema VALUES (%s, %s)", (len(_MIGRATIONS), _queue_version())
    )


async def _version(connection: Connection) -> int:
    row = await (await connection.execute("SELECT to_regclass('ekiden_schema')")).fetchone()
    if row is None or row[0] is None:
        return 0
    row = await (await connection.execute("SELECT version FROM ekiden_schema")).fetchone()
    return 0 if row is None else int(row[0])


def _queue_version() -> str:
    return metadata.version("procrastinate")


async def _migrate_queue(connection: Connection) -> None:
    """The tables of procrastinate: all of them, or what its newer version adds."""
    row = await (await connection.execute("SELECT to_regclass('procrastinate_jobs')")).fetchone()
    if row is None or row[0] is None:
        await connection.execute(SchemaManager.get_schema())
        return
    row = await (await connection.execute("SELECT queue FROM ekiden_schema")).fetchone()
    known = _numbers(row[0] if row is not None else _queue_version())
    for script in _queue_migrations(known):
        await connection.execute(script)


def _queue_migrations(known: tuple[int, ...]) -> list[bytes]:
    scripts = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    return [path.read_bytes() for path in scripts if _numbers(path.name.partition("_")[0]) > known]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
