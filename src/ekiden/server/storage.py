"""What a server makes of the store that it is given: sessions, the ledger of rounds; and its end."""

import os
from collections.abc import Callable

from ekiden.errors import UsageError
from ekiden.server.auth.auth import Auth
from ekiden.server.legacy.sessions import SessionLimits
from ekiden.server.people.people import People
from ekiden.server.people.port import PeoplePages
from ekiden.server.rounds.once import Once
from ekiden.server.sealing.key_source import Keys
from ekiden.server.sealing.keys import TokenSealer, has_lasting_keys
from ekiden.server.sealing.room import Room
from ekiden.server.sealing.tokens import RoundLimits
from ekiden.sessions.shared import SessionRules, SharedSessions
from ekiden.stores import Store, open_store
from ekiden.stores.memory import MemoryStore

__all__ = ["check_lasting", "find_store", "name_of", "once_in", "people_in", "release", "shared_sessions"]


def check_lasting(keys: Keys | None) -> None:
    """Refuse to seal a store with keys that end with the process."""
    if not has_lasting_keys(keys):
        raise UsageError("seal_store=True needs keys= or EKIDEN_KEYS: nothing would open after a restart")


def find_store(store: Store | str | None) -> tuple[Store | None, bool]:
    """The store, opened if only its name is given, and whether the server opened it."""
    given = store if store is not None else os.environ.get("EKIDEN_STORE") or None
    return (open_store(given), True) if isinstance(given, str) else (given, False)


def shared_sessions(
    store: Store | None, audience: str, limits: SessionLimits, clock: Callable[[], float]
) -> SharedSessions | None:
    """The sessions of 2025 in the store, if it keeps sessions."""
    sessions, bus = getattr(store, "sessions", None), getattr(store, "bus", None)
    if sessions is None or bus is None:
        return None
    rules = SessionRules(limits.sessions, limits.per_principal, limits.idle_seconds, limits.busy_seconds)
    return SharedSessions(sessions, bus, audience, rules, clock)


def people_in(
    store: Store | None,
    pages: PeoplePages | None,
    *,
    auth: Auth | None,
    audience: str,
    name: str,
    keys: Callable[[], TokenSealer],
    clock: Callable[[], float],
) -> People | None:
    """The questions that people answer on pages; None if the server has no pages."""
    if pages is None:
        return None
    kept = getattr(store, "people", None)
    if kept is None:
        raise UsageError(
            "Server(pages=...) needs a store that keeps questions: store='sqlite:///questions.db'"
        )
    if auth is not None and not pages.knows_people:
        raise UsageError(
            "Server(auth=..., pages=...) must know who opens a page: write Pages(..., identify=...)"
        )
    return People(kept, pages, audience=audience, name=name, keys=keys, clock=clock)


async def release(auth: Auth | None, store: Store | None) -> None:
    """Close what the server has opened itself."""
    if auth is not None:
        await auth.close()
    if store is not None:
        await store.close()


def once_in(store: Store | None, limits: RoundLimits, result_bytes: int, clock: Callable[[], float]) -> Once:
    """The ledger of rounds: in the store, or in the memory of this process."""
    ledger = store or MemoryStore(shared=False)
    return Once(
        ledger,
        clock,
        lease=limits.lease_seconds,
        keep=limits.flow_seconds,
        room=None
        if store is None  # The memory of this process has its own bounds.
        else Room(limits.stored_bytes_per_principal, limits.stored_bytes_without_principal),
        result_bytes=result_bytes,
    )


def name_of(store: Store | str | None) -> str | None:
    """The name by which other processes can open the store, too; None if it has none."""
    if store is None:
        return os.environ.get("EKIDEN_STORE") or None
    return store if isinstance(store, str) else None
