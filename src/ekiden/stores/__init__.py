"""Where what must outlive a request is kept: the ledger of rounds.

Know: storage, leases and fences. Refuse to know: handlers, the protocol, and what the bytes mean.
"""

from pathlib import Path

from ekiden.errors import UsageError
from ekiden.rounds.ledger import Ledger

__all__ = ["open_store"]


def open_store(url: str) -> Ledger:
    """The store that a URL names: `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory:`."""
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from ekiden.stores.sqlite import SQLiteStore

        return SQLiteStore(Path(url.removeprefix("sqlite:///")))
    if url == "memory:":
        from ekiden.stores.memory import MemoryStore

        return MemoryStore()
    raise UsageError(f"store {url!r} is neither sqlite:///path nor memory:")
