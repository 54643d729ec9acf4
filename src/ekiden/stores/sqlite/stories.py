"""Stories of calls in a SQLite file. Processes that share it hear of changes over sockets beside it."""
# ruff: noqa: S608  Statements are put together from the constants of this package only.

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ekiden.bus.listeners import Listeners
from ekiden.bus.sockets import SocketBus
from ekiden.stores.sqlite.file import SQLiteFile
from ekiden.stores.story_columns import (
    ANY_CALL,
    CALL,
    decode_action,
    encode_action,
    merged,
    message_of,
    read_call,
    watch_both,
)
from ekiden.stories.events import Action, CallRow
from ekiden.stories.store import CallQuery, StoryStore, StoryWatcher, Told

__all__ = ["STATEMENTS", "SQLiteStories"]

_COLUMNS: Final = ", ".join(CALL)
_PAGE: Final = "(started, id) < (?, ?) ORDER BY started DESC, id DESC LIMIT ?"
_NEWER: Final = "CASE WHEN excluded.updated >= calls.updated THEN excluded.{0} ELSE calls.{0} END"

STATEMENTS: Final = {
    "write": f"""
        INSERT INTO calls ({_COLUMNS}) VALUES ({", ".join("?" * len(CALL))}) ON CONFLICT (id) DO UPDATE SET
        started = min(excluded.started, calls.started), size = calls.size + excluded.size,
        {", ".join(f"{name} = {_NEWER.format(name)}" for name in ("state", "task", "facts", "updated"))}
    """,
    "add": "INSERT INTO call_events (call_id, data) VALUES (?, ?)",
    "load": f"SELECT {_COLUMNS} FROM calls WHERE id = ?",
    "events": "SELECT data FROM call_events WHERE call_id = ? ORDER BY number",
    "newest": f"SELECT {_COLUMNS} FROM calls WHERE {_PAGE}",
    "of state": f"SELECT {_COLUMNS} FROM calls WHERE state = ? AND {_PAGE}",
    "of target": f"SELECT {_COLUMNS} FROM calls WHERE target = ? AND state = ? AND {_PAGE}",
    "next target": "SELECT min(target) FROM calls WHERE target > ?",
    "quietest": "SELECT id, updated, size FROM calls ORDER BY updated LIMIT ?",
    "forget": "DELETE FROM calls WHERE id = ?",
    "forget events": "DELETE FROM call_events WHERE call_id = ?",
    "note": "INSERT INTO actions (at, data) VALUES (?, ?)",
    "actions": "SELECT data FROM actions WHERE at < ? ORDER BY at DESC, number DESC LIMIT ?",
}
"""Every statement but the sum over all calls; a test holds each of them to an index."""
_SUM: Final = "SELECT count(*), coalesce(sum(size), 0) FROM calls"
_MOST_TARGETS: Final = 300
_TRIM_AT_ONCE: Final = 200


class SQLiteStories(StoryStore):
    """Implements the port on a file. Without a bus, only this process hears of changes."""

    def __init__(self, file: SQLiteFile, bus: SocketBus | None) -> None:
        self._file = file
        self._bus = bus
        self._watchers = Listeners[Sequence[str]]()

    async def write(self, told: Sequence[Told]) -> None:
        """Keep what was told."""
        rows = [tuple(getattr(each.row, name) for name in CALL) for each in told]
        events = [(each.row.id, each.events) for each in told if each.events]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(STATEMENTS["write"], rows)
            connection.executemany(STATEMENTS["add"], events)

        await self._file.write(work, size=sum(len(each.events) for each in told))
        changed = [each.row.id for each in told]
        self._watchers.tell(changed)
        if self._bus is not None:
            self._bus.publish(message_of(changed))

    async def load(self, call_id: str) -> CallRow | None:
        """A row."""
        found = await self._all("load", call_id)
        return read_call(found[0]) if found else None

    async def events(self, call_id: str) -> list[bytes]:
        """What was written of a call."""
        return [row[0] for row in await self._all("events", call_id)]

    async def listing(self, query: CallQuery) -> Sequence[CallRow]:
        """Calls, the newest first."""
        page = (*(query.after or (float("inf"), "")), query.limit)

        def work(connection: sqlite3.Connection) -> list[CallRow]:
            lists = [
                [read_call(row) for row in connection.execute(STATEMENTS[name], (*values, *page))]
                for name, values in _searches(query)
            ]
            return merged(lists, lambda row: (row.started, row.id), query.limit)

        return await self._file.scan(work)

    async def targets(self) -> list[str]:
        """What was called: one look at the index for each."""

        def work(connection: sqlite3.Connection) -> list[str]:
            found: list[str] = []
            while len(found) < _MOST_TARGETS:
                last = found[-1] if found else ""
                (target,) = connection.execute(STATEMENTS["next target"], (last,)).fetchone()
                if target is None:
                    break
                found.append(target)
            return found

        return await self._file.scan(work)

    async def trim(self, *, before: float, most_calls: int, most_bytes: int) -> int:
        """Forget old calls, some at a time: others write in between."""
        forgotten = 0
        while some := await self._file.write(
            lambda connection: _trim(connection, before, most_calls, most_bytes)
        ):
            forgotten += some
        return forgotten

    async def note(self, action: Action) -> None:
        """Add to the audit log."""
        row = (action.at, encode_action(action))
        await self._file.write(lambda connection: connection.execute(STATEMENTS["note"], row))

    async def actions(self, *, before: float | None = None, limit: int = 50) -> list[Action]:
        """The audit log, the newest first."""
        rows = await self._all("actions", float("inf") if before is None else before, limit)
        return [decode_action(row[0]) for row in rows]

    async def watch(self, watcher: StoryWatcher) -> Callable[[], None]:
        """Be told of changes, those of other processes too."""
        return await watch_both(self._watchers, self._bus, watcher)

    async def _all(self, name: str, *values: Any) -> list[Any]:
        return await self._file.scan(
            lambda connection: connection.execute(STATEMENTS[name], values).fetchall()
        )

    async def close(self) -> None:
        """Give the sockets back."""
        if self._bus is not None:
            await self._bus.close()


def _searches(query: CallQuery) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The statements whose results together are the answer, each with its values."""
    if query.targets:
        for target in query.targets:
            for state in query.states or ANY_CALL:
                yield "of target", (target, state)
    elif query.states:
        for state in query.states:
            yield "of state", (state,)
    else:
        yield "newest", ()


def _trim(connection: sqlite3.Connection, before: float, most_calls: int, most_bytes: int) -> int:
    calls, size = connection.execute(_SUM).fetchone()
    forgotten = 0
    for call_id, updated, its_size in connection.execute(STATEMENTS["quietest"], (_TRIM_AT_ONCE,)).fetchall():
        if updated >= before and calls <= most_calls and size <= most_bytes:
            break
        connection.execute(STATEMENTS["forget events"], (call_id,))
        connection.execute(STATEMENTS["forget"], (call_id,))
        calls, size, forgotten = calls - 1, size - its_size, forgotten + 1
    return forgotten
