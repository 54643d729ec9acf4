"""The model of capacity is a few multiplications: what must hold for every load."""

import dataclasses
import json
from pathlib import Path

import pytest
from bench.capacity import COSTS, Limits, Load, Need, answer, needed
from hypothesis import given
from hypothesis import strategies as st

MEASURED = {cost.name: cost.value for cost in COSTS}

shares = st.floats(0, 0.5)
loads = st.builds(
    Load,
    calls_per_second=st.floats(0, 1e6),
    asks=shares,
    rounds=st.floats(1, 10),
    recorded=st.floats(0, 1),
    tasks=shares,
    steps=st.floats(0, 100),
    sleeps=st.floats(0, 10),
    asleep=st.floats(0, 1e6),
    runs=st.floats(0, 1000),
    poll=st.floats(0.1, 100),
)


def need(load: Load) -> Need:
    return needed(load, Limits(), MEASURED)


def amounts(load: Load) -> list[float]:
    found = need(load)
    counted = [found.servers, found.workers, found.machines, found.databases, found.gigabytes_per_day]
    return [*counted, found.requests, found.wal_megabytes, *(share.used for share in found.shares)]


@given(loads)
def test_twice_the_load_never_needs_less(load: Load) -> None:
    doubled = dataclasses.replace(load, calls_per_second=2 * load.calls_per_second)
    assert all(one <= two for one, two in zip(amounts(load), amounts(doubled), strict=True))


@given(loads, st.sampled_from(["asks", "rounds", "recorded", "tasks", "steps", "sleeps", "runs"]))
def test_more_of_anything_never_needs_fewer_databases(load: Load, what: str) -> None:
    more = dataclasses.replace(load, **{what: getattr(load, what) * 1.5})
    assert need(load).databases <= need(more).databases


@given(loads)
def test_calls_without_tasks_and_recorded_rounds_need_no_store(load: Load) -> None:
    without = dataclasses.replace(load, tasks=0.0, recorded=0.0)
    assert need(without).shares == ()
    assert need(without).databases == 0
    assert need(without).workers == 0
    assert need(without).gigabytes_per_day == 0


@given(loads)
def test_the_bottleneck_is_the_limit_that_is_used_most(load: Load) -> None:
    found = need(load)
    if found.bottleneck is not None:
        assert all(share.part <= found.bottleneck.part for share in found.shares)
        assert found.bottleneck.part <= found.databases


def test_a_process_serves_what_its_core_allows() -> None:
    only_calls = Load(calls_per_second=1000, peak=1, asks=0)
    free = {**MEASURED, "call_us": 600.0}
    assert needed(only_calls, Limits(busy=0.6), free).servers == 1
    assert needed(dataclasses.replace(only_calls, tool_us=1.0), Limits(busy=0.6), free).servers == 2


def test_tasks_that_wait_for_others_need_processes_but_little_cpu() -> None:
    waiting = Load(calls_per_second=10, peak=1, tasks=0.5, runs=100)
    assert need(waiting).running == 500
    assert need(waiting).workers == 10
    assert needed(waiting, Limits(), {**MEASURED, "concurrency": 500.0}).workers == 1


def test_costs_come_from_a_file_and_from_options(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text(json.dumps({"call_us": 1234, "ask_us": 1}))
    shown = answer(["--show-costs", "--costs", str(tmp_path / "costs.json"), "--cost", "ask_us=99"])
    values = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in shown.splitlines()}
    assert values["call_us"] == "1,234"
    assert values["ask_us"] == "99"


def test_an_unknown_cost_is_refused() -> None:
    with pytest.raises(SystemExit, match="unknown costs: call_ms"):
        answer(["--cost", "call_ms=1"])


def test_calls_may_be_given_by_the_day() -> None:
    assert answer(["--calls-per-day", "86400000"]) == answer(["--calls-per-second", "1000"])
