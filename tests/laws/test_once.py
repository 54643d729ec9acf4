"""Once: in one flow a step's function is begun at most once, whatever else goes wrong around it."""

import asyncio
from typing import Any

import anyio
import pytest

from ekiden import Context, Retry
from ekiden.rounds.performing import current_step
from tests.laws import steps
from tests.laws.driving import REPLAYED, UNABLE, Client, Runs, accept, play, play_pushed, serve, soon, text
from tests.laws.scopes import SCOPES, Scope
from tests.laws.steps import begun, noted


async def four_more_rounds(ctx: Context) -> None:
    for n in range(4):
        await ctx.elicit(f"{n}?", bool)


# Timeouts and cancellations of the handler's own


EVERYWHERE = [(scope, how) for scope in SCOPES for how in ("rounds", "task")]
EVERYWHERE += [(scope, how) for scope in SCOPES[:3] for how in ("replicas", "parked")]


@pytest.mark.parametrize(("scope", "how"), EVERYWHERE)
async def test_a_step_that_a_scope_cuts_is_begun_once(scope: Scope, how: str) -> None:
    async def tool(ctx: Context) -> str:
        ended = await scope(0.015, ctx.step(steps.lasting, "pay", 0.06))
        await four_more_rounds(ctx)
        return ended

    await play(tool, how)
    assert begun("pay") == 1


THREADS = [(scope, "rounds") for scope in SCOPES] + [(scope, "task") for scope in SCOPES[:3]]


@pytest.mark.usefixtures("_threads_begin_at_once")
@pytest.mark.parametrize(("scope", "how"), THREADS)
async def test_a_thread_that_a_scope_cannot_cut_is_begun_once(scope: Scope, how: str) -> None:
    async def tool(ctx: Context) -> str:
        ended = await scope(0.015, ctx.step(steps.lasting_thread, "pay", 0.05))
        await four_more_rounds(ctx)
        return ended

    await play(tool, how)
    await steps.until_ended("pay")
    assert noted == ["begin pay", "end pay"]


@pytest.mark.parametrize("function", [steps.stubborn, steps.tidying])
@pytest.mark.parametrize("scope", SCOPES[:4])
async def test_a_step_that_takes_its_cancellation_badly_is_begun_once(scope: Scope, function: Any) -> None:
    async def tool(ctx: Context) -> str:
        ended = await scope(0.015, ctx.step(function, "pay", 0.06))
        await four_more_rounds(ctx)
        return ended

    await play(tool)
    assert begun("pay") == 1


@pytest.mark.usefixtures("_threads_begin_at_once")
@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_step_that_is_cut_twice_under_one_scope_is_two_steps(function: Any) -> None:
    async def tool(ctx: Context) -> str:
        for _ in range(2):
            with anyio.move_on_after(0.02):
                await ctx.step(function, "pay", 0.06)
        await four_more_rounds(ctx)
        return "done"

    await play(tool)
    assert begun("pay") == 2


async def test_a_retried_step_that_is_cut_between_its_tries_is_not_tried_in_later_rounds() -> None:
    async def tool(ctx: Context) -> str:
        with anyio.move_on_after(0.1):
            await ctx.step(steps.fails, "pay", retry=Retry(attempts=5, seconds=0.04, factor=20))
        before = begun("pay")
        await four_more_rounds(ctx)
        return str(begun("pay") - before)

    assert await play(tool) == "0"
    assert begun("pay") == 2


async def test_a_step_that_is_cut_in_the_second_round_is_begun_once() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool)
        with anyio.move_on_after(0.02):
            await ctx.step(steps.lasting, "pay", 0.1)
        await four_more_rounds(ctx)
        return "done"

    await play(tool)
    assert begun("pay") == 1


