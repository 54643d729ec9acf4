"""Stories of calls in Postgres."""
# ruff: noqa: S608  Statements are put together from the constants of this package only.

from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString

from ekiden.bus.listeners import Listeners
from ekiden.stores.keys_of_entries import key_from_bytes, key_to_bytes
from ekiden.stores.postgres.bus import PostgresBus
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.story_columns import (
    ANY_CALL,
    CALL,
    decode_action,
    encode_action,
    message_of,
    read_call,
    watch_both,
)
from ekiden.stories.events import Action, CallRow
from ekiden.stories.store import CallQuery, StoryStore, StoryWatcher, Told

__all__ = ["STATEMENTS", "PostgresStories"]

_COLUMNS: Final[LiteralString] = ", ".join(CALL)
_VALUES: Final[LiteralString] = ", ".join([f"%({name})s" for name in CALL])
_NEWER: Final[LiteralString] = (
    "CASE WHEN excluded.updated >= calls.updated THEN excluded.{0} ELSE calls.{0} END"
)
_CHANGED: Final[LiteralString] = ", ".join(
    [f"{name} = {_NEWER.replace('{0}', name)}" for name in ("state", "task", "facts", "updated")]
)
_PAGE: Final[LiteralString] = """
    (started, id) < (%(after)s, %(after_id)s) ORDER BY started DESC, id DESC LIMIT %(limit)s
"""

STATEMENTS: Final[dict[str, LiteralString]] = {
    "write": f"""
        INSERT INTO ekiden_calls AS calls ({_COLUMNS}) VALUES ({_VALUES}) ON CONFLICT (id) DO UPDATE SET
        started = least(excluded.started, calls.started), size = calls.size + excluded.size, {_CHANGED}
    """,
    "add": "INSERT INTO ekiden_call_events (call_id, data) VALUES (%(id)s, %(data)s)",
    "load": f"SELECT {_COLUMNS} FROM ekiden_calls WHERE id = %(id)s",
    "events": "SELECT data FROM ekiden_call_events WHERE call_id = %(id)s ORDER BY number",
    "newest": f"SELECT {_COLUMNS} FROM ekiden_calls WHERE {_PAGE}",
    "of state": f"""
        SELECT found.* FROM unnest(%(states)s::text[]) AS wanted(state) CROSS JOIN LATERAL (
            SELECT {_COLUMNS} FROM ekiden_calls AS calls WHERE calls.state = wanted.state AND {_PAGE}
        ) AS found ORDER BY found.started DESC, found.id DESC LIMIT %(limit)s
    """,
    "of target": f"""
        SELECT found.* FROM unnest(%(targets)s::bytea[]) AS named(target)
        CROSS JOIN unnest(%(states)s::text[]) AS wanted(state) CROSS JOIN LATERAL (
            SELECT {_COLUMNS} FROM ekiden_calls AS calls
            WHERE calls.target = named.target AND calls.state = wanted.state AND {_PAGE}
        ) AS found ORDER BY found.started DESC, found.id DESC LIMIT %(limit)s
    """,
    "targets": """
        WITH RECURSIVE known AS (
            (SELECT target FROM ekiden_calls ORDER BY target LIMIT 1)
            UNION ALL
            SELECT (SELECT calls.target FROM ekiden_calls AS calls
                    WHERE calls.target > known.target ORDER BY calls.target LIMIT 1)
            FROM known WHERE known.target IS NOT NULL
        )
        SELECT target FROM known WHERE target IS NOT NULL LIMIT %(limit)s
    """,
    "quietest": "SELECT id, updated, size FROM ekiden_calls ORDER BY updated LIMIT %(limit)s",
    "forget": "DELETE FROM ekiden_calls WHERE id = ANY(%(ids)s)",
    "forget events": "DELETE FROM ekiden_call_events WHERE call_id = ANY(%(ids)s)",
    "note": "INSERT INTO ekiden_actions (at, data) VALUES (%(at)s, %(data)s)",
    "actions": """
        SELECT data FROM ekiden_actions WHERE at < %(before)s ORDER BY at DESC, number DESC LIMIT %(limit)s
    """,
}
"""Every statement but the sum over all calls; a test holds each of them to an index."""
_SUM: Final[LiteralString] = "SELECT count(*), coalesce(sum(size), 0) FROM ekiden_calls"
_MOST_TARGETS: Final = 300
_TRIM_AT_ONCE: Final = 500
_MOST_TRIMS: Final = 100


