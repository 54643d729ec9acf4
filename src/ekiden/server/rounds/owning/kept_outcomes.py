"""How a round ended, as bytes for the ledger."""

import msgspec

from ekiden.errors import ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
from ekiden.wire.tasks import TaskView

__all__ = ["decode_outcome", "encode_outcome"]


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome as bytes for the ledger."""
    match outcome:
        case Complete(result):
            return msgspec.msgpack.encode(["complete", result])
        case Interim(requests, state):
            return msgspec.msgpack.encode(["interim", requests, state])
        case Task(task):
            return msgspec.msgpack.encode(["task", msgspec.to_builtins(task)])
        case _:
            error = outcome.error
            return msgspec.msgpack.encode(["failed", error.code, error.message, error.data])


def decode_outcome(data: bytes) -> Outcome:
    """An outcome that the ledger kept."""
    kind, *fields = msgspec.msgpack.decode(data)
    if kind == "complete":
        return Complete(fields[0])
    if kind == "interim":
        return Interim(fields[0], fields[1])
    if kind == "task":
        return Task(msgspec.convert(fields[0], TaskView))
    code, message, details = fields
    return Failed(ProtocolError(message, code=code, data=details))
