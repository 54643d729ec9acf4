"""Equal: what ended first in the first run ends first in every replay."""

import asyncio
from itertools import chain, repeat
from typing import Any

import anyio
import pytest

from ekiden import Context
from tests.laws import steps
from tests.laws.driving import REPLAYED, Client, Runs, accept, play, serve, text, two_more_rounds
from tests.laws.steps import begun, noted

# Completion order


async def as_completed(ctx: Context) -> list[str]:
    return [await done for done in asyncio.as_completed(_three(ctx))]


async def first_completed(ctx: Context) -> list[str]:
    pending, order = {asyncio.ensure_future(step) for step in _three(ctx)}, []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        order += [task.result() for task in done]
    return order


async def queued(ctx: Context) -> list[str]:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def put(step: Any) -> None:
        queue.put_nowait(await step)

    async with asyncio.TaskGroup() as group:
        for step in _three(ctx):
            group.create_task(put(step))
        return [await queue.get() for _ in range(3)]


async def appended(ctx: Context) -> list[str]:
    order: list[str] = []

    async def append(step: Any) -> None:
        order.append(await step)

    await asyncio.gather(*map(append, _three(ctx)))
    return order


async def conditioned(ctx: Context) -> list[str]:
    condition, order = asyncio.Condition(), []

    async def tell(step: Any) -> None:
        value = await step
        async with condition:
            order.append(value)
            condition.notify_all()

    async with asyncio.TaskGroup() as group:
        for step in _three(ctx):
            group.create_task(tell(step))
        async with condition:
            await condition.wait_for(lambda: len(order) == 3)
    return order


async def locked(ctx: Context) -> list[str]:
    """The lock is got in the order in which the steps ended."""
    lock, order = asyncio.Lock(), []

    async def tell(step: Any) -> None:
        value = await step
        async with lock:
            await ctx.step(steps.quick, f"locked {value}")
            order.append(value)

    await asyncio.gather(*map(tell, _three(ctx)))
    return order


async def through_a_semaphore(ctx: Context) -> list[str]:
    """Of two places the one that is free first is taken by the third."""
    semaphore, order = asyncio.Semaphore(2), []

    async def tell(name: str, seconds: float) -> None:
        async with semaphore:
            order.append(await ctx.step(steps.lasting, name, seconds))

    await asyncio.gather(tell("a", 0.05), tell("b", 0.01), tell("c", 0.01))
    return order


async def by_events(ctx: Context) -> list[str]:
    first, order = asyncio.Event(), []

    async def tell(step: Any) -> None:
        value = await step
        order.append(value if first.is_set() else f"{value} was first")
        first.set()

    await asyncio.gather(*map(tell, _three(ctx)))
    return order


async def anyio_streams(ctx: Context) -> list[str]:
    send, receive = anyio.create_memory_object_stream[str](10)

    async def put(step: Any) -> None:
        await send.send(await step)

    with send, receive:
        async with anyio.create_task_group() as group:
            for step in _three(ctx):
                group.start_soon(put, step)
            return [await receive.receive() for _ in range(3)]


async def callbacks(ctx: Context) -> list[str]:
    order: list[str] = []
    tasks = [asyncio.ensure_future(step) for step in _three(ctx)]
    for task in tasks:
        task.add_done_callback(lambda done: order.append(done.result()) if not done.cancelled() else None)
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    return order


def _three(ctx: Context) -> list[Any]:
    return [
        ctx.step(steps.lasting, "a", 0.05),
        ctx.step(steps.lasting_thread, "b", 0.03),
        ctx.step(steps.lasting, "c", 0.01),
    ]


ORDERS = [
    as_completed,
    first_completed,
    queued,
    appended,
    conditioned,
    locked,
    through_a_semaphore,
    by_events,
    anyio_streams,
    callbacks,
]


