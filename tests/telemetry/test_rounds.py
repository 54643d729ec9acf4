"""The rounds of one call find each other in a trace."""

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ekiden import Context
from tests.acceptance.driving import Client, accept, new_server, only, text

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_a_later_round_is_linked_to_the_first(spans: InMemorySpanExporter) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    first = await Client(server, meta={"traceparent": f"00-{TRACE}-{SPAN}-01"}).ask("tool")
    assert text(await Client(server).retry(first, {only(first): accept(True)})) == "True"
    asked, ended = [span for span in spans.get_finished_spans() if span.name == "tools/call tool"]
    assert asked.context.trace_id == int(TRACE, 16)
    assert ended.context.trace_id != int(TRACE, 16), "the second round came without a trace"
    (link,) = ended.links
    assert (link.context.trace_id, link.context.span_id) == (int(TRACE, 16), int(SPAN, 16))
