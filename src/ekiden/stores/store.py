"""What a store is: where a server keeps what must outlive a request.

A store has two halves. The ledger (`ekiden.rounds.ledger.Ledger`) remembers rounds, so that a repeated round
runs no step twice; `tasks` keeps tasks and their journals. `open_store` opens the three that come with
ekiden. To write another one, implement `Store`, and let `ekiden.testing.LedgerContract` and
`ekiden.testing.TaskStoreContract` check it.
"""

from typing import Protocol

from ekiden.rounds.ledger import Ledger
from ekiden.tasks.store import TaskStore

__all__ = ["Store"]


class Store(Ledger, Protocol):
    """A ledger of rounds, and tasks. `Server(store=...)` takes any object that has these methods.

    All methods of one store are called in one event loop at a time. They raise `StoreUnavailable` if the same
    call may succeed later, `StoreRefused` if this one value can never be kept, and `UsageError` if the store
    cannot be used at all.
    """

    @property
    def tasks(self) -> TaskStore | None:
        """Where tasks are kept; None if this store keeps only rounds. Then no tool can have `task=`."""
        ...

    async def migrate(self) -> None:
        """Make what the store needs, such as tables, or bring it up to date. Harmless if it is."""
        ...
