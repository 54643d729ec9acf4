"""What the client gets when a tool, a prompt or a resource returns or raises.

What the caller of a tool can correct is an `isError` result. A mistake of the author is logged with its
traceback; the client gets no details.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ekiden.errors import (
    Ended,
    NonDeterminismError,
    OutputInvalid,
    ProtocolError,
    Restart,
    StoreUnavailable,
    ToolError,
)
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.tools import Tool
from ekiden.wire.json import JsonObject

__all__ = ["Ending", "PlainEnding", "ToolEnding", "ends_more_than_a_call", "tool_error", "tool_failure"]

_log = logging.getLogger(__name__)


class Ending(Protocol):
    """Turns the value or the exception of a handler into an outcome, for one kind of handler."""

    def complete(self, value: object) -> Outcome:
        """The outcome of a handler that returned."""
        ...

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """Map an exception to an outcome; re-raise what the dispatcher must handle."""
        ...


def ends_more_than_a_call(error: BaseException) -> bool:
    """True for Ctrl-C and for cancellation of the request. False for `SystemExit`: it fails only the call."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


class ToolEnding(msgspec.Struct):
    """How a tool ends."""

    tool: Tool

    def complete(self, value: object) -> Outcome:
        """The tool's result for a value."""
        return Complete(self.tool.result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """Most exceptions become a result with `isError`."""
        return tool_failure(self.tool, error)


class PlainEnding(msgspec.Struct):
    """How a prompt or a resource ends: what it raises is an internal error."""

    result: Callable[[Any], JsonObject]

    def complete(self, value: object) -> Outcome:
        """The result of the prompt or resource for a value."""
        return Complete(self.result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """Re-raise everything but `InputRequired`: the dispatcher makes it an internal error."""
        if isinstance(error, InputRequired):
            return error
        raise error


def tool_failure(tool: Tool, error: BaseException) -> Outcome | InputRequired:
    """Map an exception of a tool to an outcome; re-raise what the dispatcher must handle."""
    if isinstance(error, InputRequired):
        return error
    if isinstance(error, ToolError):
        return tool_error(str(error))
    if isinstance(error, ProtocolError | NonDeterminismError | StoreUnavailable | Ended | Restart):
        raise error
    if ends_more_than_a_call(error):
        raise error
    if isinstance(error, OutputInvalid):
        _log.error("Tool %r returned a value that its output schema does not allow", tool.key, exc_info=error)
        return tool_error(f"Tool {tool.key!r} failed: its result does not fit its output schema")
    _log.error("Tool %r raised", tool.key, exc_info=error)
    return tool_error(f"Tool {tool.key!r} failed")


def tool_error(text: str) -> Complete:
    """A result with `isError` and this text."""
    return Complete({"content": [{"type": "text", "text": text}], "isError": True})
