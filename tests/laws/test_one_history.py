"""One history: a round belongs to one token and one set of answers, and is nobody else's."""

import asyncio
from typing import Any

import pytest

from ekiden import Context
from tests.laws import steps
from tests.laws.driving import Client, accept, serve
from tests.laws.steps import begun, noted

REFUSED = "error -32602"


async def shop(ctx: Context) -> str:
    """Asks for an amount, asks to confirm it, charges it."""
    amount = (await ctx.elicit("How much?", int, key="amount")).data
    sure = await ctx.elicit(f"Pay {amount}?", bool, key="sure")
    if not sure.data:
        return "not paid"
    return await ctx.step(steps.charge, amount or 0)


async def one_question(ctx: Context) -> str:
    sure = await ctx.elicit("Pay 5?", bool, key="sure")
    if sure.action != "accept" or not sure.data:
        return "not paid"
    return await ctx.step(steps.charge, 5)


async def with_receipt(ctx: Context) -> str:
    sure = await ctx.elicit("Pay 5?", bool, key="sure")
    if not sure.data:
        return "not paid"
    paid = await ctx.step(steps.charge, 5)
    to = await ctx.elicit("Receipt to?", str, key="to")
    return f"{paid} {await ctx.step(steps.quick, f'mail {to.data}')}"


async def failing(ctx: Context) -> str:
    name = await ctx.elicit("Which?", str, key="sure")
    await ctx.step(steps.quick, str(name.data))
    raise ValueError("after the step")


YES, NO = {"sure": accept(True)}, {"sure": accept(False)}


# Forks


async def test_who_confirms_500_is_not_told_that_5_were_charged(store: Any) -> None:
    client = Client(serve(shop, store=store))
    first = await client.ask("tool")
    five = await client.retry(first, {"amount": accept(5)})
    large = await client.retry(first, {"amount": accept(500)})
    assert await client.reply(five, YES) == "charged 5 EUR"
    assert await client.reply(large, YES) == REFUSED
    assert await client.reply(five, YES) == "charged 5 EUR"
    assert noted == ["begin charge 5"]


async def test_who_confirms_500_on_another_server_is_not_told_that_5_were_charged(shared: Any) -> None:
    one, other = Client(serve(shop, store=shared)), Client(serve(shop, store=shared))
    first = await one.ask("tool")
    five = await one.retry(first, {"amount": accept(5)})
    large = await other.retry(first, {"amount": accept(500)})
    assert await other.reply(large, YES) == "charged 500 EUR"
    assert await one.reply(five, YES) == REFUSED
    assert noted == ["begin charge 500"]


