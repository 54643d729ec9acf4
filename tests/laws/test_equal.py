"""Equal: a replay shows every branch the values, the exceptions and the order of the first run."""

import asyncio
from typing import Any

import anyio
import pytest

from ekiden import Context, StepFailed
from ekiden.testing import Replicas
from tests.laws import steps
from tests.laws.driving import REPLAYED, Client, Runs, accept, new_server, play, serve, soon, text
from tests.laws.scopes import SCOPES, Scope
from tests.laws.steps import begun, noted


async def two_more_rounds(ctx: Context) -> None:
    for n in range(2):
        await ctx.elicit(f"{n}?", bool)


# Scopes


FUNCTIONS = [steps.lasting, steps.lasting_thread, steps.stubborn, steps.tidying]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_says_the_same_of_a_step_in_every_run(scope: Scope, function: Any) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        run.append(await scope(0.01, ctx.step(function, "pay", 0.05)))
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
        run.append(await scope(0.01, ctx.step(steps.lasting, "pay", 0.05)))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, "task") == "done"
    runs.agree()


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_step_that_ended_in_time_is_not_cut_in_a_replay(scope: Scope) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        run.append(await scope(0.3, ctx.step(steps.lasting, "pay", 0.01)))
        await ctx.elicit("more?", bool)
        run.append(await scope(0.3, ctx.step(steps.lasting_thread, "next", 0.01)))
        return "done"

    scopes_that_wait = ("anyio_group",)
    if scope.__name__ in scopes_that_wait:
        assert await play(tool, "parked") == "done"
    else:
        assert await play(tool) == "done"
    assert "pay" in runs.agree()[0]


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_around_a_question_that_is_answered_does_not_fire(scope: Scope) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def ask() -> Any:
            return (await ctx.elicit("well?", bool, key="k")).data

        if scope.__name__ != "anyio_group":
            run.append(await scope(5, ask()))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert "True" in str(runs.agree()) or scope.__name__ == "anyio_group"


