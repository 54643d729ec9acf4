"""What the client gets when a tool, a prompt or a resource returns or raises.

What the caller of a tool can correct is an `isError` result. A mistake of the author is logged with its
traceback; the client gets no details.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ekiden.errors import (
    InvalidRequest,
    MissingCapability,
    NonDeterminismError,
    ProtocolError,
    StoreUnavailable,
    ToolError,
)
from ekiden.rounds.asks import QUESTIONS, not_asked
from ekiden.rounds.outcome import Complete, Failed, Outcome, untraced
from ekiden.server.cancellation import ends_more_than_a_call
from ekiden.server.questions.input_required import InputRequired
from ekiden.signals import Ended, OutputInvalid, Restart
from ekiden.wire.json import JsonObject

__all__ = [
    "Ending",
    "PlainEnding",
    "after_handshake",
    "refused",
    "tool_error",
    "tool_failure",
]

_log = logging.getLogger(__name__)


class Ending(Protocol):
    """Turns the value or the exception of a handler into an outcome, for one kind of handler."""

    def complete(self, value: object) -> Outcome:
        """The outcome of a handler that returned."""
        ...

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """Map an exception to an outcome; re-raise what the dispatcher must handle."""
        ...


class PlainEnding(msgspec.Struct):
    """How a prompt or a resource ends: what it raises is an internal error."""

    result: Callable[[Any], JsonObject]

    def complete(self, value: object) -> Outcome:
        """The result of the prompt or resource for a value."""
        return Complete(self.result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """Re-raise everything but `InputRequired`: the dispatcher makes it an internal error."""
        if isinstance(error, InputRequired):
            return untraced(error)
        try:
            raise error
        finally:
            del error  # It knows this frame now.


def tool_failure(tool: str, error: BaseException) -> Outcome | InputRequired:
    """Map an exception of a tool to an outcome; re-raise what the dispatcher must handle."""
    if isinstance(error, InputRequired):
        return untraced(error)
    if isinstance(error, ToolError):
        return tool_error(str(untraced(error)))
    passes = isinstance(error, ProtocolError | NonDeterminismError | StoreUnavailable | Ended | Restart)
    if passes or ends_more_than_a_call(error):
        try:
            raise error
        finally:
            # It knows this frame now: a circle would keep the request until the garbage collector comes.
            del error
    if isinstance(error, OutputInvalid):
        _log.error("Tool %r returned a value that its output schema does not allow", tool, exc_info=error)
        untraced(error)
        return tool_error(f"Tool {tool!r} failed: its result does not fit its output schema")
    _log.error("Tool %r raised", tool, exc_info=error)
    untraced(error)
    return tool_error(f"Tool {tool!r} failed")


def refused(error: ProtocolError, *, in_words: bool) -> Outcome:
    """The outcome of a call that ended with an error; `in_words`, the model reads what could not be asked."""
    if in_words and isinstance(error, MissingCapability) and error.required.keys() <= QUESTIONS:
        return tool_error(not_asked(error.required, error.question))
    return Failed(error)


def tool_error(text: str) -> Complete:
    """A result with `isError` and this text."""
    return Complete({"content": [{"type": "text", "text": text}], "isError": True})


def after_handshake(outcome: Outcome, method: str) -> Outcome:
    """An outcome as clients of 2025 can be told it: they have no error code for a missing capability.

    The caller of a tool can correct that, so it gets a result.
    """
    if isinstance(outcome, Failed) and isinstance(missing := outcome.error, MissingCapability):
        text = not_asked(missing.required, missing.question)
        return tool_error(text) if method == "tools/call" else Failed(InvalidRequest(text))
    return outcome