async def test_of_two_branches_at_the_same_time_one_is_charged(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        name = (await ctx.elicit("Which?", str, key="name")).data
        await ctx.elicit(f"Send {name}?", bool, key="sure")
        return await ctx.step(steps.lasting, str(name), 0.05)

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    forks = [await client.retry(first, {"name": accept(name)}) for name in ("tea", "milk")]
    told = await asyncio.gather(*(client.reply(fork, YES) for fork in forks * 3))
    winner = "tea" if begun("tea") else "milk"
    expected = [winner if name == winner else REFUSED for name in ("tea", "milk")]
    assert told == expected * 3
    assert begun("tea") + begun("milk") == 1


async def test_a_branch_that_goes_on_without_steps_does_not_hide_the_one_that_was_charged(store: Any) -> None:
    """The token of the other branch is no way around the round that was charged."""
    client = Client(serve(shop, store=store))
    first = await client.ask("tool")
    five = await client.retry(first, {"amount": accept(5)})
    assert await client.reply(five, YES) == "charged 5 EUR"
    late = await client.retry(first, {"amount": accept(7)})
    assert await client.reply(late, NO) == REFUSED
    assert await client.reply(late, YES) == REFUSED
    assert noted == ["begin charge 5"]


# Other answers


@pytest.mark.parametrize("no", [accept(False), {"action": "decline"}, {"action": "cancel"}])
async def test_no_after_a_charged_yes_is_refused(store: Any, no: Any) -> None:
    client = Client(serve(one_question, store=store))
    first = await client.ask("tool")
    assert await client.reply(first, YES) == "charged 5 EUR"
    assert await client.reply(first, {"sure": no}) == REFUSED
    assert await client.reply(first, YES) == "charged 5 EUR"
    assert noted == ["begin charge 5"]


async def test_no_after_a_charged_yes_is_refused_by_another_server(shared: Any) -> None:
    one, other = Client(serve(one_question, store=shared)), Client(serve(one_question, store=shared))
    first = await one.ask("tool")
    assert await one.reply(first, YES) == "charged 5 EUR"
    assert await other.reply(first, NO) == REFUSED


async def test_no_after_a_yes_that_was_charged_rounds_ago_is_refused(store: Any) -> None:
    client = Client(serve(with_receipt, store=store))
    first = await client.ask("tool")
    second = await client.retry(first, YES)
    assert await client.reply(second, {"to": accept("ada")}) == "charged 5 EUR did mail ada"
    assert await client.reply(first, NO) == REFUSED
    assert await client.reply(second, {"to": accept("eve")}) == REFUSED
    assert await client.reply(first, YES) == "asks Receipt to?"
    assert (begun("charge 5"), begun("mail ada"), begun("mail eve")) == (1, 1, 0)


async def test_no_while_the_yes_is_being_charged_is_refused(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        sure = await ctx.elicit("Pay?", bool, key="sure")
        return await ctx.step(steps.held, "pay") if sure.data else "not paid"

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    running = asyncio.create_task(client.reply(first, YES))
    await steps.until_begun("pay")
    refused = asyncio.create_task(client.reply(first, NO))
    repeat = asyncio.create_task(client.reply(first, YES))
    await asyncio.wait([refused, repeat], timeout=0.1)
    steps.gate("pay").set()
    assert [await running, await repeat, await refused] == ["did pay", "did pay", REFUSED]
    assert begun("pay") == 1


async def test_after_a_no_a_yes_is_charged_and_then_a_no_is_refused(store: Any) -> None:
    """A round in which no step ran is free under `once="auto"`."""
    client = Client(serve(one_question, store=store))
    first = await client.ask("tool")
    assert [await client.reply(first, NO) for _ in range(2)] == ["not paid"] * 2
    assert await client.reply(first, YES) == "charged 5 EUR"
    assert await client.reply(first, NO) == REFUSED


async def test_other_answers_after_a_failed_call_are_refused(store: Any) -> None:
    client = Client(serve(failing, store=store))
    first = await client.ask("tool")
    told = await client.reply(first, {"sure": accept("tea")})
    assert told.startswith("failed")
    assert await client.reply(first, {"sure": accept("milk")}) == REFUSED
    assert await client.reply(first, {"sure": accept("tea")}) == told
    assert (begun("tea"), begun("milk")) == (1, 0)


async def test_more_answers_than_before_are_other_answers(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        async def branch(name: str) -> str:
            await ctx.elicit(name, bool, key=name)
            return await ctx.step(steps.quick, name)

        return " ".join(await asyncio.gather(branch("a"), branch("b")))

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    second = await client.retry(first, {"a": accept(True)})
    assert await client.reply(first, {"a": accept(True), "b": accept(True)}) == REFUSED
    assert await client.reply(first, {"a": accept(True)}) == "asks b"
    assert await client.reply(second, {"b": accept(True)}) == "did a did b"
    assert (begun("a"), begun("b")) == (1, 1)


# Equal answers


async def test_equal_answers_get_the_reply_that_was_recorded(store: Any) -> None:
    client = Client(serve(with_receipt, store=store))
    first = await client.ask("tool")
    seconds = [await client.retry(first, YES) for _ in range(3)]
    lasts = [await client.reply(second, {"to": accept("ada")}) for second in seconds]
    assert lasts == ["charged 5 EUR did mail ada"] * 3
    assert (begun("charge 5"), begun("mail ada")) == (1, 1)


async def test_equal_answers_after_the_client_left_get_the_reply(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Pay?", bool, key="sure")
        return await ctx.step(steps.held, "pay")

    server = serve(tool, store=store)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(client.retry(first, YES))
        await steps.until_begun("pay")
        leaving.cancel()
        await asyncio.wait([leaving], timeout=0.05)
        steps.gate("pay").set()
        assert await client.reply(first, YES) == "did pay"
        assert await client.reply(first, NO) == REFUSED
    assert begun("pay") == 1


async def test_rounds_without_steps_are_free(store: Any) -> None:
    async def tool(ctx: Context) -> str:
        name = await ctx.elicit("Name?", str, key="name")
        sure = await ctx.elicit(f"{name.data}?", bool, key="sure")
        return f"{name.data} {sure.data}"

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    ada, eve = [await client.retry(first, {"name": accept(name)}) for name in ("Ada", "Eve")]
    assert await client.reply(ada, YES) == "Ada True"
    assert await client.reply(eve, NO) == "Eve False"
    assert await client.reply(ada, NO) == "Ada False"


# once=True


async def test_with_once_no_round_has_a_second_branch(shared: Any) -> None:
    clients = [Client(serve(shop, store=shared, once=True)) for _ in range(2)]
    first = await clients[0].ask("tool")
    five = await clients[0].retry(first, {"amount": accept(5)})
    for client in clients:
        assert await client.reply(first, {"amount": accept(500)}) == REFUSED
        assert await client.reply(first, {"amount": accept(5)}) == "asks Pay 5?"
    again = await clients[1].retry(first, {"amount": accept(5)})
    assert await clients[0].reply(five, NO) == "not paid"
    for asked in (five, again):
        assert await clients[1].reply(asked, YES) == REFUSED
        assert await clients[1].reply(asked, NO) == "not paid"
    assert noted == []


async def test_without_once_nothing_is_remembered(store: Any) -> None:
    client = Client(serve(one_question, store=store, once=False))
    first = await client.ask("tool")
    assert [await client.reply(first, YES) for _ in range(2)] == ["charged 5 EUR"] * 2
    assert await client.reply(first, NO) == "not paid"
    assert begun("charge 5") == 2