@pytest.mark.parametrize("how", REPLAYED)
@pytest.mark.parametrize("scope", SCOPES[:4])
async def test_a_scope_that_cuts_a_chain_cuts_it_at_the_same_place(scope: Scope, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()

        async def chain() -> str:
            for n in range(3):
                run.append(await ctx.step(steps.lasting, f"link {n}", 0.001 if n == 0 else 0.08))
            return "whole"

        run.append(await scope(0.03, chain()))
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


# Failing siblings


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


# Values are values


def cart(_name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  That it has no annotation is the point.
    return {"items": []}


def typed_cart(_name: str) -> dict[str, list[str]]:
    return {"items": []}


_stock: dict[str, list[str]] = {"items": []}


def stock(_name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  As above.
    return _stock


@pytest.mark.parametrize("how", [*REPLAYED, "parked"])
@pytest.mark.parametrize("function", [cart, typed_cart])
async def test_a_value_that_the_handler_changes_is_as_it_was_in_every_run(function: Any, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        value = await ctx.step(function, "mine")
        value["items"].append("x")
        run.append([*value["items"]])
        await two_more_rounds(ctx)
        value["items"].append("y")
        run.append([*value["items"]])
        await ctx.elicit("last?", bool)
        return "done"

    assert await play(tool, how) == "done"
    assert runs.agree() == [["x"], ["x", "y"]]


async def test_a_value_that_its_module_changes_later_is_as_it_was_in_every_run() -> None:
    runs = Runs()
    _stock["items"].clear()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        value = await ctx.step(stock, "ours")
        _stock["items"].append("sold")
        run.append([*value["items"]])
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [[]]


async def pops(order: dict[str, Any]) -> int:
    number: int = order.pop("id")
    return number


def pops_in_a_thread(order: dict[str, Any]) -> int:
    number: int = order.pop("id")
    order["items"].clear()
    return number


@pytest.mark.parametrize("function", [pops, pops_in_a_thread])
async def test_an_argument_that_a_step_changes_is_as_it_was_for_the_handler(function: Any) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        order: dict[str, Any] = {"id": 7, "items": ["tea"]}
        run.append(await ctx.step(function, order))
        run.append({**order, "items": [*order["items"]]})
        await ctx.elicit("more?", bool)
        run.append(order["id"])
        run.append(await ctx.step(function, order, key="again"))
        await ctx.elicit("and more?", bool)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [7, {"id": 7, "items": ["tea"]}, 7, 7]


async def test_an_argument_that_the_handler_changes_while_the_step_runs_is_as_it_was_for_the_step() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        order = {"id": 7}
        paying = asyncio.ensure_future(ctx.step(reads_late, order))
        await asyncio.sleep(0.005)
        order["id"] = 8
        run.append(await paying)
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [7]


async def reads_late(order: dict[str, int]) -> int:
    await asyncio.sleep(0.02)
    return order["id"]


async def test_an_answer_that_the_handler_changes_is_as_it_was_in_every_run() -> None:
    runs = Runs()
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        answer: Any = await ctx.elicit("Name?", schema, key="name")
        run.append(dict(answer.data))
        answer.data["name"] += "!"
        answer.data["more"] = "x"
        roots = await ctx.list_roots()
        run.append([str(root.uri) for root in roots])
        roots.clear()
        await two_more_rounds(ctx)
        return "done"

    def answers(key: str, request: dict[str, Any]) -> Any:
        if request["method"] == "roots/list":
            return ["file:///a"]
        return {"name": "Ada"} if key == "name" else True

    client = Client(serve(tool), answers)
    assert text(await client.call_tool("tool")) == "done"
    assert runs.agree() == [{"name": "Ada"}, ["file:///a"]]


async def pair(_name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  As above.
    return (1, [2, (3,)])


async def test_a_tuple_without_an_annotation_is_of_one_type_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            value: Any = await ctx.step(pair, "x")
            run.append(repr(value))
        except Exception as error:
            run.append(type(error).__name__)
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    runs.agree()


@pytest.mark.parametrize("store_of", ["memory", "sqlite"])
async def test_a_round_that_is_taken_up_again_gets_its_arguments_as_they_came(
    store_of: str, tmp_path: Any
) -> None:
    from ekiden.stores.memory import MemoryStore

    store: Any = MemoryStore() if store_of == "memory" else f"sqlite:///{tmp_path}/rounds.db"
    patience = [60.0]
    reached = asyncio.Event()

    async def tool(order: dict[str, Any], items: list[str], ctx: Context) -> str:
        items.append("wrapping")
        number = order.pop("id")
        await ctx.elicit("sure?", bool, key="k")
        paid = await ctx.step(steps.quick, f"{number} {ctx.uuid()} {' '.join(items)}")
        reached.set()
        await asyncio.sleep(patience[0])
        return paid.split()[-2] + " " + paid.split()[-1]

    server = serve(tool, store=store)
    async with server.running():
        client, arguments = Client(server), {"order": {"id": 7}, "items": ["tea"]}
        first = await client.ask("tool", arguments)
        leaving = asyncio.create_task(client.retry(first, {"k": accept(True)}, arguments=arguments))
        await soon(reached.wait())
        leaving.cancel()
        await asyncio.wait([leaving])
        patience[0] = 0
        assert await client.reply(first, {"k": accept(True)}, arguments) == "tea wrapping"
    assert len(noted) == 2


async def test_a_correct_handler_of_everything_ends_alike_on_replicas() -> None:
    def make() -> Any:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            token = ctx.uuid()
            one, other = await asyncio.gather(
                ctx.step(steps.lasting, "a", 0.02), ctx.step(steps.lasting, "b", 0.01)
            )
            await ctx.elicit("one?", bool)
            await ctx.checkpoint()
            same = await ctx.step(steps.quick, f"{one}{other}{token}")
            await ctx.elicit("two?", bool)
            return str(same == f"did ab{token}")

        return server

    replicas = Replicas(make)
    assert text(await soon(replicas.client({"one?": True, "two?": True}).call_tool("tool"))) == "True"
    assert len(noted) == 6
