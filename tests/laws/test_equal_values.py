"""Equal: a value that was changed afterwards, by whomever, is in every replay what it was at first."""

import asyncio
from typing import Any

import pytest

from ekiden import Context
from ekiden.testing import Replicas
from tests.laws import steps
from tests.laws.driving import (
    REPLAYED,
    Client,
    Runs,
    accept,
    new_server,
    play,
    serve,
    soon,
    text,
    two_more_rounds,
)
from tests.laws.steps import noted


def cart(_name: str):  # type: ignore[no-untyped-def]
    return {"items": []}


def typed_cart(_name: str) -> dict[str, list[str]]:
    return {"items": []}


_stock: dict[str, list[str]] = {"items": []}


def stock(_name: str):  # type: ignore[no-untyped-def]
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


async def pair(_name: str):  # type: ignore[no-untyped-def]
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


async def test_a_round_that_is_taken_up_again_gets_its_arguments_as_they_came(shared: Any) -> None:
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

    server = serve(tool, store=shared)
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
