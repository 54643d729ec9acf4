"""The ids of an upstream's tasks, sealed, so that the gateway remembers none of them.

The id that a client gets holds the upstream's, and whose task it is. So a task is found by any gateway with
the same keys, and by nobody else's request.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ekiden.client.tasks.handle import read_snapshot
from ekiden.errors import InvalidResult
from ekiden.rounds.outcome import Task
from ekiden.server.sealing.keys import TokenSealer
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Request
from ekiden.wire.tasks import TaskView

__all__ = ["TaskIds"]


_LONGEST: Final = 1024
"""Bytes of an upstream's id. Ours is longer, and has to fit into the header `Mcp-Name` of each request."""


class _Sealed(msgspec.Struct, frozen=True, array_like=True, tag="task"):
    """What the id of a task holds."""

    audience: str
    principal: str
    task_id: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Sealed).decode


class TaskIds:
    """Seals and opens the ids of one upstream's tasks."""

    def __init__(
        self, audience: str, sealer: Callable[[], TokenSealer], principal_of: Callable[[Request], str]
    ) -> None:
        self._audience = audience
        self._sealer = sealer
        self.principal_of = principal_of

    def become(self, request: Request, result: JsonObject) -> Task:
        """A task of the upstream as one of ours, for the sender of the call that became it."""
        seen = read_snapshot(result)
        if len(seen.task_id.encode()) > _LONGEST:
            raise InvalidResult(f"The id of the server's task has more than {_LONGEST} bytes")
        sealed = _Sealed(self._audience, self.principal_of(request), seen.task_id)
        view = TaskView(
            task_id=self._sealer().seal(_encode(sealed)),
            status=seen.status,
            created_at=seen.created_at,
            last_updated_at=seen.last_updated_at,
            ttl_ms=seen.ttl_ms,
            poll_interval_ms=seen.poll_interval_ms,
            status_message=seen.status_message,
        )
        return Task(view)

    def open(self, task_id: str, request: Request) -> str | None:
        """The upstream's id of a task, if it belongs to the sender of a request."""
        opened = self._sealer().open(task_id)
        try:
            sealed = None if opened is None else _decode(opened)
        except msgspec.MsgspecError:
            return None
        mine = (self._audience, self.principal_of(request))
        return None if sealed is None or (sealed.audience, sealed.principal) != mine else sealed.task_id
