"""Spans of a client: one for each call, and in it one for each request, which takes the trace to the server.

The rounds of a call are requests of their own. From the second on they name the first in `_meta`
(`wire.meta.TRACE_LINK`), and their spans are linked to it, also if another process makes them.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ekiden.errors import ServerError
from ekiden.telemetry.context import links
from ekiden.telemetry.conventions import describe, title
from ekiden.wire.json import JsonObject
from ekiden.wire.meta import TRACE_LINK

__all__ = ["traced_call", "traced_request"]

_CALLS: Final = {"tools/call": "call", "prompts/get": "prompt", "resources/read": "resource"}


async def traced_call(method: str, name: str, drive: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    """Make a call to its end in a span: all its rounds, and its task if it becomes one."""
    from opentelemetry import trace

    called = _CALLS[method] if method == "resources/read" else f"{_CALLS[method]} {name}"
    with trace.get_tracer("ekiden").start_as_current_span(called, attributes=describe(method, name)) as span:
        result = await drive()
        _mark(span, result)
    return result


async def traced_request(
    method: str,
    name: str | None,
    version: str,
    meta: Mapping[str, Any],
    send: Callable[[JsonObject], Awaitable[JsonObject]],
) -> JsonObject:
    """Make a request in a span. `send` gets its `_meta` with the trace in it.

    A `traceparent` that the caller has put into `meta` stays as it is.
    """
    from opentelemetry import propagate, trace

    with trace.get_tracer("ekiden").start_as_current_span(
        title(method, name),
        kind=trace.SpanKind.CLIENT,
        attributes={**describe(method, name), "mcp.protocol.version": version},
        links=links(meta.get(TRACE_LINK)),
    ) as span:
        carrier: dict[str, Any] = {}
        propagate.inject(carrier)
        try:
            result = await send({**carrier, **meta})
        except ServerError as error:
            span.set_attributes({"error.type": str(error.code), "rpc.response.status_code": str(error.code)})
            raise
        _mark(span, result)
    return result


def _mark(span: Any, result: JsonObject) -> None:
    """Mark the span of a tool that failed. Exceptions mark theirs without us."""
    if result.get("isError"):
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", "tool_error")
        span.set_status(Status(StatusCode.ERROR))
