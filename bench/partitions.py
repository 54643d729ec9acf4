"""What partitions by expiry would cost and save, on a copy of the table of tasks: on Postgres.

    python -m bench.partitions [--tasks 200000] [--ids 1]

The same rows are put into the table as it is, and into tables with 3 and with 26 partitions by their expiry:
what a day and an hour of tasks need, by the day and by the hour. A row is looked up by its id alone, as
ekiden's statements do, so every partition is asked. Then a third of the rows goes: by `DELETE`, with the
vacuum that has to follow, or by `DROP TABLE` of a partition. CPU time of one backend, per id. Prints
JSON.
"""

import argparse
import json
import random
import time
from itertools import pairwise
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from bench.process import cpu_seconds
from bench.tasks.copies import fill_postgres
from bench.tasks.serving import client, serving
from bench.tasks.stores import new_database, postgres

_LOOKS: Final = 1_500
_WRITES: Final = 1_000
_PARTITIONS: Final = (3, 26)
_TURNS: Final = 3
_INDEXES: Final = (
    "(flow)",
    "(audience, tool, due) WHERE due IS NOT NULL",
    "(audience, principal, due) WHERE due IS NOT NULL",
    "(expires) WHERE expires IS NOT NULL",
    "(created, id)",
    "(audience, principal, created, id)",
    "(expires) WHERE state NOT IN ('completed', 'failed', 'cancelled', 'tidying', 'failing')",
)
_BY_ID: Final = "SELECT record, state, fence, losses, due, version FROM {} WHERE id = ANY(%s)"
_BY_FLOW: Final = "SELECT id FROM {} WHERE flow = ANY(%s)"
_CHANGE: Final = (
    "UPDATE {} SET due = extract(epoch FROM now()), version = version + 1 WHERE id = ANY(%s) AND version >= 0"
)

Connection = psycopg.Connection[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what partitions by expiry would cost and save.")
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--ids", type=int, default=1, help="ids that one statement names")
    options = parser.parse_args()
    with postgres() as database:
        url = new_database(database)
        with serving("--store", url) as server:
            client(server, "run", "empty", "1", "1")  # What is copied.
        ids = fill_postgres(url, options.tasks)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SQL("UPDATE ekiden_tasks SET expires = {} * random()").format(options.tasks))
            connection.execute("VACUUM FULL ANALYZE ekiden_tasks")
            tables = {"as it is": "ekiden_tasks"}
            for count in _PARTITIONS:
                tables[f"{count} partitions"] = _partitioned(connection, count, options.tasks)
            connection.execute("SET jit = off; SET enable_seqscan = off")
            print(json.dumps(_compare(connection, tables, ids, options), indent=2))


def _partitioned(connection: Connection, count: int, rows: int) -> str:
    name = f"by_{count}"
    table = Identifier(name)
    connection.execute(
        SQL("CREATE TABLE {} (LIKE ekiden_tasks INCLUDING DEFAULTS) PARTITION BY RANGE (expires)").format(
            table
        )
    )
    bounds = [round(rows * 1.01 / count * place) for place in range(count + 1)]
    for place, (low, high) in enumerate(pairwise(bounds)):
        connection.execute(
            SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
                Identifier(f"{name}_{place}"), table, Literal(low), Literal(high)
            )
        )
    connection.execute(
        SQL("CREATE TABLE {} PARTITION OF {} DEFAULT").format(Identifier(f"{name}_none"), table)
    )
    connection.execute(SQL("ALTER TABLE {} ADD UNIQUE (id, expires)").format(table))
    for index in _INDEXES:
        connection.execute(f"CREATE INDEX ON {name} {index}".encode())
    connection.execute(SQL("INSERT INTO {} SELECT * FROM ekiden_tasks").format(table))
    connection.execute(SQL("VACUUM ANALYZE {}").format(table))
    connection.execute("CHECKPOINT")
    return name


def _compare(
    connection: Connection, tables: dict[str, str], ids: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    backend = connection.info.backend_pid
    for title, name in tables.items():
        found[title] = {}
        for what, query, count in (
            ("look by id, us", _BY_ID, _LOOKS),
            ("look by flow, us", _BY_FLOW, _LOOKS),
            ("change, us", _CHANGE, _WRITES),
        ):
            figures = []
            for _ in range(_TURNS):
                chosen = random.choices(ids, k=count)
                before = cpu_seconds(backend)
                with connection.transaction():
                    for place in range(0, count, options.ids):
                        some = chosen[place : place + options.ids]
                        connection.execute(query.format(name).encode(), (some,), prepare=True)
                figures.append((cpu_seconds(backend) - before) / count * 1e6)
            found[title][what] = sorted(figures)[_TURNS // 2]
    third = options.tasks // 3
    for title, took in {
        "DELETE, seconds": b"DELETE FROM ekiden_tasks WHERE expires < %d" % third,
        "VACUUM, seconds": b"VACUUM ekiden_tasks",
        "DROP of a partition, seconds": b"DROP TABLE by_3_0",
    }.items():
        began = time.perf_counter()
        connection.execute(took)
        found[title] = time.perf_counter() - began
    return found


if __name__ == "__main__":
    main()
