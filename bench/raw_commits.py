"""Raw commits to a SQLite file, one row each: what the disk and SQLite allow.

    python -m bench.raw_commits COUNT

Prints JSON: commits per second.
"""

import json
import sqlite3
import sys
import time
from pathlib import Path

from bench.disk import passing_folder

VALUE = "x" * 1000


def raw(folder: Path, count: int) -> list[float]:
    """The seconds that each commit took."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE entries (key TEXT, entry BLOB)")
    taken: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entries VALUES (?, ?)", (f"s:{number}", VALUE.encode()))
        connection.execute("COMMIT")
        taken.append(time.perf_counter() - began)
    connection.close()
    return taken


def main() -> None:
    with passing_folder() as folder:
        taken = raw(folder, int(sys.argv[1]))
    print(json.dumps({"per_second": len(taken) / sum(taken)}))


if __name__ == "__main__":
    main()