class PostgresStories(StoryStore):
    """Implements the port on a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._bus = PostgresBus(database, "ekiden_stories")
        self._watchers = Listeners[Sequence[str]]()

    async def write(self, told: Sequence[Told]) -> None:
        """Keep what was told."""
        # In one order for all, so that two writers never wait for each other in a circle.
        rows = [_spelled(each.row) for each in sorted(told, key=lambda each: each.row.id)]
        events = [{"id": each.row.id, "data": each.events} for each in told if each.events]
        async with self._database.in_line() as connection, connection.transaction():
            await connection.cursor().executemany(STATEMENTS["write"], rows)
            if events:
                await connection.cursor().executemany(STATEMENTS["add"], events)
        changed = [each.row.id for each in told]
        self._watchers.tell(changed)
        self._bus.publish(message_of(changed))

    async def load(self, call_id: str) -> CallRow | None:
        """A row."""
        found = await self._all("load", id=call_id)
        return _read(found[0]) if found else None

    async def events(self, call_id: str) -> list[bytes]:
        """What was written of a call."""
        return [bytes(row[0]) for row in await self._all("events", id=call_id)]

    async def listing(self, query: CallQuery) -> Sequence[CallRow]:
        """Calls, the newest first."""
        after, after_id = query.after or (float("inf"), "")
        values: dict[str, Any] = {"after": after, "after_id": after_id, "limit": query.limit}
        if query.targets:
            name, values["targets"] = "of target", [key_to_bytes(target) for target in query.targets]
        else:
            name = "of state" if query.states else "newest"
        if name != "newest":
            values["states"] = list(query.states or ANY_CALL)
        return [_read(row) for row in await self._all(name, **values)]

    async def targets(self) -> list[str]:
        """What was called: one look at the index for each."""
        return [key_from_bytes(row[0]) for row in await self._all("targets", limit=_MOST_TARGETS)]

    async def trim(self, *, before: float, most_calls: int, most_bytes: int) -> int:
        """Forget old calls, some at a time."""
        forgotten = 0
        for _ in range(_MOST_TRIMS):
            async with self._database.in_line() as connection:
                row = await (await connection.execute(_SUM)).fetchone()
            calls, size = (0, 0) if row is None else row
            old: list[str] = []
            for call_id, updated, its_size in await self._all("quietest", limit=_TRIM_AT_ONCE):
                if updated >= before and calls <= most_calls and size <= most_bytes:
                    break
                old.append(call_id)
                calls, size = calls - 1, size - its_size
            if not old:
                break
            async with self._database.in_line() as connection, connection.transaction():
                await connection.execute(STATEMENTS["forget events"], {"ids": old})
                await connection.execute(STATEMENTS["forget"], {"ids": old})
            forgotten += len(old)
        return forgotten

    async def note(self, action: Action) -> None:
        """Add to the audit log."""
        async with self._database.in_line() as connection:
            await connection.execute(STATEMENTS["note"], {"at": action.at, "data": encode_action(action)})

    async def actions(self, *, before: float | None = None, limit: int = 50) -> list[Action]:
        """The audit log, the newest first."""
        until = float("inf") if before is None else before
        return [decode_action(bytes(row[0])) for row in await self._all("actions", before=until, limit=limit)]

    async def watch(self, watcher: StoryWatcher) -> Callable[[], None]:
        """Be told of changes, those of other processes too."""
        return await watch_both(self._watchers, self._bus, watcher)

    async def _all(self, name: str, **values: Any) -> list[Any]:
        async with self._database.in_line() as connection:
            return await (await connection.execute(STATEMENTS[name], values)).fetchall()

    async def close(self) -> None:
        """Stop listening."""
        await self._bus.close()


def _spelled(row: CallRow) -> dict[str, Any]:
    """A row as the columns have it: a text cannot hold all that a principal or a target can."""
    values = {name: getattr(row, name) for name in CALL}
    return {**values, "target": key_to_bytes(row.target), "principal": key_to_bytes(row.principal)}


def _read(row: Sequence[Any]) -> CallRow:
    found = dict(zip(CALL, row, strict=True))
    texts = {name: key_from_bytes(found[name]) for name in ("target", "principal")}
    return read_call(tuple({**found, **texts, "facts": bytes(found["facts"])}.values()))
