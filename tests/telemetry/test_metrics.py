"""What is measured: calls over their rounds, tokens, and tasks. Also without a tracer."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ekiden import Context, ProtocolError, RoundLimits, Server
from ekiden.stores.memory import MemoryStore
from ekiden.telemetry.metrics import METRICS
from tests.acceptance.driving import Client as Rounds
from tests.acceptance.driving import accept, only
from tests.acceptance.driving import new_server as new_rounds_server
from tests.eras.old_client import accepted, call, old_client, text
from tests.serving import error_of, served
from tests.tasks.driving import TaskClient, new_server

ROOT = Path(__file__).parent.parent.parent


def points(reader: InMemoryMetricReader, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
    """The points of one metric: the sum of counters, the sum and count of histograms, by attributes."""
    data = reader.get_metrics_data()
    found: dict[tuple[tuple[str, Any], ...], Any] = {}
    for resource in () if data is None else data.resource_metrics:
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            for point in metric.data.data_points if metric.name == name else ():
                value: Any = getattr(point, "value", None)
                found[tuple(sorted((point.attributes or {}).items()))] = (
                    (point.sum, point.count) if value is None else value  # type: ignore[union-attr]
                )
    return found


def asking(**options: Any) -> Server:
    server = new_rounds_server(**options)

    @server.tool
    async def tool(ctx: Context, x: int = 0) -> str:
        await ctx.elicit("how many?", int)
        await ctx.elicit("sure?", bool)
        return "done"

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return str((await ctx.elicit("who?", str)).data)

    return server


TOOL = (("gen_ai.tool.name", "tool"), ("mcp.method.name", "tools/call"))


async def test_a_call_is_recorded_once_with_the_rounds_that_it_took(metrics: InMemoryMetricReader) -> None:
    client = Rounds(asking())
    for _ in range(2):
        ended = await client.ask("tool")
        ended = await client.retry(ended, {only(ended): accept(3)})
        await client.retry(ended, {only(ended): accept(True)})
    asked = await client.round("prompts/get", {"name": "prompt"})
    again = {"inputResponses": {only(asked): accept("Ada")}, "requestState": asked.state}
    await client.round("prompts/get", {"name": "prompt", **again})
    prompt = (
        ("ekiden.call.ended", "completed"),
        ("gen_ai.prompt.name", "prompt"),
        ("mcp.method.name", "prompts/get"),
    )
    assert points(metrics, "ekiden.call.rounds") == {
        (("ekiden.call.ended", "completed"), *TOOL): (6, 2),
        prompt: (2, 1),
    }


async def test_a_question_that_is_asked_again_is_counted_and_one_that_is_not_is_not(
    metrics: InMemoryMetricReader,
) -> None:
    client = Rounds(asking())
    ended = await client.ask("tool")
    for unfit in ("many", "more"):
        ended = await client.retry(ended, {only(ended): accept(unfit)})
    ended = await client.retry(ended, {})  # No answer came: it stands, and is not asked again for its answer.
    ended = await client.retry(ended, {only(ended): accept(3)})
    await client.retry(ended, {only(ended): accept(True)})
    assert points(metrics, "ekiden.call.reasks") == {TOOL: 2}


async def test_a_question_that_is_pushed_again_to_a_client_of_2025_is_counted(
    metrics: InMemoryMetricReader,
) -> None:
    def saying(value: object) -> Any:
        return lambda message: accepted(message["id"], value=value)

    async with served(asking()) as base, old_client(base) as client:
        assert text(await client.answered(call("tool"), saying("many"), saying(3), saying(True))) == "done"
    assert points(metrics, "ekiden.call.reasks") == {TOOL: 1}


async def test_the_sizes_of_tokens_are_recorded_apart_if_their_journal_is_in_the_store(
    metrics: InMemoryMetricReader,
) -> None:
    first = await Rounds(asking()).ask("tool")
    limits = RoundLimits(state_bytes=1)
    await Rounds(asking(store=MemoryStore(), rounds=limits)).ask("tool")
    sizes = points(metrics, "ekiden.state.size")
    assert first.state is not None
    assert sizes[("ekiden.state.stored", False),] == (len(first.state), 1)
    assert sizes[("ekiden.state.stored", True),][1] == 1


async def test_refused_tokens_are_counted_by_reason_and_the_client_does_not_learn_it(
    metrics: InMemoryMetricReader,
) -> None:
    client = Rounds(asking())
    asked = await client.ask("tool")
    forged = await client.refused("tool", requestState="ek1.nothing", inputResponses={})
    strange = await client.refused("tool", {"x": 1}, requestState=asked.state, inputResponses={})
    assert str(forged) == str(strange)
    assert points(metrics, "ekiden.state.refused") == {
        (("reason", "not sealed by a key of this ring"),): 1,
        (("reason", "issued for another arguments"),): 1,
    }


async def test_durations_are_recorded_without_a_tracer(metrics: InMemoryMetricReader) -> None:
    await Rounds(asking()).ask("tool")
    (recorded,) = points(metrics, "mcp.server.operation.duration")
    assert dict(recorded)["gen_ai.tool.name"] == "tool"


# Tasks


def working() -> Server:
    server = new_server(MemoryStore())

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await ctx.elicit("how many?", int)
        return "done"

    return server


STATE = "ekiden.task.state"


def transitions(reader: InMemoryMetricReader) -> dict[str, int]:
    found = points(reader, "ekiden.task.transitions")
    assert {dict(attributes)["gen_ai.tool.name"] for attributes in found} == {"tool"}
    return {dict(attributes)[STATE]: count for attributes, count in found.items()}


async def test_the_states_of_a_task_are_counted_from_its_creation_to_its_end(
    metrics: InMemoryMetricReader,
) -> None:
    async with (server := working()).running():
        client = TaskClient(server)
        task = await client.start()
        for content in ("many", 3):
            (key,) = await client.asked(task)
            await client.update(task, {key: accept(content)})
            if content == "many":
                while key in await client.asked(task):
                    await asyncio.sleep(0.005)
        await client.until(task, "completed")
        seen = transitions(metrics)
        assert (seen["created"], seen["completed"]) == (1, 1)
        assert seen["waiting"] >= 1
        assert points(metrics, "ekiden.call.reasks") == {TOOL: 1}
        _, claims = points(metrics, "ekiden.task.queue.lag")[("gen_ai.tool.name", "tool"),]
        assert claims >= 1, "an answer makes it due, and a worker claims it"
        assert points(metrics, "ekiden.task.takeovers") == {}
    assert points(metrics, "ekiden.task.running") == {(("gen_ai.tool.name", "tool"),): 0}


async def test_a_task_that_is_cancelled_while_it_waits_is_counted(metrics: InMemoryMetricReader) -> None:
    async with (server := working()).running():
        client = TaskClient(server)
        task = await client.start()
        await client.asked(task)
        await client.until(task, "input_required")
        while "waiting" not in transitions(metrics):
            await asyncio.sleep(0.005)
        await client.cancel(task)
        assert transitions(metrics)["tidying"] == 1, "a worker has to say whether there is a clean-up"
        while "cancelled" not in transitions(metrics):
            await asyncio.sleep(0.005)


async def test_a_task_whose_worker_is_silent_is_counted_as_taken_over(metrics: InMemoryMetricReader) -> None:
    store = MemoryStore()
    assert store.tasks is not None
    server = new_server(store)

    @server.tool(task="required")
    async def tool() -> str:
        return "done"

    server.leave_tasks()
    client = TaskClient(server)
    task = await client.start()
    now = (await store.tasks.load(task)).due  # type: ignore[union-attr]
    assert (
        await store.tasks.claim(task, now=now or 0.0, lease=0.05) is not None
    )  # A worker that never renews.
    other = new_server(store)
    other.tool(task="required")(tool)
    async with other.running():
        await client.until(task, "completed")
    assert points(metrics, "ekiden.task.takeovers") == {(("gen_ai.tool.name", "tool"),): 1}


# The reference


def test_the_reference_has_every_metric_as_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `([a-z._]+)` \| (.*) \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    told = [
        (name, kind, unit.strip("`"), meaning, tuple(re.findall("`([^`]+)`", attributes)))
        for name, kind, unit, meaning, attributes in rows
    ]
    assert told == [(each.name, each.kind, each.unit, each.meaning, each.attributes) for each in METRICS]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_histogram_has_buckets_that_fit_its_unit(metric: Any) -> None:
    assert (metric.buckets is not None) == (metric.kind == "histogram")


async def test_codes_that_a_server_makes_up_are_a_bounded_number_of_series(
    metrics: InMemoryMetricReader,
) -> None:
    """A gateway passes the errors of others on, with whatever codes they have."""
    server = Server("s")
    codes = iter([-32001, *range(1, 301), -32001, -32002])

    @server.prompt
    async def fail() -> str:
        raise ProtocolError("no", code=next(codes))

    for _ in range(303):
        await error_of(server, "prompts/get", {"name": "fail"})
    found = [dict(point) for point in points(metrics, "mcp.server.operation.duration")]
    types = {point["error.type"] for point in found}
    assert {"-32001", "-32002", "1", "_OTHER"} <= types
    assert len(types) < 110
