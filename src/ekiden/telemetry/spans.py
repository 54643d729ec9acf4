"""One server span per request, a child of the trace that the client sent in `_meta`.

A round after the first is linked to the span that the client names there, too. OpenTelemetry is never
imported here unless the process has configured it.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.telemetry.context import carrier_of, links
from ekiden.telemetry.conventions import TARGETS, describe, title
from ekiden.telemetry.metrics import REQUEST_DURATION, record
from ekiden.wire.meta import TRACE_LINK
from ekiden.wire.modern import Request

__all__ = ["error_type", "mark_failed", "traced"]

_TOOL_ERROR: Final = "tool_error"
_OTHER: Final = "_OTHER"
"""What the conventions of OpenTelemetry call an error that is not told apart."""
_OF_THE_PROTOCOL: Final = range(-32768, -31999)
_LONGEST: Final = 500
"""Letters of what a client has made up, in an attribute. Spans wait in memory until they are exported."""
_MOST_CODES: Final = 100
"""Codes of authors that are told apart."""


async def traced(request: Request, answer: Callable[[], Awaitable[Outcome]], *, known: bool) -> Outcome:
    """Answer within a span, and record how long it took.

    `known`: the tool, prompt or resource exists. Names that clients make up must not become metric series.
    """
    from opentelemetry import propagate, trace
    from opentelemetry.trace import SpanKind

    attributes = describe(request.method, None if request.name is None else request.name[:_LONGEST])
    attributes["mcp.protocol.version"] = request.meta.protocol_version
    attributes["jsonrpc.request.id"] = str(request.id)[:_LONGEST]
    tracer = trace.get_tracer("ekiden")
    started = time.perf_counter()
    with tracer.start_as_current_span(
        title(request.method, request.name) if known else request.method,
        context=propagate.extract(carrier_of(request.meta.fields)),
        kind=SpanKind.SERVER,
        attributes=attributes,
        links=links(request.meta.fields.get(TRACE_LINK)),
    ) as span:
        outcome = await answer()
        if (error := error_type(outcome)) is not None:
            attributes["error.type"] = error
            mark_failed(span, outcome, error)
    for unbounded in ("jsonrpc.request.id", "mcp.resource.uri", *(() if known else TARGETS.values())):
        attributes.pop(unbounded, None)
    if "error.type" in attributes:
        attributes["error.type"] = _codes.counted(attributes["error.type"])
    record(REQUEST_DURATION, time.perf_counter() - started, attributes)
    return outcome


class _Codes:
    """Codes of errors that are metric series of their own.

    Those of the protocol are few. A server behind a gateway may make up a new one for every call.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def counted(self, error: str) -> str:
        """An `error.type` as it is recorded."""
        if error == _TOOL_ERROR or int(error) in _OF_THE_PROTOCOL or error in self._seen:
            return error
        if len(self._seen) >= _MOST_CODES:
            return _OTHER
        self._seen.add(error)
        return error


_codes: Final = _Codes()


def mark_failed(span: Any, outcome: Outcome, error: str) -> None:
    """Mark a span as failed, with the reason."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", error)
    reason = outcome.error if isinstance(outcome, Failed) else None
    if reason is not None:
        span.set_attribute("rpc.response.status_code", str(reason.code))
    span.set_status(Status(StatusCode.ERROR, None if reason is None else reason.message[:_LONGEST]))


def error_type(outcome: Outcome) -> str | None:
    """The `error.type` of an outcome; None if it is not a failure."""
    if isinstance(outcome, Failed):
        return str(outcome.error.code)
    result = outcome.result if isinstance(outcome, Complete) else None
    return _TOOL_ERROR if isinstance(result, dict) and result.get("isError") else None
