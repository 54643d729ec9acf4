"""How handlers end: what the value of a tool, a prompt or a resource, or what it raised, means to the client.

What a tool's caller can mend is an `isError` result; what the author got wrong is logged with its trace
and told without it.
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

__all__ = ["Ending", "PlainEnding", "ToolEnding", "ends_more_than_a_call", "tool_error", "tool_failure"]

_log = logging.getLogger("ekiden.server")


class Ending(Protocol):
    """How a kind of handler ends: what its value, or what it raised, means to the client."""

    def complete(self, value: Any) -> Outcome:
        """The outcome of a handler that returned."""
        ...

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """The outcome of one that raised; what is not its own to explain is raised again."""
        ...


def ends_more_than_a_call(error: BaseException) -> bool:
    """Whether an exception is not the handler's own: Ctrl-C, or the request was cancelled.

    `sys.exit()` is: a library that means to end a program ends the call.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


class ToolEnding(msgspec.Struct):
    """How a tool ends."""

    tool: Tool

    def complete(self, value: Any) -> Outcome:
        """A value is the tool's result."""
        return Complete(self.tool.result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """What it raised is a result, too, as a rule."""
        return tool_failure(self.tool, error)


class PlainEnding(msgspec.Struct):
    """How a prompt or a resource ends: what it raises is an internal error."""

    result: Callable[[Any], dict[str, Any]]

    def complete(self, value: Any) -> Outcome:
        """A value is spelled as its kind wants it."""
        return Complete(self.result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """What it raised is not its own to explain."""
        if isinstance(error, InputRequired):
            return error
        raise error


def tool_failure(tool: Tool, error: BaseException) -> Outcome | InputRequired:
    """What a tool raised: what its caller can mend is a result, not an error."""
    if isinstance(error, InputRequired):
        return error
    if isinstance(error, ToolError):
        return tool_error(str(error))
    if isinstance(error, ProtocolError | NonDeterminismError | StoreUnavailable | Ended | Restart):
        raise error
    if ends_more_than_a_call(error):
        raise error
    if isinstance(error, OutputInvalid):
        _log.error("Tool %r returned what its output schema does not allow", tool.key, exc_info=error)
        return tool_error(f"Tool {tool.key!r} failed: its result does not fit its output schema")
    _log.error("Tool %r raised", tool.key, exc_info=error)
    return tool_error(f"Tool {tool.key!r} failed")


def tool_error(text: str) -> Complete:
    """A result that says what went wrong."""
    return Complete({"content": [{"type": "text", "text": text}], "isError": True})
