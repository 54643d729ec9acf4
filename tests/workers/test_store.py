"""With a store in common: a round that is repeated, on whichever worker, runs every step once."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from .calls import Call, Json, post, questions, send
from .cluster import LEASE_SECONDS, PATIENCE, Cluster, Gate, Worker, gate

FIRST_STEPS = ["one", "two", "three"]
ALL_STEPS = [*FIRST_STEPS, "four"]


async def asked(call: Call, cluster: Cluster) -> Call:
    """The call after its first question; the next round runs steps."""
    await call.round(cluster[0])
    assert questions(call) == [1]
    return call


async def finish(call: Call, cluster: Cluster) -> Json:
    """Drive the call to its end; its report."""
    while call.result is None:
        await call.round(cluster.but(call.last)[0])
    return call.report


async def drop(worker: Worker, message: Json) -> None:
    """Send a request and leave without waiting for the reply."""
    _, writer = await send(worker, message)
    writer.transport.abort()


def check_each_step_ran_once(call: Call, cluster: Cluster) -> None:
    assert cluster.steps(call.name) == Counter(ALL_STEPS)
    assert call.report["ran"] == cluster.runners(call.name)
    assert call.report["answers"] == [f"{call.name}/1", f"{call.name}/2"]


# The reply was lost


@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_a_reply_that_was_lost_is_given_again_by_another_worker(stored: Cluster, tool: str) -> None:
    async with gate() as door:
        call = await asked(Call(tool, f"lost-{tool}", gate=door.port), stored)
        lost = await post(stored[1], call.request())

        again = await post(stored[2], call.request())

        assert again["result"] == lost["result"]
        assert again["id"] != lost["id"]
        assert stored.steps(call.name) == Counter(FIRST_STEPS)
        call.take(again, stored[2])
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def test_a_final_result_that_was_lost_is_given_again_by_another_worker(stored: Cluster) -> None:
    async with gate() as door:
        call = await asked(Call("gated", "lost-end", gate=door.port), stored)
        await call.round(stored[1])
        lost = await post(stored[2], call.request())

        again = await post(stored[0], call.request())

    assert again["result"] == lost["result"]
    call.take(again, stored[0])
    check_each_step_ran_once(call, stored)


@pytest.mark.parametrize("step", FIRST_STEPS)
@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_a_client_that_leaves_during_a_step_finds_it_done_on_another_worker(
    stored: Cluster, tool: str, step: str
) -> None:
    async with gate(step) as door:
        call = await asked(Call(tool, f"left-{tool}-{step}", gate=door.port), stored)
        await drop_during(step, call, stored[1], door)

        repeat = asyncio.create_task(post(stored[2], call.request()))
        door.open(step)
        call.take(await repeat, stored[2])

        assert Counter(began for began, _ in door.began) == Counter(FIRST_STEPS)
        assert door.runners(step) == [stored[1].pid]
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def drop_during(step: str, call: Call, worker: Worker, door: Gate) -> None:
    """Have a worker begin a step, and leave while it runs."""
    _, writer = await send(worker, call.request())
    assert await door.beginning_of(step) == worker.pid
    writer.transport.abort()


async def test_clients_that_leave_at_once_and_repeat_elsewhere_run_each_step_once(stored: Cluster) -> None:
    """Here the first worker may have done nothing, something or everything when the repeat comes."""
    async with gate() as door:

        async def run(number: int) -> Call:
            call = await asked(Call("gated", f"hasty-{number}", gate=door.port), stored)
            await drop(stored[1], call.request())
            await call.round(stored[2])
            await drop(stored[0], call.request())
            await call.round(stored[1])
            return call

        calls = await in_tens(run, 40)

    for call in calls:
        check_each_step_ran_once(call, stored)


# The retry was sent twice


@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_the_same_retry_on_all_workers_at_once_runs_each_step_once(stored: Cluster, tool: str) -> None:
    async with gate() as door:

        async def run(number: int) -> Call:
            call = await asked(Call(tool, f"tripled-{tool}-{number}", gate=door.port), stored)
            while call.result is None:
                replies = await asyncio.gather(*(post(worker, call.request()) for worker in stored.workers))
                assert replies[0]["result"] == replies[1]["result"] == replies[2]["result"]
                call.take(replies[0], stored[0])
            return call

        calls = await in_tens(run, 20)

    for call in calls:
        check_each_step_ran_once(call, stored)


async def test_repeats_wait_for_the_worker_that_runs_the_round_however_long_it_takes(stored: Cluster) -> None:
    async with gate("two") as door:
        call = await asked(Call("gated", "patient", gate=door.port), stored)
        first = asyncio.create_task(post(stored[0], call.request()))
        assert await door.beginning_of("two") == stored[0].pid

        repeats = [asyncio.create_task(post(worker, call.request())) for worker in stored.workers[1:]]
        done, _ = await asyncio.wait({first, *repeats}, timeout=2.5 * LEASE_SECONDS)
        assert not done, "a worker that lives keeps its round, beyond the first lease"
        door.open("two")
        replies = await asyncio.gather(first, *repeats)

        assert replies[0]["result"] == replies[1]["result"] == replies[2]["result"]
        assert door.runners("two") == [stored[0].pid]
        call.take(replies[0], stored[0])
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def test_a_repeat_with_other_answers_is_refused_by_every_worker(stored: Cluster) -> None:
    async with gate() as door:
        call = await asked(Call("gated", "changed", gate=door.port), stored)
        other = call.request()
        for answer in other["params"]["inputResponses"].values():
            answer["content"] = {"value": "other"}
        await call.round(stored[1])

        refusals = [await post(worker, other) for worker in stored.workers]

        assert [refusal["error"]["code"] for refusal in refusals] == [-32602] * 3
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def test_a_client_that_leaves_while_it_waits_for_another_worker_leaves_no_trace(
    stored: Cluster,
) -> None:
    async with gate("two") as door:
        call = await asked(Call("gated", "left-waiting", gate=door.port), stored)
        running = asyncio.create_task(post(stored[1], call.request()))
        await door.beginning_of("two")

        _, writer = await send(stored[2], call.request())
        await arrival(stored, call, rounds=3)
        writer.transport.abort()
        door.open("two")
        call.take(await running, stored[1])
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def arrival(cluster: Cluster, call: Call, *, rounds: int) -> None:
    """Wait until workers have begun so many rounds of a call, repeats counted."""
    async with asyncio.timeout(PATIENCE):
        while len(cluster.served(call.name)) < rounds:
            await asyncio.sleep(0.01)


async def in_tens(run: Any, count: int) -> list[Call]:
    """Run many calls, ten at a time."""
    at_a_time = asyncio.Semaphore(10)

    async def one(number: int) -> Call:
        async with at_a_time:
            call: Call = await run(number)
            return call

    return await asyncio.gather(*(one(number) for number in range(count)))


# The worker was killed


@pytest.mark.parametrize("step", FIRST_STEPS)
async def test_another_worker_goes_on_from_the_committed_steps_when_the_first_is_killed(
    stored: Cluster, step: str
) -> None:
    async with gate(step) as door:
        call = await asked(Call("gated", f"orphan-{step}", gate=door.port), stored)
        running = asyncio.create_task(post(stored[1], call.request()))
        assert await door.beginning_of(step) == stored[1].pid

        stored[1].kill()
        killed_at = time.monotonic()
        repeat = asyncio.create_task(post(stored[2], call.request()))
        assert await door.beginning_of(step, times=2) == stored[2].pid
        taken_over_after = time.monotonic() - killed_at
        door.open(step)
        call.take(await repeat, stored[2])

        (no_reply,) = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(no_reply, AssertionError | OSError)
        assert taken_over_after < 20 * LEASE_SECONDS  # On a machine that is busy, too.
        committed = FIRST_STEPS[: FIRST_STEPS.index(step)]
        for done in committed:
            assert door.runners(done) == [stored[1].pid], "what was committed is not run again"
        stored[1].start()
        await stored[1].ready()
        await call.round(stored[1])
    assert call.result is not None
    check_each_step_ran_once(call, stored)


async def test_a_call_outlives_all_its_workers_at_once(stored: Cluster) -> None:
    """Power fails while a step runs: the next workers know what was committed."""
    async with gate("three") as door:
        call = await asked(Call("strict", "blackout", gate=door.port), stored)
        running = asyncio.create_task(post(stored[1], call.request()))
        await door.beginning_of("three")

        for worker in stored.workers:
            worker.kill()
        for worker in stored.workers:
            worker.start()
        for worker in stored.workers:
            await worker.ready()
        door.open("three")
        await asyncio.gather(running, return_exceptions=True)
        await call.round(stored[1])
        await finish(call, stored)

    assert Counter(began for began, _ in door.began) == Counter([*ALL_STEPS, "three"])
    check_each_step_ran_once(call, stored)


# What else the store is for


async def test_a_worker_waits_for_a_new_store_that_another_one_has_locked(newly_stored: Cluster) -> None:
    """Workers start together: while one of them sets the store up, the others come to it."""
    cluster = newly_stored
    async with gate() as door:
        call = await asked(Call("gated", "locked-out", gate=door.port), cluster)
        with cluster.locked_store():
            retry = asyncio.create_task(post(cluster[1], call.request()))
            await asyncio.wait({retry}, timeout=0.5)
        call.take(await retry, cluster[1])
        await finish(call, cluster)
    check_each_step_ran_once(call, cluster)


@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_a_client_that_leaves_while_its_round_is_claimed_consumes_nothing(
    stored: Cluster, tool: str
) -> None:
    stored[1].stop()
    stored[1].start(LEASE="120")
    await stored[1].ready()
    async with gate() as door:
        before = await asked(Call("gated", f"before-{tool}", gate=door.port), stored)
        after = await asked(Call("gated", f"after-{tool}", gate=door.port), stored)
        await before.round(stored[1])  # It has opened the store.
        call = await asked(Call(tool, f"abandoned-{tool}", gate=door.port), stored)
        with stored.locked_store():
            _, writer = await send(stored[1], call.request())
            await arrival(stored, call, rounds=2)
            writer.transport.abort()
            await post(stored[1], Call("ten", "bystander").request())  # By now it has seen that.
        await after.round(stored[1])  # What it wanted of the store before this, it has got.
        async with asyncio.timeout(PATIENCE):  # Sooner than the lease ends.
            await call.round(stored[2])
        await finish(call, stored)
    check_each_step_ran_once(call, stored)


async def test_a_journal_too_large_for_its_token_is_found_by_every_worker(stored: Cluster) -> None:
    call = Call("bulky", "bulky")
    for turn in range(3):
        await call.round(stored[turn])

    assert call.report["ticket"] == "0123456789"
    assert call.report["answers"] == ["bulky/1", "bulky/2"]
    assert stored.steps("bulky") == Counter(["page"])
    assert all(len(result["requestState"]) < 2000 for result in call.asked)
