"""How processes hear of changes to tasks: by a NOTIFY in the transaction of the change.

Signals are hints. Watchers in the process that made a change are called without the database. While the
listening connection is cut, workers find changes only by looking.
"""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from ekiden.bus.listeners import Listeners
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.listening import MOST_BYTES, Listening
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Signal, Watcher

__all__ = ["PostgresSignals", "payloads"]


class _News(msgspec.Struct, array_like=True):
    origin: str
    """The process that made the change: it ignores its own messages."""
    signals: list[Signal]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_News).decode


def payloads(origin: str, signals: Sequence[Signal]) -> list[str]:
    """Signals as the payloads of NOTIFY, as few as possible."""
    if not signals:
        return []
    payload = _encode(_News(origin, list(signals)))
    if len(payload) <= MOST_BYTES:
        return [payload.decode()]
    if len(signals) == 1:
        return []  # The id has thousands of characters: found by looking only.
    half = len(signals) // 2
    return [*payloads(origin, signals[:half]), *payloads(origin, signals[half:])]


class PostgresSignals:
    """Sends and receives signals for one process."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._watchers = Listeners[Signal]()
        self.origin = secrets.token_hex(6)
        self._listening = Listening(database, "ekiden_tasks", self._hear)

    def tell(self, record: TaskRecord) -> None:
        """Call the watchers of this process. Call it after the commit."""
        self._watchers.tell(Signal(record.id, record.due))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` for every change; call what is returned to end that."""
        remove = self._watchers.add(watcher)
        self._listening.start()

        def end() -> None:
            remove()
            if not self._watchers:
                self._listening.end()

        return end

    def _hear(self, payload: str) -> None:
        try:
            news = _decode(payload)
        except msgspec.MsgspecError:
            return  # Not ours, or of another version.
        if news.origin != self.origin:
            for signal in news.signals:
                self._watchers.tell(signal)

    async def close(self) -> None:
        """Stop listening."""
        await self._listening.close()
