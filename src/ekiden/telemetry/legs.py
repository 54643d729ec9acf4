"""One span per leg of a task, linked to the request that became the task.

A task may run for days, and on other machines: each leg is a trace of its own, with a link to the span of
the request that became the task, or of that request's client if the server did not trace it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ekiden.rounds.leg import Suspended
from ekiden.rounds.outcome import Outcome
from ekiden.signals import TaskCancelled
from ekiden.tasks.record import TaskRecord
from ekiden.telemetry.context import links
from ekiden.telemetry.metrics import LEG_DURATION
from ekiden.telemetry.metrics import record as record_duration
from ekiden.telemetry.spans import error_type, mark_failed
from ekiden.wire.meta import PROTOCOL_VERSION

__all__ = ["traced_leg"]


async def traced_leg(
    record: TaskRecord, run: Callable[[], Awaitable[Outcome | Suspended]]
) -> Outcome | Suspended:
    """Run a leg in a span; record its duration and how it ended."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": record.tool,
        "mcp.protocol.version": record.meta.get(PROTOCOL_VERSION, ""),
        "ekiden.task.id": record.id,
        "ekiden.task.leg": record.fence,
    }
    how = "handed over"
    started = time.perf_counter()
    with trace.get_tracer("ekiden").start_as_current_span(
        f"task {record.tool}",
        context=Context(),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=links(record.trace or record.meta.get("traceparent")),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            ended = await run()
            how = _how(ended)
            if not isinstance(ended, Suspended) and (error := error_type(ended)) is not None:
                mark_failed(span, ended, error)
            return ended
        except TaskCancelled:
            how = "cancelled"
            raise
        except asyncio.CancelledError:
            raise  # The process ends, or the claim was lost: another worker goes on.
        finally:
            span.set_attribute("ekiden.task.leg.ended", how)
            facts = {"gen_ai.tool.name": record.tool, "ekiden.task.leg.ended": how}
            record_duration(LEG_DURATION, time.perf_counter() - started, facts)


def _how(ended: Outcome | Suspended) -> str:
    if isinstance(ended, Suspended):
        return "waiting for input" if ended.asks else "sleeping"
    return "completed" if error_type(ended) is None else "failed"
