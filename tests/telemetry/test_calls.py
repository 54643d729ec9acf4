"""Spans of a client: its calls, their rounds and their tasks, and what it tells the server of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ekiden import Client, Context, InvalidParams, PendingCall, Server, ServerError, ToolError
from ekiden.stores.memory import MemoryStore
from tests.serving import PATIENCE, served

LINK = "io.modelcontextprotocol/tracelink"
OTHERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def trip(seen: list[dict[str, Any]] | None = None) -> Server:
    """A server with a tool that asks twice and then becomes a task; `seen` gets the `_meta` of its rounds."""
    server = Server("trip", store=MemoryStore())

    @server.middleware
    async def look(request: Any, proceed: Any) -> Any:
        if seen is not None and request.method == "tools/call":
            seen.append(request.meta.fields)
        return await proceed(request)

    @server.tool(task="deferred")
    async def book(ctx: Context) -> str:
        for question in ("From?", "To?"):
            await ctx.elicit(question, str)
        await ctx.background()
        with trace.get_tracer("author").start_as_current_span("pay"):
            return "booked"

    @server.tool
    async def fail(how: str) -> str:
        raise {"tool": ToolError("x"), "protocol": InvalidParams("the reason")}[how]

    @server.prompt
    async def greet() -> str:
        return "hello"

    @server.resource("a://1")
    async def one() -> str:
        return "1"

    return server


async def answer(params: ElicitRequestFormParams) -> ElicitResult:
    with trace.get_tracer("user").start_as_current_span("ask the user"):
        return ElicitResult(action="accept", content={"value": "Kyoto"})


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncGenerator[Client, None]:
    async with (
        asyncio.timeout(PATIENCE),
        served(server) as base,
        Client(f"{base}/mcp", elicit=answer, **options) as client,
    ):
        yield client


def named(spans: InMemorySpanExporter, name: str, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if (span.name, span.kind) == (name, kind)]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def traceparent_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


async def test_a_call_of_three_rounds_and_a_task_is_one_trace_with_links_to_its_first_round(
    spans: InMemorySpanExporter,
) -> None:
    async with connected(trip()) as client:
        result = await client.call_tool("book")
        assert result.content[0].text == "booked"  # type: ignore[union-attr]
        while not (legs := named(spans, "task book", SpanKind.CONSUMER)):
            await asyncio.sleep(0.001)
    (call,) = named(spans, "call book", SpanKind.INTERNAL)
    sent = named(spans, "tools/call book", SpanKind.CLIENT)
    received = named(spans, "tools/call book", SpanKind.SERVER)
    assert parent_of(call) is None
    assert [parent_of(span) for span in sent] == [id_of(call)] * 3
    assert [parent_of(span) for span in received] == [id_of(span) for span in sent]
    assert [links_of(span) for span in sent] == [[], *[[id_of(sent[0])]] * 2]
    assert [links_of(span) for span in received] == [[], *[[id_of(sent[0]), id_of(received[0])]] * 2]
    (leg,) = legs
    assert parent_of(leg) is None
    assert links_of(leg) == [id_of(received[2])], "to the round that became the task"
    (paid,) = named(spans, "pay", SpanKind.INTERNAL)
    assert parent_of(paid) == id_of(leg)
    asked = named(spans, "ask the user", SpanKind.INTERNAL)
    assert [parent_of(span) for span in asked] == [id_of(call)] * 2
    watched = named(spans, "tasks/get", SpanKind.CLIENT)
    assert watched
    assert {parent_of(span) for span in watched} == {id_of(call)}


async def test_the_first_round_is_named_on_the_wire_from_the_second_on(spans: InMemorySpanExporter) -> None:
    seen: list[dict[str, Any]] = []
    async with connected(trip(seen)) as client:
        await client.call_tool("book", meta={"mine": 1})
    sent = named(spans, "tools/call book", SpanKind.CLIENT)
    assert [meta["traceparent"] for meta in seen] == [traceparent_of(span) for span in sent]
    assert [meta.get(LINK) for meta in seen] == [None, *[seen[0]["traceparent"]] * 2]
    assert [meta["mine"] for meta in seen] == [1, 1, 1]


async def test_rounds_by_hand_are_linked_also_from_another_process(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    server = trip(seen)
    async with connected(server) as client:
        started = await client.start_tool("book")
    assert isinstance(started, PendingCall)
    async with connected(server) as client:
        second = await client.resume(PendingCall.from_json(started.to_json()))
        assert isinstance(second, PendingCall)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        await client.resume(PendingCall.from_json(second.to_json()))
    sent = named(spans, "tools/call book", SpanKind.CLIENT)
    assert [parent_of(span) for span in sent] == [None, None]
    assert links_of(sent[1]) == [id_of(sent[0])]
    assert [meta.get(LINK) for meta in seen] == [None, *[traceparent_of(sent[0])] * 2]
    assert "traceparent" not in seen[2], "the third round was made without a tracer"


async def test_a_trace_that_the_caller_names_is_left_as_it_is(spans: InMemorySpanExporter) -> None:
    seen: list[dict[str, Any]] = []
    async with connected(trip(seen)) as client:
        await client.call_tool("book", meta={"traceparent": OTHERS})
    assert [(meta["traceparent"], meta.get(LINK)) for meta in seen] == [
        (OTHERS, None),
        *[(OTHERS, OTHERS)] * 2,
    ]


@pytest.mark.usefixtures("spans")
async def test_a_call_whose_trace_is_malformed_can_be_stored_all_the_same() -> None:
    async with connected(trip([])) as client:
        pending = await client.start_tool("book", meta={"traceparent": 5})
    assert isinstance(pending, PendingCall)
    assert PendingCall.from_json(pending.to_json()) == pending


async def test_a_client_of_2025_sends_its_trace_too(spans: InMemorySpanExporter) -> None:
    async with connected(trip(), mode="legacy") as client:
        await client.call_tool("book")
    (sent,) = named(spans, "tools/call book", SpanKind.CLIENT)
    (received,) = named(spans, "tools/call book", SpanKind.SERVER)
    assert parent_of(received) == id_of(sent)


async def test_spans_say_what_was_called(spans: InMemorySpanExporter) -> None:
    async with connected(trip()) as client:
        await client.get_prompt("greet")
        await client.read_resource("a://1")
        await client.list_tools()
    found = {
        (span.name, span.kind): dict(span.attributes or {})
        for span in spans.get_finished_spans()
        if span.kind is not SpanKind.SERVER
    }
    greet = {"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "greet"}
    one = {"mcp.method.name": "resources/read", "mcp.resource.uri": "a://1"}
    version = {"mcp.protocol.version": "2026-07-28"}
    assert found == {
        ("prompt greet", SpanKind.INTERNAL): greet,
        ("prompts/get greet", SpanKind.CLIENT): greet | version,
        ("resource", SpanKind.INTERNAL): one,
        ("resources/read", SpanKind.CLIENT): one | version,
        ("tools/list", SpanKind.CLIENT): {"mcp.method.name": "tools/list"} | version,
    }


async def test_a_failure_marks_the_call_and_its_round(spans: InMemorySpanExporter) -> None:
    async with connected(trip()) as client:
        assert (await client.call_tool("fail", {"how": "tool"})).is_error
        with pytest.raises(ServerError):
            await client.call_tool("fail", {"how": "protocol"})
    calls = named(spans, "call fail", SpanKind.INTERNAL)
    rounds = named(spans, "tools/call fail", SpanKind.CLIENT)
    assert [span.status.status_code for span in (*calls, *rounds)] == [StatusCode.ERROR] * 4
    assert [(span.attributes or {})["error.type"] for span in rounds] == ["tool_error", "-32602"]


async def test_without_a_tracer_nothing_of_traces_is_sent() -> None:
    seen: list[dict[str, Any]] = []
    async with connected(trip(seen)) as client:
        await client.call_tool("book")
    assert len(seen) == 3
    assert not [key for meta in seen for key in meta if key in ("traceparent", "tracestate", LINK)]
