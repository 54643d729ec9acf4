"""A call of three rounds and a task, traced: run it to see which spans belong together or are linked."""

import asyncio

from mcp_types import ElicitRequestFormParams, ElicitResult
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ekiden import Client, Context, Server
from ekiden.stores.memory import MemoryStore

server = Server("travel", store=MemoryStore())


@server.tool(task="deferred")
async def book(ctx: Context) -> str:
    """Book a train."""
    start = await ctx.elicit("From where?", str)
    end = await ctx.elicit("To where?", str)
    await ctx.background()
    return f"Booked from {start.data} to {end.data}."


async def answer(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "Tokyo" if "From" in params.message else "Kyoto"})


def set_up_tracing() -> InMemorySpanExporter:
    spans = InMemorySpanExporter()  # In your application: an exporter that sends them to your backend.
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    return spans


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print spans below those that they belong to, with the numbers of those that they are linked to."""
    numbers = {span.context.span_id: number for number, span in enumerate(spans, 1)}
    for span in spans:
        if (span.parent and span.parent.span_id) == parent:
            links = [f"links to {numbers[link.context.span_id]}" for link in span.links]
            print(f"{numbers[span.context.span_id]:2}", "   " * depth, span.kind.name, span.name, *links)
            show(spans, span.context.span_id, depth + 1)


async def main() -> None:
    spans = set_up_tracing()
    async with server.running(), Client(server, elicit=answer) as client:
        result = await client.call_tool("book")
        print(*[block.text for block in result.content if block.type == "text"])
    finished = sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0)
    show([span for span in finished if span.name in ("call book", "tools/call book", "task book")])


if __name__ == "__main__":
    asyncio.run(main())
