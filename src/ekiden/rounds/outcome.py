"""How a leg ends. Middleware sees outcomes; a dialect spells them.

An outcome is not bytes yet: the same one is spelled differently for clients of different ages.
"""

import logging
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.asks import Ask
from ekiden.wire.json import ENCODE_ERRORS, decode
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.tasks import TaskView

__all__ = [
    "Complete",
    "Dialect",
    "Failed",
    "Interim",
    "Outcome",
    "Suspended",
    "Task",
    "too_large",
    "untraced",
]


_log = logging.getLogger(__name__)


class Dialect(Protocol):
    """What an outcome needs of a protocol version: a spelling for each way to end."""

    most_bytes: int
    """The longest result that is sent."""

    def complete(self, request_id: RequestId, result: dict[str, Any] | bytes) -> bytes:
        """Spell a final result."""
        ...

    def input_required(self, request_id: RequestId, requests: Mapping[str, Any], state: str | None) -> bytes:
        """Spell an interim result."""
        ...

    def task(self, request_id: RequestId, task: TaskView) -> bytes:
        """Spell that the request has become a task."""
        ...

    def error(self, request_id: RequestId | None, error: ProtocolError) -> bytes:
        """Spell an error."""
        ...


def too_large(size: int, most: int) -> InternalError:
    """The error that is sent instead of a result that is too large."""
    _log.error("A result has %d bytes, and at most %d are allowed (Server(result_bytes=...))", size, most)
    return InternalError(
        f"The result is too large: {size} bytes, and at most {most} are allowed. Ask for less of it at a time"
    )


E = TypeVar("E", bound=BaseException)


def untraced(error: E) -> E:
    """An exception that was logged, or needs no log, without the frames that it came through.

    They hold what the request has sent, and tasks in them hold the exception: only the garbage collector
    could remove such a circle, and it may come after a hundred large requests.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return error


class Complete(msgspec.Struct):
    """The request is answered. `result` is bytes if it was encoded ahead (lists, discovery)."""

    result: dict[str, Any] | bytes

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        """The response as `dialect` spells it; a result that JSON cannot represent is an error."""
        try:
            response = dialect.complete(request_id, self.result)
        except ENCODE_ERRORS:
            _log.exception("A result cannot be sent")
            return dialect.error(request_id, InternalError("The result cannot be sent as JSON"))
        if len(response) > dialect.most_bytes:
            return dialect.error(request_id, too_large(len(response), dialect.most_bytes))
        return response

    def as_dict(self) -> dict[str, Any]:
        """The result as a dict, also if it was encoded ahead."""
        if isinstance(self.result, bytes):
            decoded: dict[str, Any] = decode(self.result)
            return decoded
        return self.result


class Interim(msgspec.Struct):
    """The request needs answers first: an `InputRequiredResult`. The client comes back with them."""

    requests: dict[str, dict[str, Any]]
    """The questions by key, each with its method and params."""
    state: str | None
    """The sealed `requestState`."""

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        """The response as `dialect` spells it."""
        return dialect.input_required(request_id, self.requests, self.state)


class Task(msgspec.Struct):
    """The request has become a task: a `CreateTaskResult`. The client looks after it from here on."""

    task: TaskView

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        """The response as `dialect` spells it."""
        return dialect.task(request_id, self.task)


class Failed(msgspec.Struct):
    """The request cannot be answered: a JSON-RPC error."""

    error: ProtocolError

    def __post_init__(self) -> None:
        """Forget where it was raised."""
        untraced(self.error)

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        """The response as `dialect` spells it."""
        return dialect.error(request_id, self.error)


Outcome: TypeAlias = Complete | Interim | Task | Failed


class Suspended(msgspec.Struct):
    """The leg ended because it waits for the other side. Not an outcome yet: the server makes one of it."""

    asks: dict[str, Ask]
    """The questions, by the key that their answers come with."""
    pauses: list[str]
    """What else it waits for, by name: checkpoints and, in a task, times."""
