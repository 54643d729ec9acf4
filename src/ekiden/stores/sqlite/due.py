"""Which tasks of a SQLite file are next. No principal waits for ever behind one with many tasks."""

import sqlite3
from collections.abc import Collection
from typing import Final

from ekiden.stores.sqlite import statements as sql
from ekiden.tasks.store import Due

__all__ = ["FairSearch"]

_PRINCIPALS: Final = 100
"""Principals that one search looks at behind a flood; the next one goes on where it ended."""


class FairSearch:
    """Finds what is due. Remembers where it looked last, so that every principal has its turn."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], str] = {}
        """By audience and tool: the first principal to look at."""

    def due(
        self,
        connection: sqlite3.Connection,
        audience: str,
        tools: Collection[str],
        *,
        now: float,
        limit: int,
    ) -> list[Due]:
        """Tasks that are due, the longest overdue first; if there are too many, others behind them."""
        found = [
            Due(*row) for tool in tools for row in connection.execute(sql.DUE, (audience, tool, now, limit))
        ]
        found.sort(key=_order)
        first = found[:limit]
        if len(found) < limit:
            return first
        served = {each.principal for each in first}
        behind: dict[str, Due] = {}
        for each in self._first_of_principals(connection, audience, tools):
            if each.due <= now and each.principal not in served:
                known = behind.setdefault(each.principal, each)
                behind[each.principal] = min(known, each, key=_order)
        return [*first, *sorted(behind.values(), key=_order)]

    def _first_of_principals(
        self, connection: sqlite3.Connection, audience: str, tools: Collection[str]
    ) -> list[Due]:
        """The first task of each principal, tool by tool, from where the last search ended."""
        found: list[Due] = []
        share = max(1, _PRINCIPALS // max(1, len(tools)))
        for tool in tools:
            start = self._starts.pop((audience, tool), "")
            for _ in range(share):
                row = connection.execute(sql.NEXT_PRINCIPAL, (audience, tool, start)).fetchone()
                if row is None:
                    break  # All the others were seen: the next search begins with the first.
                found.append(Due(*row))
                start = f"{row[1]}\0"  # No text lies between these two.
            else:
                self._starts[audience, tool] = start
        return found


def _order(each: Due) -> tuple[float, str]:
    return each.due, each.id
