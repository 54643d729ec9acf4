"""Trace contexts as they travel: in `_meta`, in tokens, in the rows of tasks.

Knows: the fields of W3C Trace Context that `_meta` reserves (SEP-414), and how a span is linked to another.
What a client sends is bounded before OpenTelemetry reads it. OpenTelemetry is never imported here unless the
process has configured it.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["carrier_of", "current_trace", "first_trace", "is_tracing", "link_to", "links"]

_LONGEST: Final = 8192
"""Letters of a field that are read: so much of `baggage` must be passed on, and of the others less."""
_LONGEST_PARENT: Final = 512
"""Letters of a `traceparent`. It has 55; later versions of it may have more."""
_BAGGAGE: Final = "baggage"
_SPACES: Final = re.compile(r"[ \t]+")


def is_tracing() -> bool:
    """Whether this process has set up a tracer provider."""
    api: Any = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def current_trace() -> str | None:
    """The `traceparent` of the current span, if there is one."""
    if not is_tracing():
        return None
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent")


def first_trace(fields: Mapping[str, Any]) -> str | None:
    """What later rounds are linked to: the current span, else the one that the client sent in `_meta`."""
    if "opentelemetry.trace" in sys.modules and (current := current_trace()) is not None:
        return current
    sent = fields.get("traceparent")
    return sent if type(sent) is str and len(sent) <= _LONGEST_PARENT else None


def carrier_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """What OpenTelemetry may read of the `_meta` that a client has sent.

    It splits baggage in a time that grows with the square of the spaces in it, so a run of them becomes one.
    """
    carrier = {
        name: value for name, value in fields.items() if isinstance(value, str) and len(value) <= _LONGEST
    }
    if _BAGGAGE in carrier:
        carrier[_BAGGAGE] = _SPACES.sub(" ", carrier[_BAGGAGE])
    return carrier


def links(traceparent: object) -> list[Any]:
    """A link to the span that has this `traceparent`; none if it is malformed or missing."""
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST_PARENT:
        return []
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

    there = propagate.extract({"traceparent": traceparent}, context=Context())
    span = trace.get_current_span(there).get_span_context()
    return [trace.Link(span)] if span.is_valid else []


def link_to(traceparent: str) -> None:
    """Link the current span to the one that has this `traceparent`."""
    if is_tracing():
        from opentelemetry import trace

        for link in links(traceparent):
            trace.get_current_span().add_link(link.context)
