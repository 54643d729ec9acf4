"""Middleware: functions that run around every request and, on demand, around every leg of a task."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.outcome import Failed, Outcome
from ekiden.transports.server.port import Stream
from ekiden.wire.modern import Request

__all__ = ["CallNext", "Middleware", "Run", "around"]

_log = logging.getLogger(__name__)

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
        try:
            return await middleware(request, lambda passed: inner(passed, stream))
        except ProtocolError as error:
            return Failed(error)
        except Exception:
            _log.exception("A middleware raised on %s", request.method)
            return Failed(InternalError("Internal error"))

    return run
