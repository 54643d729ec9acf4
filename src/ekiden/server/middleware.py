"""Middleware: functions that run around every request and, on demand, around every leg of a task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
from ekiden.server.cancellation import ends_more_than_a_call
from ekiden.transports.server.port import Stream
from ekiden.wire.modern import Request
from ekiden.wire.printable import printable

__all__ = ["CallNext", "Middleware", "Run", "around"]

_log = logging.getLogger(__name__)

_OUTCOMES: Final = (Complete, Interim, Task, Failed)

CallNext: TypeAlias = Callable[[Request], Awaitable[Outcome]]
Middleware: TypeAlias = Callable[[Request, CallNext], Awaitable[Outcome]]
"""Called around every request: look at it, pass it on or not, look at its outcome."""

Run: TypeAlias = Callable[[Request, Stream], Coroutine[Any, Any, Outcome]]


def around(layers: Iterable[Middleware], innermost: Run) -> Run:
    """Wrap `innermost` in middleware. The first layer is the outermost."""
    run = innermost
    for layer in reversed(tuple(layers)):
        run = _around(layer, run)
    return run


def _around(middleware: Middleware, inner: Run) -> Run:
    async def run(request: Request, stream: Stream) -> Outcome:
        method = request.method
        try:
            outcome: Any = await middleware(request, lambda passed: inner(passed, stream))
        except ProtocolError as error:
            return Failed(error)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if ends_more_than_a_call(error):
                raise
            _log.exception("A middleware raised on %s", printable(method))
            return Failed(InternalError("Internal error"))
        if not isinstance(outcome, _OUTCOMES):  # Without a response the client would wait for ever.
            _log.error(
                "Middleware %r must return an outcome, such as that of `call_next`; on %s it returned %r",
                getattr(middleware, "__qualname__", middleware),
                printable(method),
                outcome,
            )
            return Failed(InternalError("Internal error"))
        return outcome

    return run
