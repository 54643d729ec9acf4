"""One server span per request, a child of the trace that the client sent in `_meta`.

Attributes follow the OpenTelemetry semantic conventions for MCP. OpenTelemetry is never
imported here unless the process has configured it.
"""

import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.wire.modern import Request

__all__ = ["current_trace", "error_type", "is_tracing", "link_to", "mark_failed", "traced"]

_TARGET: Final = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
}


def is_tracing() -> bool:
    """Whether this process has set up a tracer provider."""
    api: Any = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def link_to(traceparent: str) -> None:
    """Link the current span to the first round of its call, which had this `traceparent`."""
    if is_tracing():
        from opentelemetry import propagate, trace

        first = trace.get_current_span(propagate.extract({"traceparent": traceparent})).get_span_context()
        if first.is_valid:
            trace.get_current_span().add_link(first)


def current_trace() -> str | None:
    """The `traceparent` of the current span, if there is one."""
    if not is_tracing():
        return None
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent")


async def traced(request: Request, answer: Callable[[], Awaitable[Outcome]], *, known: bool) -> Outcome:
    """Answer within a span, and record how long it took.

    `known`: the tool, prompt or resource exists. Names that clients make up must not become metric series.
    """
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import SpanKind

    attributes: dict[str, Any] = {
        "mcp.method.name": request.method,
        "mcp.protocol.version": request.meta.protocol_version,
        "jsonrpc.request.id": str(request.id),
    }
    if (target := _TARGET.get(request.method)) is not None:
        attributes[target] = request.name
    if request.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    carrier = {key: value for key, value in request.meta.fields.items() if isinstance(value, str)}
    tracer = trace.get_tracer("ekiden")
    histogram = metrics.get_meter("ekiden").create_histogram(
        "mcp.server.operation.duration", unit="s", description="Time to answer a request"
    )
    started = time.perf_counter()
    with tracer.start_as_current_span(
        _span_name(request) if known else request.method,
        context=propagate.extract(carrier),
        kind=SpanKind.SERVER,
        attributes=attributes,
    ) as span:
        outcome = await answer()
        if (error := error_type(outcome)) is not None:
            attributes["error.type"] = error
            mark_failed(span, outcome, error)
    for unbounded in ("jsonrpc.request.id", "mcp.resource.uri", *(() if known else _TARGET.values())):
        attributes.pop(unbounded, None)
    histogram.record(time.perf_counter() - started, attributes)
    return outcome


def _span_name(request: Request) -> str:
    """The method and the tool or prompt. Not the URI: there are too many for names of spans."""
    if request.name is None or request.method == "resources/read":
        return request.method
    return f"{request.method} {request.name}"


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
