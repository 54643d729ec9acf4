"""What a store is: where a server keeps what must outlive a request.

The ledger (`ekiden.rounds.ledger.Ledger`) remembers rounds, so that a repeated round runs no step twice;
`tasks` keeps tasks and their journals; `sessions` keeps those of clients of 2025; `people` keeps questions
that people answer on a page; `stories` keeps what happened to calls; `bus` lets the processes that share the
store hear of each other. `open_store` opens the three that come with ekiden. To write another one, implement
`Store`, and let the contracts of `ekiden.testing` check it: `LedgerContract`, `TaskStoreContract`,
`BusContract`, `SessionStoreContract`, `PeopleStoreContract` and `StoryStoreContract`.
"""

from collections.abc import Callable
from typing import Protocol

from ekiden.bus.port import Bus
from ekiden.people.store import PeopleStore
from ekiden.rounds.ledger import Ledger
from ekiden.sessions.store import SessionStore
from ekiden.stories.store import StoryStore
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

    @property
    def bus(self) -> Bus | None:
        """How processes that share this store hear of each other; None, or not there: each is alone."""
        ...

    @property
    def sessions(self) -> SessionStore | None:
        """Where sessions of 2025 are kept; None, or not there: in the memory of each process. Needs a bus."""
        ...

    @property
    def people(self) -> PeopleStore | None:
        """Where questions to people are kept; None, or not there: then `Server(pages=...)` is refused."""
        ...

    @property
    def stories(self) -> StoryStore | None:
        """Where it is kept what happened to calls, if a server records that; None, or not there: nowhere."""
        ...

    @property
    def another(self) -> "Callable[[], Store] | None":
        """Opens the same store with connections of its own, for the event loop of another thread.

        With it leases are renewed although a step blocks the event loop. None, or not there: then they run
        out, and another process may begin the step again.
        """
        ...

    async def migrate(self) -> None:
        """Make what the store needs, such as tables, or bring it up to date. Harmless if it is."""
        ...
