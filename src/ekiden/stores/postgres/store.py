"""The ledger of rounds in Postgres. Tasks are in `tasks`."""

import functools
from collections.abc import Mapping
from typing import Final

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import (
    ABANDONED_SECONDS,
    RELEASED,
    Busy,
    Claim,
    Claimed,
    Known,
    Renewal,
    RoundRow,
    Take,
    decide_claim,
    decide_look,
    decode_entry,
    encode_entry,
)
from ekiden.stores.keys_of_entries import key_digest, key_from_bytes, key_to_bytes
from ekiden.stores.postgres.bus import PostgresBus
from ekiden.stores.postgres.database import Connection, PostgresDatabase
from ekiden.stores.postgres.people import PostgresPeople
from ekiden.stores.postgres.sessions import PostgresSessions
from ekiden.stores.postgres.stories import PostgresStories
from ekiden.stores.postgres.tasks import PostgresTasks

__all__ = ["PostgresStore"]

_IS_OWNED: Final = "id = %s AND fence = %s AND outcome IS NULL AND leased_until <> 0"
"""Whether a round is still owned with this fence. Contains no value of a caller."""
assert RELEASED == 0

_MINE: Final = """
    FROM unnest(%(id)b::text[], %(fence)b::bigint[], %(expires)b::float8[]) AS wanted(id, fence, expires)
        JOIN ekiden_rounds AS mine USING (id)
    WHERE mine.fence = wanted.fence AND mine.outcome IS NULL AND mine.leased_until <> 0
"""
_RENEW: Final = f"""
    WITH ours AS (SELECT id, wanted.expires {_MINE} FOR NO KEY UPDATE OF mine SKIP LOCKED),
    renewed AS (
        UPDATE ekiden_rounds AS mine SET leased_until = %(until)s, expires = ours.expires
        FROM ours WHERE mine.id = ours.id RETURNING mine.id
    )
    SELECT array(SELECT id FROM renewed), array(SELECT id {_MINE} AND id NOT IN (SELECT id FROM renewed))
"""  # noqa: S608
"""What was renewed, and what is still owned but is being written by somebody else."""

_COMMIT: Final = """
    WITH owned AS (
        SELECT id FROM ekiden_rounds
        WHERE id = %(id)s AND fence = %(fence)s AND outcome IS NULL AND leased_until <> 0
        FOR NO KEY UPDATE
    ), added AS (
        INSERT INTO ekiden_round_steps (round_id, digest, key, entry)
        SELECT owned.id, new.digest, new.key, new.entry
        FROM owned, unnest(%(digest)b::bytea[], %(key)b::bytea[], %(entry)b::bytea[])
            WITH ORDINALITY AS new(digest, key, entry, place)
        ORDER BY new.place
        ON CONFLICT (round_id, digest) DO UPDATE SET entry = EXCLUDED.entry, number = DEFAULT
    )
    SELECT 1 FROM owned
"""
"""One statement, and so a transaction that never waits for this process. If an event loop could be blocked in
the middle of it, the row would stay locked, and the thread that stands by could not renew the lease."""

_PURGE_AT_ONCE: Final = 1000
_MOST_PURGES: Final = 100
"""Statements in one purge at most: a caller waits for it. A process makes fewer rounds between two purges."""
_PURGE_ROUNDS: Final = """
    WITH old AS (
        SELECT id FROM ekiden_rounds
        WHERE expires < %(now)s AND (outcome IS NOT NULL OR leased_until < %(abandoned)s)
        ORDER BY expires LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    DELETE FROM ekiden_rounds WHERE id IN (SELECT id FROM old)
"""
_PURGE_JOURNALS: Final = """
    WITH old AS (
        SELECT id FROM ekiden_journals WHERE expires < %(now)s
        ORDER BY expires LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    DELETE FROM ekiden_journals WHERE id IN (SELECT id FROM old)
"""


