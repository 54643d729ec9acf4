"""Spans and durations, by the OpenTelemetry semantic conventions for MCP."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ekiden import Context, InvalidParams, Server, ToolError
from ekiden.telemetry.context import is_tracing
from tests.serving import PATIENCE, ask, call, notification, post, served

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def durations(reader: InMemoryMetricReader) -> list[dict[str, Any]]:
    """The attributes of every recorded duration."""
    data = reader.get_metrics_data()
    assert data is not None
    found: list[dict[str, Any]] = []
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == "mcp.server.operation.duration":
                    assert metric.unit == "s"
                    found.extend(dict(point.attributes or {}) for point in metric.data.data_points)
    return found


def observed() -> Server:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail(how: str) -> str:
        raise {"tool": ToolError("x"), "protocol": InvalidParams("the reason"), "other": OSError("x")}[how]

    @server.tool
    async def inner(ctx: Context) -> str:
        with trace.get_tracer("author").start_as_current_span("inner"):
            await asyncio.sleep(0)
        return "done"

    @server.prompt
    async def greet() -> str:
        return "hello"

    @server.resource("a://{x}")
    async def read(x: str) -> str:
        return x

    return server


async def span_of(
    spans: InMemorySpanExporter, method: str, params: dict[str, Any] | None = None, **meta: Any
) -> ReadableSpan:
    await ask(observed(), method, params, **meta)
    (span,) = spans.get_finished_spans()
    return span


async def test_a_tool_call_is_a_server_span_named_after_method_and_tool(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert span.name == "tools/call add"
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes or {}) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "1",
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_prompt_is_named(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "prompts/get", {"name": "greet"})
    assert span.name == "prompts/get greet"
    assert (span.attributes or {})["gen_ai.prompt.name"] == "greet"
    assert "gen_ai.operation.name" not in (span.attributes or {})


async def test_the_uri_of_a_resource_is_an_attribute_but_not_in_the_name(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "resources/read", {"uri": "a://1"})
    assert (span.attributes or {})["mcp.resource.uri"] == "a://1"
    assert span.name == "resources/read"


async def test_a_method_that_addresses_nothing_is_the_name(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "tools/list")
    assert span.name == "tools/list"


async def test_the_parent_is_the_trace_that_the_client_sent(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "tools/list", traceparent=TRACEPARENT, tracestate="rojo=1")
    assert span.context is not None
    assert format(span.context.trace_id, "032x") == TRACE_ID
    assert span.parent is not None
    assert format(span.parent.span_id, "016x") == SPAN_ID
    assert span.parent.is_remote
    assert span.parent.trace_state.get("rojo") == "1"


@pytest.mark.parametrize(
    "traceparent", ["nonsense", "", 1, None, {"a": 1}, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
async def test_a_malformed_parent_is_no_parent(spans: InMemorySpanExporter, traceparent: Any) -> None:
    span = await span_of(spans, "tools/list", traceparent=traceparent)
    assert span.parent is None


async def test_without_a_parent_the_span_is_a_root(spans: InMemorySpanExporter) -> None:
    assert (await span_of(spans, "tools/list")).parent is None


async def test_spans_of_the_handler_are_children(spans: InMemorySpanExporter) -> None:
    await ask(observed(), "tools/call", {"name": "inner"}, traceparent=TRACEPARENT)
    inner, outer = spans.get_finished_spans()
    assert (inner.name, outer.name) == ("inner", "tools/call inner")
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


@pytest.mark.parametrize(
    ("how", "error"), [("tool", "tool_error"), ("other", "tool_error"), ("protocol", "-32602")]
)
async def test_a_failure_has_its_error_type(spans: InMemorySpanExporter, how: str, error: str) -> None:
    span = await span_of(spans, "tools/call", {"name": "fail", "arguments": {"how": how}})
    assert (span.attributes or {})["error.type"] == error
    assert span.status.status_code is StatusCode.ERROR


async def test_a_json_rpc_error_is_recorded_with_its_code_and_message(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "tools/call", {"name": "fail", "arguments": {"how": "protocol"}})
    assert (span.attributes or {})["rpc.response.status_code"] == "-32602"
    assert span.status.description == "the reason"


async def test_an_unknown_tool_is_an_error_span(spans: InMemorySpanExporter) -> None:
    span = await span_of(spans, "tools/call", {"name": "nobody"})
    assert (span.attributes or {})["error.type"] == "-32602"


async def test_a_cancelled_request_ends_its_span(spans: InMemorySpanExporter) -> None:
    server = Server("s")
    began = asyncio.Event()

    @server.tool
    async def hold() -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        await channel.send(call("hold"))
        await began.wait()
        await channel.send(notification("notifications/cancelled", {"requestId": 1}))
        while not spans.get_finished_spans():
            await asyncio.sleep(0)


async def test_over_http_too(spans: InMemorySpanExporter) -> None:
    async with served(observed()) as base:
        await post(base, call("add", {"a": 1, "b": 2}, traceparent=TRACEPARENT))
        await post(base, call("inner", traceparent=TRACEPARENT))
    names = [span.name for span in spans.get_finished_spans()]
    assert names == ["tools/call add", "inner", "tools/call inner"]
    for span in spans.get_finished_spans():
        assert span.context is not None
        assert format(span.context.trace_id, "032x") == TRACE_ID


async def test_the_duration_is_recorded_without_what_differs_from_request_to_request(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    server = observed()
    await ask(server, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    await ask(server, "tools/call", {"name": "fail", "arguments": {"how": "tool"}})
    recorded = durations(metrics)
    common = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.operation.name": "execute_tool",
    }
    assert {**common, "gen_ai.tool.name": "add"} in recorded
    assert {**common, "gen_ai.tool.name": "fail", "error.type": "tool_error"} in recorded


async def test_uris_do_not_make_a_series_of_durations_each(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    for n in range(3):
        await ask(observed(), "resources/read", {"uri": f"a://{n}"})
    assert len(durations(metrics)) == 1


async def test_names_that_a_client_makes_up_are_neither_series_nor_names_of_spans(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    for n in range(3):
        await ask(observed(), "tools/call", {"name": f"nobody {n}"})
        await ask(observed(), "prompts/get", {"name": f"nothing {n}"})
    assert len(durations(metrics)) == 2
    finished = spans.get_finished_spans()
    assert {span.name for span in finished} == {"tools/call", "prompts/get"}
    assert (finished[0].attributes or {})["gen_ai.tool.name"] == "nobody 0", "each call can still be found"


async def test_whether_anybody_traces_is_known(spans: InMemorySpanExporter) -> None:
    assert is_tracing()


def test_an_api_without_a_provider_is_no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert not is_tracing()