@pytest.mark.parametrize("how", ["rounds", "task"])
@pytest.mark.parametrize("collect", ORDERS)
async def test_the_order_in_which_steps_ended_is_the_order_of_every_run(collect: Any, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        order = await collect(ctx)
        run.append(order)
        run.append(await ctx.step(steps.quick, " ".join(order)))
        await two_more_rounds(ctx)
        return order[0]

    await play(tool, how)
    order, _ = runs.agree()
    assert begun(" ".join(order)) == 1
    assert len([one for one in noted if one.startswith("begin ")]) == len(set(noted) - _ends())


def _ends() -> set[str]:
    return {one for one in noted if not one.startswith("begin ")}


async def test_the_winner_of_a_race_is_the_winner_of_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        racers = [asyncio.ensure_future(racer) for racer in _three(ctx)]
        done, losers = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        await asyncio.gather(*losers, return_exceptions=True)
        run.append(sorted(task.result() for task in done))
        run.append([loser.cancelled() for loser in racers])
        await two_more_rounds(ctx)
        run.append(await ctx.step(steps.quick, f"prize for {run[0]}"))
        return "done"

    assert await play(tool) == "done"
    assert runs.agree()[:2] == [["c"], [True, True, False]]
    assert [begun(name) for name in "abc"] == [1, 1, 1]


async def test_answers_that_come_one_by_one_come_in_that_order_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def ask(name: str) -> None:
            await ctx.elicit(name, bool, key=name)
            run.append(name)
            run.append(await ctx.step(steps.quick, f"{name} came as {len(run)}"))

        await asyncio.gather(ask("a"), ask("b"), ask("c"))
        await ctx.elicit("last?", bool, key="last")
        return " ".join(run)

    client = Client(serve(tool))
    played = await client.ask("tool")
    for key in ("c", "a", "b", "last"):
        played = await client.retry(played, {key: accept(True)})
    assert text(played) == "c did c came as 1 a did a came as 3 b did b came as 5"
    runs.agree()
    assert len(noted) == 6


async def test_a_branch_that_asks_beside_a_running_step_sees_the_same_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def works() -> None:
            for n in range(3):
                run.append(await ctx.step(steps.lasting, f"w{n}", 0.01))

        async def asks() -> None:
            for n in range(2):
                await ctx.elicit(f"q{n}", bool)
                run.append(f"q{n}")

        await asyncio.gather(works(), asks())
        run.append(await ctx.step(steps.quick, " ".join(run)))
        await two_more_rounds(ctx)
        return run[-1]

    assert await play(tool) == "did w0 w1 w2 q0 q1"
    runs.agree()
    assert begun("w0 w1 w2 q0 q1") == 1


# Draws


@pytest.mark.parametrize("how", REPLAYED)
@pytest.mark.parametrize("draw", ["uuid", "random", "now"])
async def test_what_branches_draw_is_theirs_in_every_run(draw: str, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def branch(name: str, seconds: float) -> str:
            await ctx.step(steps.lasting, name, seconds)
            return f"{name} drew {getattr(ctx, draw)()}"

        run.append(await asyncio.gather(branch("a", 0.03), branch("b", 0.015), branch("c", 0.001)))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    runs.agree()


async def test_what_branches_draw_after_their_answers_is_theirs_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def branch(name: str) -> str:
            await ctx.elicit(name, bool, key=name)
            return f"{name} drew {ctx.uuid()}"

        drawn = [asyncio.create_task(branch(name)) for name in "abc"]
        for task in drawn:
            task.add_done_callback(lambda done: None if done.cancelled() else run.append(done.result()))
        await asyncio.gather(*drawn)
        await two_more_rounds(ctx)
        return "done"

    client = Client(serve(tool))
    played = await client.ask("tool")
    for key in ("b", "c", "a"):
        played = await client.retry(played, {key: accept(True)})
    await client.retry(played, {key: accept(True) for key in played.requests})
    assert [drawn[0] for drawn in runs.agree()] == ["b", "c", "a"]


@pytest.mark.parametrize("comes", ["afterwards", "meanwhile"])
async def test_who_takes_a_round_over_is_told_in_the_order_in_which_it_was_left(
    comes: str, shared: Any
) -> None:
    """In the second round a new step is cut before the one is that was cut in the first."""
    runs = Runs()
    reading = chain([9.0], repeat(0.1))

    async def tool(ctx: Context) -> str:
        seen = runs.begin()
        seconds = next(reading)

        async def slow() -> None:
            try:
                async with asyncio.timeout(0.3):
                    await ctx.step(steps.lasting, "slow", 9)
            except TimeoutError:
                seen.append("slow")

        async def reads() -> None:
            await asyncio.sleep(seconds)
            try:
                async with asyncio.timeout(0.05):
                    await ctx.step(steps.lasting, "late", 9)
            except TimeoutError:
                seen.append("late")

        await asyncio.gather(slow(), reads(), ctx.elicit("ok?", bool, key="k"))
        await ctx.step(steps.quick, " ".join(seen))
        return await ctx.step(steps.held, "last")

    client = Client(serve(tool, store=shared))
    first = await client.ask("tool")
    runs.all.clear()
    leaves = asyncio.create_task(client.reply(first, {"k": accept(True)}))
    stays = asyncio.create_task(client.reply(first, {"k": accept(True)})) if comes == "meanwhile" else None
    await steps.until_begun("last")
    leaves.cancel()
    await asyncio.sleep(0.05)
    steps.gate("last").set()
    assert await (stays or client.reply(first, {"k": accept(True)})) == "did last"
    assert runs.agree() == ["late", "slow"]
    assert begun("late slow") == begun("last") == 1
    assert sum(note.startswith("begin ") for note in noted) == 3


@pytest.mark.parametrize(
    ("who", "warnings"),
    [("main main", 0), ("main one", 0), ("one main", 0), ("one one", 0), ("one two", 1), ("one two two", 1)],
)
async def test_only_who_does_the_same_thing_in_several_branches_is_warned(
    who: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what the handler does itself, before or after a branch, a replay knows which is which."""

    async def tool(ctx: Context) -> str:
        async def branch(name: str) -> None:
            for each in who.split():
                if each == name:
                    await ctx.step(steps.quick, "same")

        for name in dict.fromkeys(who.split()):
            await (branch(name) if name == "main" else asyncio.gather(branch(name)))
        return "done"

    assert await play(tool) == "done"
    assert begun("same") == len(who.split())
    assert sum("in several branches at once" in line for line in caplog.messages) == warnings


@pytest.mark.parametrize("how", REPLAYED)
async def test_what_is_cut_when_its_value_has_come_keeps_no_other_branch_waiting(how: str) -> None:
    """All three have ended; who is told first cuts the second, and the third is told all the same."""
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def first() -> None:
            await ctx.step(steps.held, "first")
            second.cancel()

        leading = asyncio.ensure_future(first())
        second = asyncio.ensure_future(ctx.step(steps.held, "second"))
        third = asyncio.ensure_future(ctx.step(steps.held, "third"))
        for what in ("first", "second", "third"):
            await steps.until_begun(what)
        for what in ("first", "second", "third"):
            steps.gate(what).set()
        await asyncio.wait({leading, second, third})
        run.append([second.cancelled(), third.result()])
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    assert runs.agree() == [[True, "did third"]]
    assert [begun(what) for what in ("first", "second", "third")] == [1, 1, 1]
