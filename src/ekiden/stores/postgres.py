"""A store in Postgres: for servers and workers on many machines.

Needs the extra `ekiden[postgres]`, and `ekiden store migrate postgresql://...` once. Here is the ledger of
rounds; tasks are in `postgres_tasks`.
"""

from collections.abc import Mapping

import msgspec

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Recorded, Refused
from ekiden.stores.postgres_database import Connection, PostgresDatabase
from ekiden.stores.postgres_tasks import PostgresTasks

__all__ = ["PostgresStore"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class PostgresStore:
    """Implements `ekiden.rounds.ledger.Ledger`; `tasks` implements `ekiden.tasks.store.TaskStore`."""

    shared = True

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self._database = PostgresDatabase(url, most_connections=most_connections, wait_seconds=wait_seconds)
        self.tasks = PostgresTasks(self._database)

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date."""
        await self._database.migrate()

    def peek(self, round_id: str) -> tuple[str, bytes] | None:
        """Not without waiting for the network."""
        return None

    async def claim(self, round_id: str, answers: str, *, now: float, lease: float, expires: float) -> Claim:
        """Try to own a round."""
        async with self._database.transaction() as connection:
            made = await connection.execute(
                "INSERT INTO ekiden_rounds VALUES (%s, %s, 1, %s, %s, NULL) ON CONFLICT (id) DO NOTHING",
                (round_id, answers, now + lease, expires),
            )
            if made.rowcount:
                return Claimed(1, {})
            return await _claim_known(connection, round_id, answers, now, lease, expires)

    async def renew(self, round_id: str, fence: int, *, now: float, lease: float) -> bool:
        """Keep a claim for longer."""
        async with self._database.transaction() as connection:
            changed = await connection.execute(
                "UPDATE ekiden_rounds SET leased_until = %s WHERE id = %s AND fence = %s AND outcome IS NULL",
                (now + lease, round_id, fence),
            )
            return changed.rowcount == 1

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        rows = [(round_id, key, _encode(entry)) for key, entry in entries.items()]
        async with self._database.transaction() as connection:
            owned = await connection.execute(
                "SELECT 1 FROM ekiden_rounds WHERE id = %s AND fence = %s AND outcome IS NULL FOR UPDATE",
                (round_id, fence),
            )
            if await owned.fetchone() is None:
                return False
            await connection.cursor().executemany(
                "INSERT INTO ekiden_round_steps VALUES (%s, %s, %s)"
                " ON CONFLICT (round_id, key) DO UPDATE SET entry = EXCLUDED.entry",
                rows,
            )
            return True

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        async with self._database.transaction() as connection:
            changed = await connection.execute(
                "UPDATE ekiden_rounds SET outcome = %s WHERE id = %s AND fence = %s AND outcome IS NULL",
                (outcome, round_id, fence),
            )
            return changed.rowcount == 1

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        await self.renew(round_id, fence, now=0.0, lease=0.0)

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        async with self._database.transaction() as connection:
            await connection.execute(
                "INSERT INTO ekiden_journals VALUES (%s, %s, %s)"
                " ON CONFLICT (id) DO UPDATE SET data = EXCLUDED.data, expires = EXCLUDED.expires",
                (journal_id, data, expires),
            )

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        async with self._database.transaction() as connection:
            found = await connection.execute("SELECT data FROM ekiden_journals WHERE id = %s", (journal_id,))
            row = await found.fetchone()
            return None if row is None else bytes(row[0])

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        async with self._database.transaction() as connection:
            await connection.execute("DELETE FROM ekiden_rounds WHERE expires < %s", (now,))
            await connection.execute("DELETE FROM ekiden_journals WHERE expires < %s", (now,))

    async def close(self) -> None:
        """Close the connections."""
        await self.tasks.close()
        await self._database.close()


async def _claim_known(
    connection: Connection, round_id: str, answers: str, now: float, lease: float, expires: float
) -> Claim:
    found = await connection.execute(
        "SELECT answers, fence, leased_until, expires, outcome FROM ekiden_rounds WHERE id = %s FOR UPDATE",
        (round_id,),
    )
    row = await found.fetchone()
    if row is None:
        return Busy()  # Removed at this moment; the next try finds room.
    ran_with, fence, leased_until, ends, outcome = row
    if ends < now:
        await connection.execute("DELETE FROM ekiden_round_steps WHERE round_id = %s", (round_id,))
        await connection.execute(
            "UPDATE ekiden_rounds SET answers = %s, fence = 1, leased_until = %s, expires = %s,"
            " outcome = NULL WHERE id = %s",
            (answers, now + lease, expires, round_id),
        )
        return Claimed(1, {})
    steps = await connection.execute(
        "SELECT key, entry FROM ekiden_round_steps WHERE round_id = %s", (round_id,)
    )
    kept = {key: _decode(entry) for key, entry in await steps.fetchall()}
    if ran_with != answers and (outcome is not None or kept or leased_until > now):
        return Refused()
    if outcome is not None:
        return Recorded(bytes(outcome))
    if leased_until > now:
        return Busy()
    await connection.execute(
        "UPDATE ekiden_rounds SET answers = %s, fence = %s, leased_until = %s WHERE id = %s",
        (answers, fence + 1, now + lease, round_id),
    )
    return Claimed(fence + 1, kept)
