"""Spans and durations of the legs of a task."""

import asyncio
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ekiden import Context, InvalidParams, Server, ToolError
from ekiden.stores.memory import MemoryStore
from tests.tasks.driving import TaskClient, accept, new_server

CLIENT_SPAN = "00f067aa0ba902b7"
TRACEPARENT = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{CLIENT_SPAN}-01"


def observed() -> Server:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def tool(ctx: Context, how: str = "well") -> str:
        with trace.get_tracer("author").start_as_current_span("inner"):
            pass
        if how == "tool":
            raise ToolError("x")
        if how == "protocol":
            raise InvalidParams("the reason")
        if how == "sleeping":
            await ctx.sleep(0.01)
        elif how != "well":
            await ctx.elicit("sure?", bool, key="sure")
        return "done"

    return server


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def legs(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """The spans of legs, when there are so many: a client sees a result before the leg is quite over."""
    async with asyncio.timeout(30):
        while len(found := named(spans, "task tool")) < count:
            await asyncio.sleep(0.001)
    assert len(found) == count
    return found


async def leg_that_ends(spans: InMemorySpanExporter, how: str) -> ReadableSpan:
    server = observed()
    async with server.running():
        client = TaskClient(server)
        await client.until(await client.start(arguments={"how": how}), "completed", "failed")
        (leg,) = await legs(spans, 1)
    return leg


async def test_every_leg_is_a_span_linked_to_the_call_that_became_the_task(
    spans: InMemorySpanExporter,
) -> None:
    server = observed()
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start(arguments={"how": "asking"})
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: accept(True)})
        assert await client.text(task_id) == "done"
        found = await legs(spans, 2)
    (call,) = named(spans, "tools/call tool")
    assert call.context is not None
    for number, leg in enumerate(found, 1):
        assert leg.kind is SpanKind.CONSUMER
        assert leg.parent is None
        (link,) = leg.links
        assert link.context.span_id == call.context.span_id
        assert link.context.trace_id == call.context.trace_id
        assert leg.status.status_code is StatusCode.UNSET
        assert dict(leg.attributes or {}) == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "tool",
            "mcp.protocol.version": "2026-07-28",
            "ekiden.task.id": task_id,
            "ekiden.task.leg": number,
            "ekiden.task.leg.ended": "waiting for input" if number == 1 else "completed",
        }


async def test_spans_of_the_handler_are_children_of_its_leg(spans: InMemorySpanExporter) -> None:
    leg = await leg_that_ends(spans, "well")
    (inner,) = named(spans, "inner")
    assert inner.parent is not None
    assert leg.context is not None
    assert inner.parent.span_id == leg.context.span_id


async def test_a_leg_that_waits_for_a_time_says_so(spans: InMemorySpanExporter) -> None:
    server = observed()
    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start(arguments={"how": "sleeping"})) == "done"
        found = await legs(spans, 2)
    assert [(leg.attributes or {})["ekiden.task.leg.ended"] for leg in found] == ["sleeping", "completed"]


async def test_a_tool_that_fails_is_a_failed_leg(spans: InMemorySpanExporter) -> None:
    leg = await leg_that_ends(spans, "tool")
    assert (leg.attributes or {})["error.type"] == "tool_error"
    assert (leg.attributes or {})["ekiden.task.leg.ended"] == "failed"
    assert leg.status.status_code is StatusCode.ERROR


async def test_a_task_that_fails_is_a_failed_leg(spans: InMemorySpanExporter) -> None:
    leg = await leg_that_ends(spans, "protocol")
    assert (leg.attributes or {})["rpc.response.status_code"] == "-32602"
    assert leg.status.description == "the reason"


async def test_a_task_that_is_cancelled_while_it_runs_is_no_error(spans: InMemorySpanExporter) -> None:
    server = new_server(MemoryStore())
    began = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await began.wait()
        await client.cancel(task_id)
        await client.until(task_id, "cancelled")
        (leg,) = await legs(spans, 1)
    assert (leg.attributes or {})["ekiden.task.leg.ended"] == "cancelled"
    assert leg.status.status_code is StatusCode.UNSET


async def test_a_leg_that_is_handed_over_ends_its_span(spans: InMemorySpanExporter) -> None:
    server = new_server(MemoryStore())
    began = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    async with server.running():
        await TaskClient(server).start()
        await began.wait()
    (leg,) = await legs(spans, 1)
    assert (leg.attributes or {})["ekiden.task.leg.ended"] == "handed over"


async def test_where_the_call_was_not_traced_the_link_leads_to_the_client(
    spans: InMemorySpanExporter, monkeypatch: Any
) -> None:
    store = MemoryStore()
    front, back = new_server(store), new_server(store)
    for server in (front, back):

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return "done"

    front.leave_tasks()
    provider = trace._TRACER_PROVIDER
    async with front.running():
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        task_id = await TaskClient(front, meta={"traceparent": TRACEPARENT}).start()
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        async with back.running():
            assert await TaskClient(front).text(task_id) == "done"
            (leg,) = await legs(spans, 1)
    (link,) = leg.links
    assert format(link.context.span_id, "016x") == CLIENT_SPAN


async def test_how_long_a_leg_took_is_recorded(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    await leg_that_ends(spans, "well")
    data = metrics.get_metrics_data()
    assert data is not None
    (recorded,) = [
        dict(point.attributes or {})
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "ekiden.task.leg.duration"
        for point in metric.data.data_points
    ]
    assert recorded == {"gen_ai.tool.name": "tool", "ekiden.task.leg.ended": "completed"}
