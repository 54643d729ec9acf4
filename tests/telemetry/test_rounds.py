"""The rounds of one call find each other in a trace, whoever the client is."""

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ekiden import Context, Server
from tests.acceptance.driving import Client, accept, new_server, only, text

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
LINK = "io.modelcontextprotocol/tracelink"


def asking() -> Server:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str([(await ctx.elicit(question, bool)).data for question in ("sure?", "quite sure?")])

    return server


async def three_rounds(
    spans: InMemorySpanExporter, *, first: dict[str, Any] | None = None, later: dict[str, Any] | None = None
) -> list[ReadableSpan]:
    server = asking()
    ended = await Client(server, meta=first or {}).ask("tool")
    for _ in range(2):
        ended = await Client(server, meta=later or {}).retry(ended, {only(ended): accept(True)})
    assert text(ended) == "[True, True]"
    return [span for span in spans.get_finished_spans() if span.name == "tools/call tool"]


def linked(span: ReadableSpan) -> list[tuple[str, str]]:
    return [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links]


def place(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


async def test_later_rounds_are_linked_to_the_first_for_a_client_that_knows_nothing_of_traces(
    spans: InMemorySpanExporter,
) -> None:
    first, *later = await three_rounds(spans)
    assert first.parent is None
    assert linked(first) == []
    assert [linked(span) for span in later] == [[place(first)]] * 2, (
        "each to the first, not to the one before"
    )
    assert len({place(span)[0] for span in (first, *later)}) == 3, "each round is a trace of its own"


async def test_the_link_leads_to_the_servers_own_first_span_also_if_the_client_sent_a_trace(
    spans: InMemorySpanExporter,
) -> None:
    first, *later = await three_rounds(spans, first={"traceparent": TRACEPARENT})
    assert place(first)[0] == TRACE
    assert [linked(span) for span in later] == [[place(first)]] * 2


async def test_the_first_round_that_the_client_names_is_a_second_link(spans: InMemorySpanExporter) -> None:
    first, *later = await three_rounds(spans, later={LINK: TRACEPARENT})
    assert [linked(span) for span in later] == [[(TRACE, SPAN), place(first)]] * 2


@pytest.mark.parametrize(
    "link", ["nonsense", "", 1, None, {"a": 1}, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
async def test_a_malformed_link_is_no_link(spans: InMemorySpanExporter, link: Any) -> None:
    first, *later = await three_rounds(spans, later={LINK: link})
    assert [linked(span) for span in later] == [[place(first)]] * 2


async def test_if_the_first_round_was_not_traced_here_the_link_leads_to_the_client_once(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, provider = asking(), trace._TRACER_PROVIDER
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    first = await Client(server, meta={"traceparent": TRACEPARENT}).ask("tool")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    for meta in ({}, {LINK: TRACEPARENT}):
        await Client(server, meta=meta).retry(first, {only(first): accept(True)})
    assert [linked(span) for span in spans.get_finished_spans()] == [[(TRACE, SPAN)]] * 2
