"""What has expired is removed from a SQLite file some at a time, and others write in between."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final

from ekiden.stores.sqlite.file import SQLiteFile

__all__ = ["remove_in_portions"]

_ROWS: Final = 1000
_SECONDS: Final = 0.02
"""How long one portion holds the file, and how long it is left to others then."""


async def remove_in_portions(
    file: SQLiteFile, find: str, values: tuple[object, ...], remove: Callable[..., object]
) -> None:
    """Call `remove` with the connection and each row that `find` finds, until there are no more."""

    def work(connection: sqlite3.Connection) -> bool:
        deadline = time.monotonic() + _SECONDS
        rows: list[tuple[Any, ...]] = connection.execute(f"{find} LIMIT {_ROWS}", values).fetchall()
        for row in rows:
            remove(connection, *row)
            if time.monotonic() > deadline:
                return True
        return len(rows) == _ROWS

    while await file.write(work):  # noqa: ASYNC110  nobody tells when others have written
        await asyncio.sleep(_SECONDS)
