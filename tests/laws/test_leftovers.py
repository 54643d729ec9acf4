"""What surrounds the laws: parked handlers, steps that call servers, what is said and what is sent."""

import asyncio
import logging
import random
from typing import Any

import pytest

from ekiden import Context, InputRequired, Server, StepFailed, UsageError
from ekiden.rounds.performing import raised
from ekiden.rounds.waiting import current_task
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed, ReplayDiffers, check_replay
from tests.laws import steps
from tests.laws.driving import (
    Client,
    Handler,
    TaskClient,
    accept,
    new_server,
    play,
    play_pushed,
    serve,
    soon,
    text,
    yes,
)
from tests.laws.steps import begun, noted

YES = {"k": accept(True)}


# A parked handler that ends while it is parked


async def times_out(ctx: Context) -> str:
    try:
        async with asyncio.timeout(0.05):
            await ctx.elicit("well?", bool, key="k")
    except TimeoutError:
        noted.append("over")
        return "gave up"
    return "answered"


async def is_watched(ctx: Context) -> str:
    asking = asyncio.ensure_future(ctx.elicit("well?", bool, key="k"))
    await asyncio.wait([asking], timeout=0.05)
    asking.cancel()
    noted.append("over")
    return "gave up"


async def fails_while_parked(ctx: Context) -> str:
    async def watchdog() -> None:
        await asyncio.sleep(0.05)
        noted.append("over")
        raise ValueError("bark")

    await asyncio.gather(ctx.elicit("well?", bool, key="k"), watchdog())
    return "answered"


@pytest.mark.parametrize("handler", [times_out, is_watched, fails_while_parked])
async def test_a_parked_handler_that_ended_is_answered_for_in_the_next_round(handler: Handler) -> None:
    server = serve(handler, resume="parked")
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        async with asyncio.timeout(30):
            while "over" not in noted:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        told = await client.reply(first, YES)
    assert told in ("gave up", "failed: Tool 'tool' failed", "error -32602")


