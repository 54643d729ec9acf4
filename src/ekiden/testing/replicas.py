"""Several instances of one server, which share only their keys."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ekiden.server.server import Server
from ekiden.testing.answers import Script
from ekiden.testing.client import EVERYTHING, ScriptedClient

__all__ = ["Replicas"]


class Replicas:
    """Runs every round of a call in another instance than the round before.

    `make` builds one instance, and must give all of them the same keys. `order` is which instance
    serves which round; by default they take turns.
    """

    def __init__(
        self, make: Callable[[], Server], count: int = 3, order: Sequence[int] | None = None
    ) -> None:
        self.servers = [make() for _ in range(count)]
        self._turns = itertools.cycle(range(count) if order is None else order)
        self.served: list[int] = []
        """Which instance served which round."""

    def next(self) -> Server:
        """The instance for the next round."""
        turn = next(self._turns)
        self.served.append(turn)
        return self.servers[turn]

    def client(
        self,
        answers: Script | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
        progress: bool = False,
        log: bool | str = False,
        tasks: bool = False,
    ) -> ScriptedClient:
        """A scripted client whose rounds go from instance to instance. For tasks they must share a store."""
        return ScriptedClient(
            self.next, answers, capabilities=capabilities, progress=progress, log=log, tasks=tasks
        )