class PostgresStore:
    """Implements `ekiden.Store`.

    It uses up to `most_connections`, two more for the owners of rounds, and for tasks up to six: four for
    what changes them, one to renew leases, one to hear of changes. One more hears of resources and lists that
    changed, once a client has subscribed to them.
    """

    shared = True
    waits = True

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self._database = PostgresDatabase(url, most_connections=most_connections, wait_seconds=wait_seconds)
        self.another = functools.partial(PostgresStore, url, most_connections=1, wait_seconds=wait_seconds)
        """Opens the same database with connections of its own, for another event loop."""
        self.tasks = PostgresTasks(self._database)
        self.people = PostgresPeople(self._database)
        self.sessions = PostgresSessions(self._database)
        self.bus = PostgresBus(self._database)
        self.stories = PostgresStories(self._database)

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date."""
        await self._database.migrate()

    def is_new(self, round_id: str) -> bool:
        """Always False: it takes a query."""
        return False

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended, that it has not ended, or that it belongs to another history."""
        async with self._database.in_line() as connection:
            return decide_look(await _row(connection, round_id), history, now)

    async def claim(
        self,
        round_id: str,
        history: str,
        *,
        now: float,
        lease: float,
        expires: float,
        instead_of: Busy | None = None,
    ) -> Claim:
        """Try to own a round."""
        async with self._database.in_line() as connection:
            while True:
                made = await connection.execute(
                    "INSERT INTO ekiden_rounds (id, history, fence, leased_until, expires)"
                    " VALUES (%s, %s, 1, %s, %s) ON CONFLICT (id) DO NOTHING",
                    (round_id, history, now + lease, expires),
                )
                if made.rowcount:
                    return Claimed(1, {})
                row = await _row(connection, round_id)
                if row is None:
                    continue  # It was forgotten in this moment.
                decided = decide_claim(row, history, now, instead_of)
                is_overdue = isinstance(decided, Busy) and decided.leased_until <= now
                if is_overdue and await _is_being_written(connection, round_id):
                    return Busy(row.fence, now)  # The owner cannot renew now: it is watched anew.
                if not isinstance(decided, Take):
                    return decided
                taken = await _take(connection, round_id, row, decided, history, now + lease, expires)
                if taken is not None:
                    return taken

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
        """Keep claims for longer, on a connection that is reserved for that."""
        values = {
            "id": list(claims),
            "fence": [claim.fence for claim in claims.values()],
            "expires": [claim.expires for claim in claims.values()],
            "until": until,
        }
        async with self._database.renewing() as connection:
            found = await (await connection.execute(_RENEW, values)).fetchall()
        renewed, locked = (set[str](ids) for ids in found[0])
        return {round_id: round_id in renewed for round_id in claims if round_id not in locked}

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        keys = {key_to_bytes(key): encode_entry(entry) for key, entry in entries.items()}
        values = {
            "id": round_id,
            "fence": fence,
            "digest": [key_digest(key) for key in keys],
            "key": list(keys),
            "entry": list(keys.values()),
        }
        async with self._database.owning() as connection:
            owned = await connection.execute(_COMMIT, values)
            return await owned.fetchone() is not None

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        async with self._database.owning() as connection:
            changed = await connection.execute(
                f"UPDATE ekiden_rounds SET outcome = %s WHERE {_IS_OWNED}",  # noqa: S608
                (outcome, round_id, fence),
            )
            if changed.rowcount == 1:
                return True
            done = await connection.execute(
                "SELECT 1 FROM ekiden_rounds WHERE id = %s AND fence = %s AND outcome = %s",
                (round_id, fence, outcome),
            )
            return await done.fetchone() is not None

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        async with self._database.owning() as connection:
            await connection.execute(
                f"UPDATE ekiden_rounds SET leased_until = 0 WHERE {_IS_OWNED}",  # noqa: S608
                (round_id, fence),
            )

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        async with self._database.in_line() as connection:
            await connection.execute(
                "INSERT INTO ekiden_journals VALUES (%s, %s, %s)"
                " ON CONFLICT (id) DO UPDATE SET data = EXCLUDED.data, expires = EXCLUDED.expires",
                (journal_id, data, expires),
            )

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        async with self._database.in_line() as connection:
            found = await connection.execute("SELECT data FROM ekiden_journals WHERE id = %s", (journal_id,))
            row = await found.fetchone()
            return None if row is None else bytes(row[0])

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, some at a time: a statement that takes too long is undone."""
        values = {"now": now, "abandoned": now - ABANDONED_SECONDS, "limit": _PURGE_AT_ONCE}
        for query in (_PURGE_ROUNDS, _PURGE_JOURNALS):
            for _ in range(_MOST_PURGES):
                async with self._database.in_line() as connection:
                    removed = (await connection.execute(query, values)).rowcount
                if removed < _PURGE_AT_ONCE:
                    break

    async def close(self) -> None:
        """Close the connections."""
        await self.tasks.close()
        await self.bus.close()
        await self.stories.close()
        await self._database.close()


async def _row(connection: Connection, round_id: str) -> RoundRow | None:
    found = await connection.execute(
        "SELECT history, fence, leased_until, expires, outcome,"
        " EXISTS (SELECT 1 FROM ekiden_round_steps WHERE round_id = ekiden_rounds.id)"
        " FROM ekiden_rounds WHERE id = %s",
        (round_id,),
    )
    row = await found.fetchone()
    return None if row is None else RoundRow(*row)


async def _is_being_written(connection: Connection, round_id: str) -> bool:
    """Whether somebody has locked the row of a round. Those who only ask this do not disturb each other."""
    found = await connection.execute(
        "SELECT 1 FROM ekiden_rounds WHERE id = %s FOR SHARE SKIP LOCKED", (round_id,)
    )
    return await found.fetchone() is None


async def _take(
    connection: Connection,
    round_id: str,
    row: RoundRow,
    decided: Take,
    history: str,
    leased_until: float,
    expires: float,
) -> Claimed | None:
    """Own a round, if it is unchanged since that was decided; else None."""
    async with connection.transaction():
        changed = await connection.execute(
            "UPDATE ekiden_rounds"
            " SET history = %s, fence = %s, leased_until = %s, expires = %s, outcome = NULL"
            " WHERE id = %s AND fence = %s AND leased_until = %s AND (outcome IS NULL) = %s",
            (
                *(history, decided.fence, leased_until, expires if decided.is_fresh else row.expires),
                *(round_id, row.fence, row.leased_until, row.outcome is None),
            ),
        )
        if changed.rowcount == 0:
            return None
        if decided.is_fresh:
            await connection.execute("DELETE FROM ekiden_round_steps WHERE round_id = %s", (round_id,))
        kept = await connection.execute(
            "SELECT key, entry FROM ekiden_round_steps WHERE round_id = %s ORDER BY number", (round_id,)
        )
        entries = {key_from_bytes(key): decode_entry(entry) for key, entry in await kept.fetchall()}
        return Claimed(decided.fence, entries)
