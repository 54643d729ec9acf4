"""How the tests of the contract get at a store."""

import abc
from contextlib import AbstractAsyncContextManager

from ekiden.tasks.store import TaskStore

__all__ = ["OpensTaskStore"]


class OpensTaskStore(abc.ABC):
    """Every test opens an empty store, twice: as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[TaskStore, TaskStore]]:
        """Two ways into one empty store."""
