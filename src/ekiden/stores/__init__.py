"""Where what must outlive a request is kept: the ledger of rounds, and tasks.

Know: storage, leases and fences. Refuse to know: handlers, the protocol, and what the bytes mean.
"""

from pathlib import Path

from ekiden.errors import UsageError
from ekiden.rounds.ledger import Ledger

__all__ = ["open_store"]


def open_store(url: str) -> Ledger:
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
    raise UsageError(f"store {url!r} is none of sqlite:///path, postgresql://... and memory:")


def _open_postgres(url: str) -> Ledger:
    try:
        from ekiden.stores.postgres import PostgresStore
    except ImportError as error:
        raise UsageError(f"a store in Postgres needs `pip install ekiden[postgres]` ({error})") from error
    return PostgresStore(url)