async def test_a_parked_handler_that_goes_on_while_it_is_parked_is_answered() -> None:
    """Its timeout fires, and then it asks something else: the next round hears of it."""

    async def tool(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.elicit("well?", bool, key="k")
        except TimeoutError:
            noted.append("over")
        answer = await ctx.elicit("instead?", bool, key="instead")
        return str(answer.data)

    server = serve(tool, resume="parked")
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        async with asyncio.timeout(30):
            while "over" not in noted:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        second = await client.retry(first, YES)
        assert await client.reply(second, {"instead": accept(True)}) == "True"


# A step that calls a server of the same process


async def inner(ctx: Context) -> str:
    try:
        return f"inside {ctx.step_key}"
    except UsageError:
        done = await ctx.step(steps.quick, "inner")
        sure = await ctx.elicit("sure?", bool)
        return f"{done} {sure.data}"


async def calls_inner() -> str:
    noted.append("begin outer")
    return text(await Client(serve(inner)).call_tool("tool"))


def calls_inner_in_a_thread() -> str:
    noted.append("begin outer")
    return asyncio.run(calls_plainly())


async def calls_plainly() -> str:
    return text(await Client(serve(inner)).call_tool("tool"))


@pytest.mark.parametrize("function", [calls_inner, calls_inner_in_a_thread])
async def test_a_server_that_a_step_calls_is_not_inside_the_step(function: Any) -> None:
    async def tool(ctx: Context) -> str:
        told = await ctx.step(function)
        await ctx.elicit("more?", bool)
        return str(told)

    assert await play(tool) == "did inner True"
    assert (begun("outer"), begun("inner")) == (1, 1)


# The manual way


@pytest.mark.parametrize("state", [123, b"bytes", {"a": 1}, True])
def test_a_state_that_is_no_text_is_refused_at_once(state: Any) -> None:
    with pytest.raises(UsageError):
        InputRequired(request_state=state)


# on_complete


async def cannot(what: str) -> None:
    noted.append(f"begin {what}")
    raise ValueError(what)


def keeps_nothing(what: str):  # type: ignore[no-untyped-def]
    noted.append(f"begin {what}")
    return object()


@pytest.mark.parametrize("function", [cannot, keeps_nothing])
async def test_a_failing_on_complete_leaves_the_result(
    function: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        await ctx.step(steps.quick, "pay")
        ctx.on_complete(function, "mail")
        ctx.on_complete(steps.quick, "bill")
        return "paid"

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    with caplog.at_level(logging.WARNING):
        assert [await client.reply(first, YES) for _ in range(2)] == ["paid"] * 2
    assert [begun(what) for what in ("pay", "mail", "bill")] == [1, 1, 1]
    assert function.__name__ in caplog.text


async def test_a_failing_on_complete_leaves_the_result_of_a_task(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        ctx.on_complete(cannot, "mail")
        await ctx.elicit("pay?", bool, key="k")
        return "paid"

    with caplog.at_level(logging.WARNING):
        assert await play(tool, "task") == "paid"
    assert begun("mail") == 1
    assert "cannot" in caplog.text


async def test_on_complete_takes_a_key() -> None:
    async def tool(ctx: Context) -> str:
        ctx.on_complete(steps.quick, "mail", key="first")
        ctx.on_complete(steps.quick, "mail", key="second")
        await ctx.elicit("more?", bool)
        return "done"

    assert await play(tool) == "done"
    assert begun("mail") == 2


# background


@pytest.mark.parametrize("stored", [False, True])
async def test_background_without_a_task_is_a_usage_error(stored: bool) -> None:
    caught: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            await ctx.background()
        except UsageError as error:
            caught.append(str(error))
        return "done"

    client = TaskClient(serve(tool, store=MemoryStore() if stored else None))
    assert text(await client.ask("tool")) == "done"
    assert len(caught) == 1
    assert "task=" in caught[0]


async def test_background_in_a_tool_that_can_be_a_task_does_nothing_for_a_client_without_tasks() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.background()
        return "in the request"

    server = serve(tool, store=MemoryStore(), task="deferred")
    async with server.running():
        assert text(await Client(server).ask("tool")) == "in the request"


# What is sent right after the frontier


TELLING = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}


def _told(client: Client) -> list[list[Any]]:
    return [
        [note["params"].get("progress", note["params"].get("data")) for note in played.notifications]
        for played in client.rounds
    ]


async def test_what_is_told_right_after_a_checkpoint_is_sent_once() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.checkpoint()
        await ctx.progress(2)
        await ctx.log("info", "two")
        await ctx.checkpoint()
        await ctx.progress(3)
        await ctx.elicit("more?", bool)
        await ctx.progress(4)
        return "done"

    client = Client(serve(tool), meta=TELLING)
    assert text(await client.call_tool("tool")) == "done"
    assert _told(client) == [[1], [2, "two"], [3], [4]]


async def test_what_is_told_right_after_a_step_and_a_checkpoint_is_sent_once() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(steps.quick, "a")
        await ctx.progress(1)
        await ctx.checkpoint()
        await ctx.log("info", "at last")
        return "done"

    client = Client(serve(tool), meta=TELLING)
    assert text(await client.call_tool("tool")) == "done"
    assert _told(client) == [[1], ["at last"]]


@pytest.mark.parametrize("what", ["progress", "log"])
async def test_what_is_told_right_after_background_is_the_status_of_the_task(what: str) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(steps.quick, "before")
        await ctx.background()
        if what == "progress":
            await ctx.progress(1, 2, "working")
        else:
            await ctx.log("warning", "working")
        await asyncio.wait_for(steps.gate("plain").wait(), 3)
        return "done"

    server = serve(tool, store=MemoryStore(), task="deferred")
    async with server.running():
        client = TaskClient(server, meta=TELLING)
        task_id = await client.start()
        status = ""
        for _ in range(100):
            if status := (await client.get(task_id)).get("statusMessage", ""):
                break
            await asyncio.sleep(0.01)
        steps.gate("plain").set()
        assert await client.text(task_id) == "done"
    assert "working" in status
    assert begun("before") == 1


# check_replay


def making(handler: Handler) -> Any:
    def make() -> Server:
        server = new_server()
        server.add_tool(handler, name="tool")
        return server

    return make


async def draws_for_a_step(ctx: Context) -> str:
    await ctx.step(steps.quick, f"{ctx.now()} {ctx.uuid()} {ctx.random()}")
    await ctx.elicit("more?", bool)
    return "done"


async def draws_for_a_question(ctx: Context) -> str:
    await ctx.elicit(f"At {ctx.now()}, {ctx.uuid()}, {ctx.random()}?", bool)
    await ctx.elicit("more?", bool)
    return "done"


async def draws_for_its_result(ctx: Context) -> str:
    number = ctx.uuid()
    await ctx.elicit("more?", bool)
    return f"order {number}"


async def value_of_a_step_goes_on(ctx: Context) -> str:
    drawn = await ctx.step(draws)
    await ctx.elicit(f"is it {drawn}?", bool)
    return "done"


def draws() -> float:
    return random.random()


async def is_concurrent(ctx: Context) -> str:
    async def branch(name: str, seconds: float) -> str:
        await ctx.step(steps.lasting, name, seconds)
        await ctx.elicit(name, bool)
        return await ctx.step(steps.quick, f"after {name}")

    return " ".join(await asyncio.gather(branch("a", 0.02), branch("b", 0.01), branch("c", 0.001)))


async def is_concurrent_with_uneven_branches(ctx: Context) -> str:
    async def asks(name: str, times: int) -> None:
        for n in range(times):
            await ctx.elicit(f"{name} {n}?", bool)
            await ctx.step(steps.quick, f"{name} {n}")

    await asyncio.gather(asks("a", 3), asks("b", 1), ctx.step(steps.lasting, "slow", 0.01))
    return "done"


CORRECT = [
    draws_for_a_step,
    draws_for_a_question,
    draws_for_its_result,
    value_of_a_step_goes_on,
    is_concurrent,
    is_concurrent_with_uneven_branches,
]


@pytest.mark.parametrize("handler", CORRECT)
async def test_check_replay_passes_a_correct_handler(handler: Handler) -> None:
    result = await soon(check_replay(making(handler), "tool", {}, yes))
    assert not result.get("isError")


async def captures_chance(ctx: Context) -> str:
    number = random.random()
    await ctx.step(lambda: noted.append(str(number)))
    await ctx.elicit("more?", bool)
    return "done"


async def passes_chance(ctx: Context) -> str:
    await ctx.step(steps.quick, str(random.random()))
    await ctx.elicit("more?", bool)
    return "done"


async def asks_by_chance(ctx: Context) -> str:
    await ctx.elicit("more?", bool)
    await ctx.elicit(f"{random.random()}?", bool)
    return "done"


async def returns_chance(ctx: Context) -> str:
    await ctx.elicit("more?", bool)
    return str(random.random())


@pytest.mark.parametrize("handler", [captures_chance, passes_chance, asks_by_chance, returns_chance])
async def test_check_replay_fails_a_handler_that_differs(handler: Handler) -> None:
    """As a difference; or the call itself is refused, in which case the test of it fails as well."""
    assert await soon(_checked(handler)) in ("differs", "refused")


async def _checked(handler: Handler) -> str:
    try:
        result = await check_replay(making(handler), "tool", {}, yes)
    except ReplayDiffers:
        return "differs"
    except CallFailed:
        return "refused"
    return "refused" if result.get("isError") else "passes"


# A question that is another in every round


@pytest.mark.parametrize("key", [None, "fixed"])
async def test_a_question_that_changes_with_every_round_is_named_in_the_second(
    key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = iter(range(100))

    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit(f"Is it number {next(numbers)}, really?", bool, key=key)
        return str(answer.data)

    client = Client(serve(tool))
    first = await client.ask("tool")
    assert "number" not in caplog.text
    with caplog.at_level(logging.WARNING):
        second = await client.retry(first, {name: accept(True) for name in first.requests})
    assert [r["params"]["message"] for r in second.requests.values()] == ["Is it number 1, really?"]
    warnings = [record.getMessage() for record in caplog.records if "not asked again" in record.getMessage()]
    assert len(warnings) == 1
    assert "number 0" in warnings[0]
    assert "number 1" in warnings[0]


async def test_a_question_that_is_asked_again_as_it_was_is_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tool(ctx: Context) -> str:
        one = await ctx.elicit("one?", bool)
        other = await ctx.elicit("two?", bool)
        return f"{one.data} {other.data}"

    with caplog.at_level(logging.WARNING):
        assert await play(tool) == "True True"
    assert "not asked again" not in caplog.text


# Steps that take their cancellation badly


async def test_a_step_that_swallows_its_cancellation_is_cut_in_every_run() -> None:
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.02):
                seen.append(await ctx.step(steps.stubborn, "pay", 0.1))
        except TimeoutError:
            seen.append("cut")
        await ctx.elicit("more?", bool)
        await ctx.step(steps.quick, seen[-1])
        await ctx.elicit("and more?", bool)
        return seen[-1]

    await play(tool)
    assert len(set(seen)) == 1
    assert begun("pay") == begun(seen[0]) == 1


async def test_a_step_that_raises_its_own_cancellation_fails_alike_in_every_run() -> None:
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(cancels_itself)
        except StepFailed as error:
            seen.append(error.type)
        except asyncio.CancelledError:
            seen.append("cancelled")
        await ctx.elicit("more?", bool)
        return seen[-1]

    await play(tool)
    assert len(set(seen)) == 1
    assert begun("it") == 1


async def cancels_itself() -> str:
    noted.append("begin it")
    raise asyncio.CancelledError


def doing(step: Any) -> Handler:
    """A handler that does one step and says how it ended."""

    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        try:
            return await ctx.step(step, "it")
        except Exception as error:
            return type(error).__name__

    return tool


LEAVING = [
    (steps.leaves, "StepFailed"),
    (steps.leaves_and_raises, "StepFailed"),
    (steps.leaves_and_returns, "it"),
]


@pytest.mark.parametrize(("step", "ends"), LEAVING)
async def test_a_step_that_cancels_its_own_task_is_told_to_a_client_who_waits(step: Any, ends: str) -> None:
    assert await play_pushed(doing(step), value=True) == ends
    assert begun("it") == 1


@pytest.mark.parametrize(("step", "ends"), LEAVING)
async def test_a_step_that_cancels_its_own_task_is_recorded_and_told(
    step: Any, ends: str, store: Any
) -> None:
    client = Client(serve(doing(step), store=store))
    first = await client.ask("tool")
    assert [await client.reply(first, YES) for _ in range(2)] == [ends] * 2
    assert begun("it") == 1


@pytest.mark.parametrize(("step", "ends"), LEAVING)
async def test_a_step_that_cancels_its_own_task_is_recorded_in_a_task(
    step: Any, ends: str, shared: Any
) -> None:
    server = serve(doing(step), store=shared, task="required")
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.update(task_id, {key: accept(True) for key in await client.asked(task_id)})
        assert await soon(client.text(task_id)) == ends
    assert begun("it") == 1


# Exceptions that are no Exception


async def exits(what: str) -> str:
    noted.append(f"begin {what}")
    raise GeneratorExit


def exits_in_a_thread(what: str) -> str:
    noted.append(f"begin {what}")
    raise GeneratorExit


async def exits_in_a_task(what: str) -> str:
    return await asyncio.create_task(exits(what))


EXITS = [exits, exits_in_a_thread, exits_in_a_task]


@pytest.mark.parametrize("step", EXITS)
async def test_a_step_that_raises_generator_exit_has_failed(step: Any, store: Any) -> None:
    client = Client(serve(doing(step), store=store))
    first = await client.ask("tool")
    assert [await client.reply(first, YES) for _ in range(2)] == ["StepFailed"] * 2
    assert begun("it") == 1


@pytest.mark.parametrize("step", EXITS)
async def test_a_step_that_raises_generator_exit_has_failed_for_a_client_who_waits(step: Any) -> None:
    assert await play_pushed(doing(step), value=True) == "StepFailed"
    assert begun("it") == 1


def test_a_step_that_is_thrown_away_with_its_loop_has_raised_nothing() -> None:
    async def its_task() -> asyncio.Task[Any]:
        task = current_task()
        assert isinstance(raised(GeneratorExit(), task), GeneratorExit)
        return task

    with pytest.raises(GeneratorExit):
        raised(GeneratorExit(), asyncio.run(its_task()))
