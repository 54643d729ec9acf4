"""A store with very many tasks, made quickly: rows that are copies of one that the server has finished.

All that is known of the tables is their names, and the columns `id`, `flow` and `record`.
"""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from ekiden.tasks.record import decode_record, encode_record

Row = dict[str, Any]


def fill_sqlite(url: str, count: int) -> list[str]:
    """Copy the one task of the file so often. Gives the ids."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA cache_size = -1000000")
        row = dict(connection.execute("SELECT * FROM tasks").fetchone())
        ids: list[str] = []
        places = ", ".join(f":{column}" for column in row)
        connection.executemany(f"INSERT INTO tasks VALUES ({places})", _copies(row, count, ids))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ids


def fill_postgres(url: str, count: int) -> list[str]:
    """Copy the one task of the database so often. Gives the ids."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        row = connection.execute("SELECT * FROM ekiden_tasks").fetchone()
        assert row is not None
        ids: list[str] = []
        columns = SQL(", ").join(Identifier(column) for column in row)
        with connection.cursor().copy(SQL("COPY ekiden_tasks ({}) FROM STDIN").format(columns)) as copy:
            for made in _copies(row, count, ids):
                copy.write_row(tuple(made.values()))
        connection.execute("VACUUM ANALYZE ekiden_tasks")
        connection.execute("CHECKPOINT")
    return ids


def _copies(row: Row, count: int, ids: list[str]) -> Iterator[Row]:
    record = decode_record(row["record"])
    for _ in range(count):
        record.id, record.flow = secrets.token_hex(16), secrets.token_hex(16)
        ids.append(record.id)
        yield {**row, "id": record.id, "flow": record.flow, "record": encode_record(record)}
