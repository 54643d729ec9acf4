"""Where what must outlive a request is kept.

That is the ledger of rounds, tasks, sessions of 2025, questions to people, and the stories of calls.

`store` says what a store is; `memory`, `sqlite` and `postgres` are the three that there are. They do not know
each other. What they share: `keys_of_entries`, `columns`, `story_columns`.

Knows: storage, leases and fences. Refuses to know: handlers, the protocol, and what the bytes mean.
"""

from pathlib import Path

from ekiden.errors import UsageError
from ekiden.stores.store import Store

__all__ = ["Store", "open_store"]


def open_store(url: str) -> Store:
    """The store that a URL names.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user@host/database` or `memory:`.
    """
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from ekiden.stores.sqlite.store import SQLiteStore

        return SQLiteStore(Path(url.removeprefix("sqlite:///")))
    if url == "memory:":
        from ekiden.stores.memory.store import MemoryStore

        return MemoryStore()
    if url.startswith(("postgresql://", "postgres://")):
        return _open_postgres(url)
    user, _, place = url.rpartition("@")  # The user has perhaps a password.
    shown = f"{user.partition('//')[0]}//...@{place}" if user else url
    raise UsageError(f"store must be sqlite:///path, postgresql://... or memory:, not {shown!r}")


def _open_postgres(url: str) -> Store:
    try:
        from ekiden.stores.postgres import PostgresStore
    except ImportError as error:
        raise UsageError(f"a store in Postgres needs `pip install ekiden[postgres]` ({error})") from error
    return PostgresStore(url)
