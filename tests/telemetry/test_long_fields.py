"""What a client makes up, in traces: it costs neither time nor memory."""

from typing import Any

import pytest
from opentelemetry import baggage, propagate
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ekiden.telemetry.context import carrier_of
from tests.processor import measured
from tests.telemetry.test_spans import TRACEPARENT, span_of

_LONG = 1_000_000
_MOST_MOMENTS = 10
"""Baggage of 8 kB took four times as long, and tracestate of 4 MB ten times."""

_FIELDS: dict[str, dict[str, str]] = {
    "spaces in baggage": {"baggage": "a=b" + " " * 8000 + "x"},
    "tabs in baggage": {"baggage": " \t" * 4000 + "x"},
    "long baggage": {"baggage": "a=b," * (_LONG // 4)},
    "many members": {"traceparent": TRACEPARENT, "tracestate": ",".join(f"a{n}=b" for n in range(100_000))},
    "long traceparent": {"traceparent": TRACEPARENT + "-" + " " * _LONG + "\nx"},
    "long link": {"io.modelcontextprotocol/tracelink": TRACEPARENT + "-" + " " * _LONG + "\nx"},
}


@pytest.mark.parametrize("what", _FIELDS)
async def test_a_trace_that_a_client_makes_up_takes_no_time(spans: InMemorySpanExporter, what: str) -> None:
    await span_of(spans, "tools/list")  # What is imported and made once.
    spans.clear()
    with measured() as took:
        await span_of(spans, "tools/list", None, **_FIELDS[what])
    assert took.moments < _MOST_MOMENTS


@pytest.mark.parametrize("sent", ["a=1,b=2", " a = 1 ,\t \tb = 2 ", "a=1,,b=2", "a=1, wrong = 3   4, b=2"])
def test_baggage_is_read_as_before(sent: str) -> None:
    found = propagate.extract(carrier_of({"baggage": sent, "other": 1}))
    assert dict(baggage.get_all(found)) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "n" * _LONG, "arguments": {}}),
        ("prompts/get", {"name": "n" * _LONG}),
        ("resources/read", {"uri": "a://" + "n" * _LONG}),
    ],
)
async def test_a_span_does_not_keep_a_name_of_a_megabyte(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader, method: str, params: dict[str, Any]
) -> None:
    span = await span_of(spans, method, params)
    assert len(repr((span.name, dict(span.attributes or {}), span.status.description))) < 3000
