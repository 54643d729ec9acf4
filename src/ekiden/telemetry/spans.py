"""One server span per request, a child of the trace that the client sent in `_meta`.

A round after the first is linked to the span that the client names there, too. OpenTelemetry is never
imported here unless the process has configured it.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.telemetry.context import links
from ekiden.telemetry.conventions import TARGETS, describe, title
from ekiden.telemetry.metrics import REQUEST_DURATION, record
from ekiden.wire.meta import TRACE_LINK
from ekiden.wire.modern import Request

__all__ = ["error_type", "mark_failed", "traced"]


async def traced(request: Request, answer: Callable[[], Awaitable[Outcome]], *, known: bool) -> Outcome:
    """Answer within a span, and record how long it took.

    `known`: the tool, prompt or resource exists. Names that clients make up must not become metric series.
    """
    from opentelemetry import propagate, trace
    from opentelemetry.trace import SpanKind

    attributes = describe(request.method, request.name)
    attributes["mcp.protocol.version"] = request.meta.protocol_version
    attributes["jsonrpc.request.id"] = str(request.id)
    carrier = {key: value for key, value in request.meta.fields.items() if isinstance(value, str)}
    tracer = trace.get_tracer("ekiden")
    started = time.perf_counter()
    with tracer.start_as_current_span(
        title(request.method, request.name) if known else request.method,
        context=propagate.extract(carrier),
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
    record(REQUEST_DURATION, time.perf_counter() - started, attributes)
    return outcome


def mark_failed(span: Any, outcome: Outcome, error: str) -> None:
    """Mark a span as failed, with the reason."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", error)
    reason = outcome.error if isinstance(outcome, Failed) else None
    if reason is not None:
        span.set_attribute("rpc.response.status_code", str(reason.code))
    span.set_status(Status(StatusCode.ERROR, None if reason is None else reason.message))


def error_type(outcome: Outcome) -> str | None:
    """The `error.type` of an outcome; None if it is not a failure."""
    if isinstance(outcome, Failed):
        return str(outcome.error.code)
    result = outcome.result if isinstance(outcome, Complete) else None
    return "tool_error" if isinstance(result, dict) and result.get("isError") else None
