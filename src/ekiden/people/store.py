"""The port for questions to people: rows with a version, which stores find by id, by call and by time.

Every change is conditional: a writer names the version that it has read, so of two answers one is taken. What
the bytes mean, a store does not know.
"""

from typing import Protocol

import msgspec

__all__ = ["PeopleRow", "PeopleStore"]


class PeopleRow(msgspec.Struct, kw_only=True):
    """One row. Times are seconds since the epoch."""

    id: str
    call: str
    """The call that it belongs to."""
    audience: str
    """The server whose row this is, where several share a store."""
    due: float | None = None
    """When somebody must look at it; None: never."""
    expires: float
    """From then on it is not needed any more."""
    data: bytes
    version: int = 1
    """1 for a new row; grows with every change."""


class PeopleStore(Protocol):
    """Implemented by the stores. Raises `StoreUnavailable` if the same call may succeed later."""

    async def add(self, row: PeopleRow) -> PeopleRow:
        """Keep a new row. If there is one with this id, that one is returned instead."""
        ...

    async def load(self, row_id: str) -> PeopleRow | None:
        """A row."""
        ...

    async def of_call(self, call: str) -> list[PeopleRow]:
        """The rows of a call, in the order of their ids."""
        ...

    async def replace(self, row: PeopleRow) -> bool:
        """Change `due`, `expires` and `data`, if the row still has `row.version`; False if it has not.

        The version grows by one, in the row that is given, too.
        """
        ...

    async def remove(self, row_id: str, version: int) -> bool:
        """Forget a row, if it still has this version."""
        ...

    async def due(self, audience: str, *, now: float, limit: int) -> list[PeopleRow]:
        """Rows that are due, those first that are due for longest."""
        ...

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        ...