async def test_a_repeat_of_the_round_in_which_a_step_was_cut_does_not_begin_it(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        paying = asyncio.ensure_future(ctx.step(steps.lasting, "pay", 0.1))
        await steps.until_begun("pay")
        while not paying.done():
            paying.cancel()
            await asyncio.sleep(0)
        await ctx.elicit("more?", bool)
        return "done"

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    told = [await client.reply(first, {"k": accept(True)}) for _ in range(3)]
    assert told == ["asks more?"] * 3
    assert begun("pay") == 1


# Siblings


@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_failing_sibling_does_not_make_a_repeat_begin_the_step_again(
    store: Any, function: Any
) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")

        async def fail() -> None:
            await steps.until_begun("pay")
            raise ValueError("sibling")

        await asyncio.gather(ctx.step(function, "pay", 0.1), fail())
        return "never"

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    together = [client.reply(first, {"k": accept(True)}) for _ in range(3)]
    told = [*await asyncio.gather(*together), await client.reply(first, {"k": accept(True)})]
    assert len(set(told)) == 1
    assert told[0].startswith("failed")
    assert begun("pay") == 1


@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_missing_capability_does_not_make_a_repeat_begin_the_step_again(
    store: Any, function: Any
) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")

        async def poem() -> None:
            await steps.until_begun("pay")
            await ctx.sample("poem", max_tokens=9)

        await asyncio.gather(ctx.step(function, "pay", 0.1), poem())
        return "never"

    client = Client(serve(tool, store=store), capabilities=UNABLE)
    first = await client.ask("tool")
    together = [client.reply(first, {"k": accept(True)}) for _ in range(3)]
    told = [*await asyncio.gather(*together), await client.reply(first, {"k": accept(True)})]
    assert told == ["error -32021"] * 4
    assert begun("pay") == 1


async def test_after_a_missing_capability_the_step_is_known_to_a_client_that_has_it(store: Any) -> None:
    """Same answers, so the same round: the recorded error, or the rest of the call; never the step again."""

    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")

        async def poem() -> None:
            await steps.until_begun("pay")
            await ctx.sample("poem", max_tokens=9)

        done, _ = await asyncio.gather(ctx.step(steps.lasting, "pay", 0.05), poem())
        return done

    server = serve(tool, store=store)
    first = await Client(server).ask("tool")
    unable = Client(server, capabilities=UNABLE)
    assert await unable.reply(first, {"k": accept(True)}) == "error -32021"
    able = await Client(server).reply(first, {"k": accept(True)})
    assert able in ("error -32021", "asks sampling/createMessage")
    assert begun("pay") == 1


# Answers that are none


@pytest.mark.parametrize("malformed", [7, {"action": "explode"}, []])
async def test_a_malformed_answer_beside_a_good_one_begins_nothing(store: Any, malformed: Any) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        runs.begin()

        async def pays() -> str:
            await ctx.elicit("Pay?", bool, key="pay")
            return await ctx.step(steps.lasting, "pay", 0.05)

        paid, _ = await asyncio.gather(pays(), ctx.elicit("Note?", str, key="note"))
        return paid

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    for _ in range(2):
        assert await client.reply(first, {"pay": accept(True), "note": malformed}) == "error -32602"
    assert noted == []
    assert len(runs.all) == 1
    good = {"pay": accept(True), "note": accept("hi")}
    assert await client.reply(first, good) == "pay"
    assert begun("pay") == 1


# Clients that leave, servers that stop


@pytest.mark.parametrize("once", ["auto", True])
@pytest.mark.parametrize("function", [steps.held, steps.held_thread])
async def test_a_step_whose_client_left_is_begun_once(shared: Any, function: Any, once: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(function, "pay")

    server = serve(tool, store=shared, once=once)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(client.retry(first, {"k": accept(True)}))
        await steps.until_begun("pay")
        leaving.cancel()
        await asyncio.wait([leaving], timeout=0.05)
        back = [asyncio.create_task(client.reply(first, {"k": accept(True)})) for _ in range(3)]
        await asyncio.wait(back, timeout=0.1)
        steps.gate("pay").set()
        steps.door("pay").set()
        assert [await soon(one) for one in back] == ["did pay"] * 3
        await asyncio.wait([leaving])
    assert noted == ["begin pay", "end pay"]


@pytest.mark.parametrize("function", [steps.held, steps.held_thread])
async def test_a_step_whose_server_stops_is_begun_once(shared: Any, function: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(function, "pay")

    server, successor = serve(tool, store=shared), serve(tool, store=shared)
    await server.endpoint.start()
    client = Client(server)
    first = await client.ask("tool")
    running = asyncio.create_task(client.reply(first, {"k": accept(True)}))
    await steps.until_begun("pay")
    stopping = asyncio.create_task(server.endpoint.stop())
    repeat = asyncio.create_task(Client(successor).reply(first, {"k": accept(True)}))
    await asyncio.wait([stopping, repeat], timeout=0.1)
    steps.gate("pay").set()
    steps.door("pay").set()
    await soon(stopping)
    assert await soon(repeat) == "did pay"
    running.cancel()
    await asyncio.wait([running])
    assert noted == ["begin pay", "end pay"]


# Values that cannot be kept


def opaque(what: str):  # type: ignore[no-untyped-def]
    noted.append(f"begin {what}")
    return object()


async def huge(what: str) -> int:
    noted.append(f"begin {what}")
    return 2**70


def no_text(what: str) -> bytes:
    noted.append(f"begin {what}")
    return b"\xff\xfe"


def not_as_annotated(what: str) -> str:
    noted.append(f"begin {what}")
    return 5  # type: ignore[return-value]  # What an author's mistake looks like.


def surrogate(what: str) -> str:
    noted.append(f"begin {what}")
    return "\ud800"


def bottomless(what: str):  # type: ignore[no-untyped-def]
    noted.append(f"begin {what}")
    value: list[Any] = []
    value.append(value)
    return value


UNKEEPABLE = [opaque, huge, no_text, not_as_annotated, surrogate, bottomless]


@pytest.mark.parametrize("how", REPLAYED)
@pytest.mark.parametrize("function", UNKEEPABLE)
async def test_a_step_whose_value_cannot_be_kept_is_begun_once(function: Any, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            run.append(await ctx.step(function, "pay"))
        except Exception as error:
            run.append((type(error).__name__, str(error)))
        await four_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    assert begun("pay") == 1
    runs.agree()


@pytest.mark.parametrize("function", UNKEEPABLE)
async def test_a_repeat_does_not_begin_a_step_whose_value_cannot_be_kept(store: Any, function: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return str(await ctx.step(function, "pay"))

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    told = [await client.reply(first, {"k": accept(True)}) for _ in range(3)]
    assert len(set(told)) == 1
    assert begun("pay") == 1


class Connection:
    """Nothing that an annotation could carry."""


def annotated_in_vain(what: str) -> Connection:
    noted.append(f"begin {what}")
    return Connection()


def annotated_with_nothing_known(what: str) -> "Unknown":  # type: ignore[name-defined]  # noqa: F821  The point.
    noted.append(f"begin {what}")
    return 1


@pytest.mark.parametrize("function", [annotated_in_vain, annotated_with_nothing_known])
async def test_an_annotation_that_cannot_carry_a_value_is_refused_before_the_step_begins(
    function: Any,
) -> None:
    async def tool(ctx: Context) -> str:
        return str(await ctx.step(function, "pay"))

    await Client(serve(tool)).ask("tool")
    assert begun("pay") == 0


class Unkept(Exception):
    pass


def raises_what_cannot_be_kept(what: str) -> str:
    noted.append(f"begin {what}")
    raise Unkept(object())


@pytest.mark.parametrize("raises", [(), (Unkept,)])
async def test_a_step_whose_exception_cannot_be_kept_is_begun_once(raises: Any) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            await ctx.step(raises_what_cannot_be_kept, "pay", raises=raises)
        except Exception as error:
            run.append(type(error).__name__)
        await four_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert begun("pay") == 1
    runs.agree()


async def test_a_step_runs_once_in_the_plainest_of_calls(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        one = await ctx.step(steps.quick, "a")
        await ctx.elicit("sure?", bool)
        return f"{one} {await ctx.step(steps.plain, 'b')}"

    client = Client(serve(tool, store=store))
    assert text(await client.call_tool("tool")) == "did a did b"
    assert (begun("a"), begun("b")) == (1, 1)


keys: list[str] = []


async def note_key() -> None:
    keys.append(str(current_step.get()).partition(":")[2])


async def test_equal_steps_have_keys_of_their_own_the_same_in_rounds_and_in_a_pushed_call() -> None:
    async def tool(ctx: Context) -> str:
        for _ in range(3):
            await ctx.step(note_key)
        await ctx.step(note_key, key="pay")
        return "done"

    keys.clear()
    assert await play(tool) == await play_pushed(tool) == "done"
    assert keys[:4] == keys[4:]
    assert [key.removeprefix(keys[0]) for key in keys[:3]] == ["", "-2", "-3"]
    assert keys[3] == "pay"
