"""What a server makes of the store that it is given: tasks, sessions, the ledger of rounds; and its end."""

import os
from collections.abc import Callable

from ekiden.bus.port import Bus
from ekiden.errors import UsageError
from ekiden.people.store import PeopleStore
from ekiden.server.auth.auth import Auth
from ekiden.server.legacy.sessions import SessionLimits
from ekiden.server.people.port import PeoplePages
from ekiden.server.rounds.owning.once import Once
from ekiden.server.sealing.key_source import Keys, KeySource
from ekiden.server.sealing.keys import has_lasting_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.server.sealing.tokens import RoundLimits
from ekiden.sessions.shared import SessionRules, SharedSessions
from ekiden.stores import Store, open_store
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.leases.standby import Standby
from ekiden.tasks.limits import TaskLimits
from ekiden.tasks.store import TaskStore

__all__ = ["Storage", "once_in", "people_store", "release", "shared_sessions"]


class Storage:
    """The store of a server: found, opened if only its name is given, and sealed if it shall be."""

    def __init__(self, given: Store | str | None, keys: Keys | None, ring: KeySource, *, seals: bool) -> None:
        ring.check(seal_store=seals)
        found = given if given is not None else os.environ.get("EKIDEN_STORE") or None
        self.name = found if isinstance(found, str) else None
        """The name by which other processes can open the store, too; None if it has none."""
        opened = open_store(found) if isinstance(found, str) else found
        self.is_own = self.name is not None
        """Whether the server has opened it, and must close it."""
        self.is_shared = opened is not None and opened.shared and not isinstance(opened, MemoryStore)
        """Whether other processes can see what is in it."""
        if seals and self.is_shared and not has_lasting_keys(keys):
            raise UsageError("seal_store=True needs keys= or EKIDEN_KEYS: nothing would open after a restart")
        self.store = SealedStore(opened, ring) if seals and opened is not None else opened

    @property
    def tasks(self) -> TaskStore | None:
        """Where tasks are kept; None if there is no store, or it keeps none."""
        return None if self.store is None else self.store.tasks

    @property
    def bus(self) -> Bus | None:
        """How processes that share the store hear of each other; None if they do not."""
        return getattr(self.store, "bus", None)

    def standby(self, rounds: RoundLimits, tasks: TaskLimits) -> Standby | None:
        """Renews leases while the event loop is blocked; None if the store cannot be opened once more."""
        another = getattr(self.store, "another", None)
        return None if another is None else Standby(another, min(rounds.lease_seconds, tasks.lease_seconds))


def shared_sessions(
    store: Store | None, audience: str, limits: SessionLimits, clock: Callable[[], float]
) -> SharedSessions | None:
    """The sessions of 2025 in the store, if it keeps sessions."""
    sessions, bus = getattr(store, "sessions", None), getattr(store, "bus", None)
    if sessions is None or bus is None:
        return None
    rules = SessionRules(limits.sessions, limits.per_principal, limits.idle_seconds, limits.busy_seconds)
    return SharedSessions(sessions, bus, audience, rules, clock)


def people_store(store: Store | None, pages: PeoplePages, auth: Auth | None) -> PeopleStore:
    """Where the questions of pages are kept. `UsageError` if they cannot be, or must know who opens them."""
    kept: PeopleStore | None = getattr(store, "people", None)
    if kept is None:
        raise UsageError(
            "Server(pages=...) needs a store that keeps questions: store='sqlite:///questions.db'"
        )
    if auth is not None and not pages.knows_people:
        raise UsageError(
            "Server(auth=..., pages=...) must know who opens a page: write Pages(..., identify=...)"
        )
    return kept


async def release(auth: Auth | None, store: Store | None) -> None:
    """Close what the server has opened itself."""
    if auth is not None:
        await auth.close()
    if store is not None:
        await store.close()


def once_in(
    store: Store | None,
    limits: RoundLimits,
    result_bytes: int,
    clock: Callable[[], float],
    standby: Standby | None = None,
) -> Once:
    """The ledger of rounds: in the store, or in the memory of this process."""
    ledger = store or MemoryStore(shared=False)
    return Once(
        ledger,
        clock,
        lease=limits.lease_seconds,
        keep=limits.flow_seconds,
        room=None
        if store is None  # The memory of this process has its own bounds.
        else limits.room(),
        result_bytes=result_bytes,
        standby=standby,
    )
