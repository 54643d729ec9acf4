"""The result of a task that has ended, for clients with a handshake: spelled once for all who wait for it."""

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.outcome import Complete, Dialect, Failed, Outcome, too_large
from ekiden.tasks.record import TaskRecord
from ekiden.wire.json import JsonObject, decode, encode
from ekiden.wire.jsonrpc import RequestId, result_response
from ekiden.wire.legacy import Legacy
from ekiden.wire.tasks import RELATED

__all__ = ["FinalResult", "related"]


def related(task_id: str) -> JsonObject:
    """The `_meta` of a message that belongs to a task."""
    return {RELATED: {"taskId": task_id}}


class FinalResult:
    """How one task has ended."""

    def __init__(self, record: TaskRecord) -> None:
        self.record = record
        self._result: bytes | None = None
        self._spelled: dict[str, bytes] = {}

    def outcome(self) -> Outcome:
        """The outcome of `tasks/result`. Each caller gets one of its own, and all share the bytes."""
        record = self.record
        if record.result is not None:
            return self._complete(record.result)
        if record.error is not None:
            error: JsonObject = decode(record.error)
            return Failed(ProtocolError(error["message"], code=error["code"], data=error.get("data")))
        return Failed(InternalError("The task was cancelled"))

    def _complete(self, kept: bytes) -> Complete:
        if self._result is None:
            result: JsonObject = decode(kept)
            result = {**result, "_meta": {**(result.get("_meta") or {}), **related(self.record.id)}}
            if result.get("isError"):
                return Complete(result)  # Whoever traces calls looks at that.
            self._result = encode(result)
        return _Shared(self._result, final=self, source=self._result)

    def spelled(self, dialect: Legacy, result: bytes) -> bytes:
        """The result as a version of the protocol has it."""
        spelled = self._spelled.get(dialect.version)
        if spelled is None:
            spelled = self._spelled[dialect.version] = encode(dialect.result(decode(result)))
        return spelled


class _Shared(Complete, kw_only=True):
    """A result whose bytes others send, too."""

    final: FinalResult
    source: bytes

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        if self.result is not self.source or not isinstance(dialect, Legacy):
            return Complete.render(self, dialect, request_id)  # Middleware has replaced it.
        response = result_response(request_id, self.final.spelled(dialect, self.source))
        if len(response) > dialect.most_bytes:
            return dialect.error(request_id, too_large(len(response), dialect.most_bytes))
        return response
