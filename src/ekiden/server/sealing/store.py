"""A store whose contents are sealed with the server's keys: the database shows no secrets.

Sealed are arguments, questions, answers, results, errors, messages, and the values of steps. In the clear
stays what a store needs to find and order rows: ids, the names of tools, principals, states and times, the
names or `key=`s of steps, the URIs of resources that changed, and fingerprints. What is sealed opens only in
its own row, and only while what says whose it is has not been changed. Rows that were written before this was
turned on are read as they are.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ekiden.errors import StoreRefused
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Known, Recorded, Renewal
from ekiden.server.sealing.keys import KeyRing
from ekiden.server.sealing.seal import Seal
from ekiden.server.sealing.sealed_people import SealedPeople
from ekiden.server.sealing.sealed_sessions import SealedSessions
from ekiden.server.sealing.sealed_stories import SealedStories
from ekiden.server.sealing.sealed_tasks import SealedTasks
from ekiden.stores.store import Store

__all__ = ["SealedStore"]

_STEPS: Final = "steps of a round"
_OUTCOME: Final = "outcome of a round"
_JOURNAL: Final = "journal"


class SealedStore:
    """Implements `ekiden.Store` around another one; `tasks` is sealed too."""

    def __init__(self, inner: Store, keys: Callable[[], KeyRing]) -> None:
        self._inner = inner
        self._seal = Seal(keys)
        self.shared = inner.shared
        self.waits = inner.waits
        self.bus = getattr(inner, "bus", None)
        self.another: Callable[[], Store] | None = getattr(inner, "another", None)
        """Opens the store without its seals: what is renewed by it is not sealed."""
        sessions = getattr(inner, "sessions", None)
        self.sessions = None if sessions is None else SealedSessions(sessions, self._seal)
        people = getattr(inner, "people", None)
        self.people = None if people is None else SealedPeople(people, self._seal)
        stories = getattr(inner, "stories", None)
        self.stories = None if stories is None else SealedStories(stories, self._seal)
        self.tasks = None if inner.tasks is None else SealedTasks(inner.tasks, self._seal)

    def is_new(self, round_id: str) -> bool:
        """Whether nothing is known of a round."""
        return self._inner.is_new(round_id)

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended, that it has not ended, or that it belongs to another history."""
        found = await self._inner.look(round_id, history, now=now)
        return self._recorded(round_id, found) if isinstance(found, Recorded) else found

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
        """Try to own a round. One that cannot be opened is given back, for a server that has its key."""
        claim = await self._inner.claim(
            round_id, history, now=now, lease=lease, expires=expires, instead_of=instead_of
        )
        if isinstance(claim, Claimed):
            try:
                return Claimed(claim.fence, self._seal.open_entries(claim.entries, _STEPS, round_id))
            except StoreRefused:
                await self._inner.release(round_id, claim.fence)
                raise
        return self._recorded(round_id, claim) if isinstance(claim, Recorded) else claim

    def _recorded(self, round_id: str, found: Recorded) -> Recorded:
        return Recorded(self._seal.open(found.outcome, _OUTCOME, round_id))

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> Mapping[str, bool]:
        """Keep claims for longer."""
        return await self._inner.renew(claims, until=until)

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        return await self._inner.commit(round_id, fence, self._seal.seal_entries(entries, _STEPS, round_id))

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        return await self._inner.finish(round_id, fence, self._seal.seal(outcome, _OUTCOME, round_id))

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        await self._inner.release(round_id, fence)

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        await self._inner.put_journal(
            journal_id, self._seal.seal(data, _JOURNAL, journal_id), expires=expires
        )

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        kept = await self._inner.get_journal(journal_id)
        return None if kept is None else self._seal.open(kept, _JOURNAL, journal_id)

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        await self._inner.purge(now=now)

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date."""
        await self._inner.migrate()

    async def close(self) -> None:
        """Release what the store holds."""
        await self._inner.close()
