"""A provider whose projects cost money: prices that move, and projects that are created once for each key.

It stands for an API across the network. Its data are in a SQLite file, so that all workers see the same.

`python cloud.py tokyo 1200` changes a price.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

TABLES = """
CREATE TABLE IF NOT EXISTS prices (region TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS projects (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, region TEXT NOT NULL, cents INTEGER NOT NULL
);
INSERT OR IGNORE INTO prices VALUES ('tokyo', 1000), ('osaka', 800);
"""


class NoSuchRegion(Exception):
    """The provider has no such region."""


class Quote(BaseModel):
    """What a project costs in a month."""

    region: str
    cents: int

    def __str__(self) -> str:
        return f"{self.cents / 100:.2f} a month"


class Project(BaseModel):
    """A project that exists, and is paid for."""

    name: str
    region: str
    cents: int


class Cloud:
    """The provider's API."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._has_tables = False

    async def quote(self, region: str) -> Quote:
        """The price of today. It may be another one tomorrow, or in a second."""
        return await asyncio.to_thread(self._quote, region)

    async def create(self, name: str, quote: Quote, idempotency_key: str) -> Project:
        """Create a project and charge for it. The same key gets the same project, and pays once."""
        return await asyncio.to_thread(self._create, name, quote, idempotency_key)

    def set_price(self, region: str, cents: int) -> None:
        """The provider changes a price."""
        with self._open() as database:
            database.execute("UPDATE prices SET cents = ? WHERE region = ?", (cents, region))

    def projects(self) -> list[Project]:
        """All that were created."""
        with self._open() as database:
            rows = database.execute("SELECT name, region, cents FROM projects ORDER BY name").fetchall()
        return [Project(name=name, region=region, cents=cents) for name, region, cents in rows]

    def _quote(self, region: str) -> Quote:
        with self._open() as database:
            row = database.execute("SELECT cents FROM prices WHERE region = ?", (region,)).fetchone()
        if row is None:
            raise NoSuchRegion(region)
        return Quote(region=region, cents=row[0])

    def _create(self, name: str, quote: Quote, key: str) -> Project:
        with self._open() as database:
            values = (key, name, quote.region, quote.cents)
            database.execute("INSERT OR IGNORE INTO projects VALUES (?, ?, ?, ?)", values)
        return Project(name=name, region=quote.region, cents=quote.cents)

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection, None, None]:
        database = sqlite3.connect(self.file, timeout=10)
        try:
            if not self._has_tables:
                database.executescript(TABLES)
                self._has_tables = True
            with database:
                yield database
        finally:
            database.close()


def of_environment() -> Cloud:
    """The provider whose file `CLOUD_FILE` names."""
    return Cloud(Path(os.environ.get("CLOUD_FILE", "cloud.db")))


if __name__ == "__main__":
    region, cents = sys.argv[1:]
    quote = Quote(region=region, cents=int(cents))
    of_environment().set_price(quote.region, quote.cents)
    print(f"{quote.region} costs {quote}.")
