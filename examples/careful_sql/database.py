"""What the tools do with the database: look, try a change and take it back, make a change once."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from ekiden import Context, ToolError

CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "DROP", "ALTER", "CREATE"})
SHOWN: Final = 3
MOST_ROWS: Final = 200

BOUNDS: Final = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
}
"""Nothing runs for longer than ten seconds, or waits for a lock for longer than two."""

Connection = psycopg.AsyncConnection[dict[str, Any]]


class Effect(BaseModel):
    """What a change does, or would do."""

    command: str
    rows: int | None
    """How many rows it touches; None for changes of the schema, which do not say."""
    shown: list[str] = []
    made: bool = False

    @property
    def phrase(self) -> str:
        """What the user has to type."""
        return self.command.lower() if self.rows is None else f"{self.command.lower()} {self.rows}"

    def is_as(self, seen: "Effect") -> bool:
        """Whether it does no more and no less than what the user has seen."""
        return (self.command, self.rows) == (seen.command, seen.rows)


@asynccontextmanager
async def connected() -> AsyncIterator[Connection]:
    """A connection with bounds."""
    url = os.environ["DATABASE_URL"]
    async with await Connection.connect(
        url, row_factory=dict_row, connect_timeout=5, autocommit=True
    ) as connection:
        for name, bound in BOUNDS.items():
            await connection.execute("SELECT set_config(%s, %s, false)", [name, bound])
        yield connection


async def read(statement: str) -> list[dict[str, Any]]:
    """The first rows of a statement that only reads; Postgres refuses any other."""
    async with connected() as connection:
        await connection.set_read_only(True)
        async with connection.transaction():
            cursor = await _execute(connection, statement)
        return [
            {name: str(value) for name, value in row.items()} for row in await cursor.fetchmany(MOST_ROWS)
        ]


async def dry_run(statement: str) -> Effect:
    """Make the change and take it back."""
    async with connected() as connection, connection.transaction(force_rollback=True):
        return await _change(connection, statement)


async def apply(statement: str, seen: Effect, ctx: Context) -> Effect:
    """Make the change, unless it would do something else than the user has seen.

    The change and the key of this step are committed together. If the process dies after the commit and
    before ekiden has noted the result, the step runs again: it finds its key, and makes no change.
    """
    async with connected() as connection:
        await _make_notes(connection)
        async with connection.transaction() as transaction:
            note = (
                "INSERT INTO careful_sql_done (step) VALUES (%s) ON CONFLICT (step) DO NOTHING RETURNING step"
            )
            if not await (await connection.execute(note, [ctx.step_key])).fetchall():
                return await _noted(connection, ctx.step_key)
            effect = await _change(connection, statement)
            if not effect.is_as(seen):
                raise psycopg.Rollback(transaction)
            effect.made = True
            kept = Jsonb(effect.model_dump())
            await connection.execute(
                "UPDATE careful_sql_done SET effect = %s WHERE step = %s", [kept, ctx.step_key]
            )
        return effect


async def _change(connection: Connection, statement: str) -> Effect:
    bare = statement.strip().rstrip(";")
    first = bare.split(None, 1)[0].upper() if bare else ""
    if first not in CHANGES and first != "WITH":
        raise ToolError(
            f"This tool takes a statement that begins with WITH or one of {', '.join(sorted(CHANGES))}."
        )
    rows: list[dict[str, Any]] = []
    try:
        async with connection.transaction():
            cursor = await _execute(connection, f"{bare} RETURNING *")
            rows = await cursor.fetchmany(SHOWN)
    except ToolError:  # It cannot return rows, or does so already; or it is wrong, which the next try says.
        cursor = await _execute(connection, bare)
    command = (cursor.statusmessage or "").rstrip(" 0123456789")  # As in "INSERT 0 3" and "DROP TABLE".
    if command.split(" ", 1)[0] not in CHANGES:
        raise ToolError(f"This tool changes data; {command or 'nothing'} does not. Use `query` to read.")
    counts = command in ("INSERT", "UPDATE", "DELETE", "MERGE")
    shown = [", ".join(f"{name}={value}" for name, value in row.items()) for row in rows]
    return Effect(command=command, rows=cursor.rowcount if counts else None, shown=shown)


async def _execute(connection: Connection, statement: str) -> psycopg.AsyncCursor[dict[str, Any]]:
    """Execute one statement. A prepared one cannot hide a second behind a semicolon."""
    try:
        return await connection.execute(statement.encode(), prepare=True)
    except psycopg.Error as error:
        raise ToolError(f"Postgres says: {error.diag.message_primary or error}") from error


async def _make_notes(connection: Connection) -> None:
    """Make the table of steps that were made. Two workers may try at the same time."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(4242)")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS careful_sql_done"
            " (step text PRIMARY KEY, effect jsonb, at timestamptz NOT NULL DEFAULT now())"
        )


async def _noted(connection: Connection, step: str) -> Effect:
    found = await connection.execute("SELECT effect FROM careful_sql_done WHERE step = %s", [step])
    row = await found.fetchone()
    assert row is not None
    return Effect.model_validate(row["effect"])
