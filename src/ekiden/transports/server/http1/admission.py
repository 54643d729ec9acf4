"""Requests of one connection about which the gate decides before their bodies are read."""

import asyncio
import functools
from typing import Protocol

from ekiden.transports.server.gate import Gate
from ekiden.transports.server.proxies import RELAYED_FOR
from ekiden.wire.incoming import Incoming, Refusal

__all__ = ["Admissions", "is_final"]


class Reader(Protocol):
    """What admissions need of their connection."""

    loop: asyncio.AbstractEventLoop

    def set_reading(self) -> None:
        """Read on, or not, now that this may have changed."""
        ...

    def decided(self, incoming: Incoming, refusal: Refusal | None) -> None:
        """The gate has decided about a request."""
        ...


class Admissions:
    """Shows requests to the gate, and counts those about which it has not decided yet."""

    def __init__(self, reader: Reader, gate: Gate, address: str | None) -> None:
        self._reader = reader
        self._gate = gate
        self._address = address
        self.undecided = 0

    def look(self, incoming: Incoming, query: bytes) -> Refusal | None:
        """Have the gate find out who sends a request. If that takes time, nothing is read meanwhile."""
        if self._address is None and (relayed := incoming.headers.get(RELAYED_FOR)) is not None:
            incoming.address = relayed.decode("latin-1")  # From another worker, over a private socket.
        incoming.query = query
        admission = self._gate.admit(incoming)
        if admission is not None:
            task = asyncio.Task(admission, loop=self._reader.loop, name="ekiden gate")
            incoming.admission = task
            self.undecided += 1
            self._reader.set_reading()
            task.add_done_callback(functools.partial(self._decided, incoming))
        return incoming.refusal

    def _decided(self, incoming: Incoming, task: "asyncio.Task[Refusal | None]") -> None:
        self.undecided -= 1
        if task.cancelled():
            refusal: Refusal | None = Refusal(503, "The server is shutting down")
        else:
            refusal = Refusal(500, "Internal error") if task.exception() is not None else task.result()
        self._reader.decided(incoming, refusal)


def is_final(refusal: Refusal | None) -> bool:
    """Whether a request is refused whatever its body is. GET and DELETE mean something in a session."""
    return refusal is not None and refusal.status not in (0, 405)
