"""Equal: a replay shows every branch the values, the exceptions and the order of the first run."""

import asyncio
from typing import Any

import anyio
import pytest

from ekiden import Context, StepFailed
from tests.laws import steps
from tests.laws.driving import REPLAYED, Runs, play, two_more_rounds
from tests.laws.scopes import ENDING, SCOPES, Scope
from tests.laws.steps import begun

# Scopes


PLAIN = [(scope, function) for scope in SCOPES for function in (steps.lasting, steps.lasting_thread)]
BAD = [(scope, function) for scope in SCOPES[:4] for function in (steps.stubborn, steps.tidying)]


@pytest.mark.usefixtures("_threads_begin_at_once")
@pytest.mark.parametrize(("scope", "function"), PLAIN + BAD)
async def test_a_scope_says_the_same_of_a_step_in_every_run(scope: Scope, function: Any) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        run.append(await scope(0.015, ctx.step(function, "pay", 0.05)))
        await ctx.elicit("more?", bool)
        run.append(await ctx.step(steps.quick, "next"))
        await ctx.elicit("and more?", bool)
        return "done"

    assert await play(tool) == "done"
    assert len(runs.agree()) == 2
    assert (begun("pay"), begun("next")) == (1, 1)


@pytest.mark.parametrize("scope", SCOPES[:5])
async def test_a_scope_in_a_task_says_the_same_in_every_run(scope: Scope) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        run.append(await scope(0.015, ctx.step(steps.lasting, "pay", 0.05)))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, "task") == "done"
    runs.agree()


@pytest.mark.parametrize("scope", ENDING)
async def test_a_step_that_ended_in_time_is_not_cut_in_a_replay(scope: Scope) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        run.append(await scope(0.3, ctx.step(steps.lasting, "pay", 0.01)))
        await ctx.elicit("more?", bool)
        run.append(await scope(0.3, ctx.step(steps.lasting_thread, "next", 0.01)))
        return "done"

    assert await play(tool) == "done"
    assert "pay" in runs.agree()[0]


@pytest.mark.parametrize("scope", ENDING)
async def test_a_scope_around_a_question_that_is_answered_does_not_fire(scope: Scope) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def ask() -> Any:
            return str((await ctx.elicit("well?", bool, key="k")).data)

        run.append(await scope(5, ask()))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree()[0].startswith(("True", "'True'"))


@pytest.mark.parametrize("how", ["rounds", "replicas"])
@pytest.mark.parametrize("scope", SCOPES[:4])
async def test_a_scope_says_the_same_of_a_question_that_it_cut_in_every_run(scope: Scope, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        asks = scope(0.1, ctx.elicit("now?", bool, key="k"))
        said, _ = await asyncio.gather(asks, ctx.step(steps.lasting, "a", 0.3))
        run.append(said)
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    (said,) = runs.agree()
    assert "accept" not in said
    assert begun("a") == 1


@pytest.mark.parametrize("how", ["rounds", "task"])
@pytest.mark.parametrize("scope", SCOPES[:4])
async def test_a_scope_that_cuts_a_chain_cuts_it_at_the_same_place(scope: Scope, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def chain() -> str:
            for n in range(3):
                run.append(await ctx.step(steps.lasting, f"link {n}", 0.001 if n == 0 else 5))
            return "whole"

        run.append(await scope(0.3, chain()))
        await two_more_rounds(ctx)
        run.append(await ctx.step(steps.quick, "next"))
        return "done"

    assert await play(tool, how) == "done"
    assert [begun(f"link {n}") for n in range(3)] == [1, 1, 0]
    assert len(runs.agree()) == 3


async def test_a_scope_that_cuts_a_sleep_does_so_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        with anyio.move_on_after(0.02) as scope:
            await ctx.sleep(60)
        run.append(scope.cancelled_caught)
        await two_more_rounds(ctx)
        run.append(await ctx.step(steps.quick, "next"))
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [True, "did next"]
    assert begun("next") == 1


async def test_a_sleep_that_outlasts_a_step_under_one_scope_is_cut_where_it_was() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        with anyio.move_on_after(0.05) as scope:
            run.append(await ctx.step(steps.quick, "pay"))
            await ctx.sleep(60)
            run.append(await ctx.step(steps.quick, "never"))
        run.append(scope.cancelled_caught)
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == ["did pay", True]
    assert (begun("pay"), begun("never")) == (1, 0)


# Failing siblings


@pytest.mark.usefixtures("_threads_begin_at_once")
@pytest.mark.parametrize("how", REPLAYED)
@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_group_with_a_failing_sibling_goes_on_in_every_round(function: Any, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            async with asyncio.TaskGroup() as group:
                slow = group.create_task(ctx.step(function, "slow", 0.06))
                group.create_task(ctx.step(steps.fails, "bad", 0.01))
        except* StepFailed as failed:
            run.append([str(error) for error in failed.exceptions])
        run.append(slow.cancelled())
        await ctx.elicit("go on?", bool)
        run.append(await ctx.step(steps.quick, "next"))
        await ctx.elicit("more?", bool)
        return "done"

    assert await play(tool, how) == "done"
    assert runs.agree() == [["ValueError: bad"], True, "did next"]
    assert (begun("slow"), begun("bad"), begun("next")) == (1, 1, 1)


async def test_a_group_whose_sibling_fails_by_itself_goes_on_in_every_round() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def fail() -> None:
            await ctx.step(steps.quick, "first")
            raise KeyError("plain")

        try:
            async with asyncio.TaskGroup() as group:
                slow = group.create_task(ctx.step(steps.lasting, "slow", 0.06))
                group.create_task(fail())
        except* KeyError:
            run.append(slow.cancelled())
        await two_more_rounds(ctx)
        run.append(await ctx.step(steps.quick, "next"))
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [True, "did next"]
    assert (begun("slow"), begun("first"), begun("next")) == (1, 1, 1)


async def test_a_gather_that_returns_exceptions_returns_the_same_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        all_three = await asyncio.gather(
            ctx.step(steps.fails, "bad", 0.02),
            ctx.step(steps.lasting, "good", 0.01),
            ctx.step(steps.fails, "worse"),
            return_exceptions=True,
        )
        run.append([repr(one) for one in all_three])
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    runs.agree()
    assert [begun(name) for name in ("bad", "good", "worse")] == [1, 1, 1]


async def test_a_gather_whose_first_exception_is_caught_goes_on_in_every_round() -> None:
    """The sibling is not cancelled: it goes on, and its value is taken later."""
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        slow = asyncio.ensure_future(ctx.step(steps.lasting, "slow", 0.05))
        try:
            await asyncio.gather(slow, ctx.step(steps.fails, "bad", 0.01))
        except StepFailed as error:
            run.append(str(error))
        await ctx.elicit("go on?", bool)
        run.append(await slow)
        await ctx.elicit("more?", bool)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == ["ValueError: bad", "slow"]
    assert (begun("slow"), begun("bad")) == (1, 1)
