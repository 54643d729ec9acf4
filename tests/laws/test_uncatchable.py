"""Uncatchable: what ends a leg is nothing that a handler's `except Exception` sees."""

import asyncio
import contextlib
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from ekiden import Context, RoundLimits, StepFailed
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed
from tests.laws import steps
from tests.laws.driving import (
    SHORT_LEASE,
    UNABLE,
    Client,
    Faulty,
    Handler,
    TaskClient,
    accept,
    first_then,
    play_pushed,
    said,
    serve,
)
from tests.laws.steps import begun, noted

YES = {"k": accept(True)}
LONG_LEASE = RoundLimits(lease_seconds=60)


def by_except(seen: list[str]) -> Handler:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        try:
            card = await ctx.step(steps.visa)
        except Exception as error:
            seen.append(type(error).__name__)
            card = await ctx.step(steps.backup)
        await ctx.elicit("receipt?", bool, key="receipt")
        return card

    return tool


def by_suppress(seen: list[str]) -> Handler:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        card = ""
        with contextlib.suppress(Exception):
            card = await ctx.step(steps.visa)
        if not card:
            seen.append("nothing")
            card = await ctx.step(steps.backup)
        await ctx.elicit("receipt?", bool, key="receipt")
        return card

    return tool


def by_gather(seen: list[str]) -> Handler:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        (card,) = await asyncio.gather(ctx.step(steps.visa), return_exceptions=True)
        if isinstance(card, Exception):
            seen.append(type(card).__name__)
            card = await ctx.step(steps.backup)
        await ctx.elicit("receipt?", bool, key="receipt")
        return str(card)

    return tool


def by_group(seen: list[str]) -> Handler:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        try:
            async with asyncio.TaskGroup() as group:
                paying = group.create_task(ctx.step(steps.visa))
            card = paying.result()
        except* Exception:
            seen.append("group")
            card = await ctx.step(steps.backup)
        await ctx.elicit("receipt?", bool, key="receipt")
        return card

    return tool


WAYS = [by_except, by_suppress, by_gather, by_group]


async def _to_the_end(client: Client, first: Any, repeats: int = 5) -> str:
    """Repeat the round until it is answered, and then the next."""
    for _ in range(repeats):
        try:
            asked = await client.retry(first, YES)
        except CallFailed:
            continue
        return await client.reply(asked, {"receipt": accept(True)}) if asked.requests else said(asked.result)
    return "never answered"


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("method", ["claim", "commit"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_fails_makes_nobody_use_the_other_card(
    way: Any, method: str, failures: int
) -> None:
    store, seen = Faulty(), []
    client = Client(serve(way(seen), store=store, rounds=SHORT_LEASE))
    first = await client.ask("tool")
    store.failures[method] = failures
    assert await _to_the_end(client, first) == "visa"
    assert noted == ["begin visa"]
    assert seen == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_is_away_when_the_card_was_charged_makes_nobody_use_the_other(way: Any) -> None:
    store, seen = Faulty(), []
    client = Client(serve(way(seen), store=store, rounds=SHORT_LEASE))
    first = await client.ask("tool")
    store.failures["commit"] = 1_000_000
    running = asyncio.create_task(_to_the_end(client, first))
    await steps.until_begun("visa")
    await asyncio.sleep(0.1)
    assert "begin backup" not in noted
    store.failures.clear()
    assert await running == "visa"
    assert noted == ["begin visa"]
    assert seen == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_claim_that_was_lost_makes_nobody_use_the_other_card(way: Any) -> None:
    store, seen = Faulty(), []
    client = Client(serve(way(seen), store=store))
    first = await client.ask("tool")
    store.results["commit"] = False
    assert await client.reply(first, YES) == "error -32603"
    assert noted == ["begin visa"]
    assert seen == []


async def test_a_handler_that_swallows_even_cancellations_does_nothing_after_the_store_failed() -> None:
    store = Faulty()

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        try:
            return await ctx.step(steps.visa)
        except BaseException:
            return await ctx.step(steps.backup)

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    store.failures["claim"] = 1
    assert await client.reply(first, YES) == "error -32603"
    assert noted == []
    assert await client.reply(first, YES) == "visa"
    assert noted == ["begin visa"]


async def test_a_clean_up_in_a_finally_runs_when_the_store_failed_and_its_steps_do_nothing() -> None:
    store, cleaned = Faulty(), []

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        try:
            return await ctx.step(steps.visa)
        finally:
            cleaned.append("cleaned")
            await ctx.step(steps.quick, "clean up")

    client = Client(serve(tool, store=store))
    first = await client.ask("tool")
    store.failures["claim"] = 1
    assert await client.reply(first, YES) == "error -32603"
    assert "cleaned" in cleaned
    assert noted == []


async def test_a_task_whose_store_fails_uses_one_card(tmp_path: Any) -> None:
    store, seen = MemoryStore(), []
    append, failures = store.tasks.append, [2]

    async def flaky(*arguments: Any, **keywords: Any) -> Any:
        from ekiden import StoreUnavailable

        if failures[0]:
            failures[0] -= 1
            raise StoreUnavailable("away")
        return await append(*arguments, **keywords)

    store.tasks.append = flaky  # type: ignore[method-assign]  # A store that fails is what this is about.

    async def tool(ctx: Context) -> str:
        try:
            card = await ctx.step(steps.visa)
        except Exception as error:
            seen.append(type(error).__name__)
            card = await ctx.step(steps.backup)
        return card

    server = serve(tool, store=store, task="required")
    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "visa"
    assert noted == ["begin visa"]
    assert seen == []


# The other ends of a leg


async def test_a_handler_that_changed_does_not_see_that_it_is_refused() -> None:
    def version(amount: int) -> Handler:
        async def tool(ctx: Context) -> str:
            try:
                paid = await ctx.step(steps.charge, amount)
            except Exception:
                paid = await ctx.step(steps.backup)
            await ctx.elicit("ok?", bool, key="k")
            return paid

        return tool

    assert await first_then(version(5), version(6)) == "error -32603"
    assert noted == ["begin charge 5"]


@pytest.mark.parametrize("malformed", [7, {"action": "explode"}])
async def test_a_handler_does_not_see_a_malformed_answer(malformed: Any) -> None:
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("pay?", bool, key="k")
        except Exception as error:
            seen.append(type(error).__name__)
            return await ctx.step(steps.backup)
        return "fine"

    client = Client(serve(tool))
    first = await client.ask("tool")
    assert await client.reply(first, {"k": malformed}) == "error -32602"
    assert seen == []
    assert noted == []


async def test_a_handler_does_not_see_that_the_client_cannot_be_asked() -> None:
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        try:
            await ctx.sample("poem", max_tokens=9)
        except Exception as error:
            seen.append(type(error).__name__)
            await ctx.step(steps.backup)
        return "fine"

    client = Client(serve(tool), capabilities=UNABLE)
    first = await client.ask("tool")
    assert await client.reply(first, YES) == "error -32021"
    assert seen == []
    assert noted == []


async def test_a_handler_does_not_see_that_its_round_was_answered_otherwise(store: Any) -> None:
    """The first still runs its step when the second comes with another answer."""
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("which?", str, key="k")
        try:
            return await ctx.step(steps.held, str(answer.data))
        except Exception as error:
            seen.append(type(error).__name__)
            return await ctx.step(steps.backup)

    client = Client(serve(tool, store=store, rounds=LONG_LEASE))
    first = await client.ask("tool")
    running = asyncio.create_task(client.reply(first, {"k": accept("tea")}))
    await steps.until_begun("tea")
    other = asyncio.create_task(client.reply(first, {"k": accept("coffee")}))
    await asyncio.wait([other], timeout=0.1)
    steps.gate("tea").set()
    assert await running == "did tea"
    assert await other == "error -32602"
    assert (begun("coffee"), begun("backup"), seen) == (0, 0, [])


# What does not fit any more


class Receipt(BaseModel):
    id: str


class ReceiptInEuro(BaseModel):
    id: str
    currency: str


class UnluckyReceipt(BaseModel):
    id: str

    @field_validator("id")
    @classmethod
    def known(cls, value: str) -> str:
        raise KeyError(value)


def charging(kept: type[BaseModel], *, beside: bool) -> Handler:
    """A handler whose step is annotated to return one type or another."""

    async def charge() -> Receipt:
        noted.append("begin charge")
        return Receipt(id="secret 1")

    charge.__annotations__["return"] = kept

    async def tool(ctx: Context) -> str:
        try:
            if beside:
                paid = (await asyncio.gather(ctx.step(charge), ctx.step(steps.quick, "a")))[0].id
            else:
                paid = (await ctx.step(charge)).id
        except Exception:
            paid = await ctx.step(steps.backup)
        await ctx.elicit("ok?", bool, key="k")
        return paid

    return tool


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kept", [ReceiptInEuro, UnluckyReceipt])
async def test_a_handler_does_not_see_that_what_was_kept_fits_its_annotation_no_more(
    kept: type[BaseModel], beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = charging(Receipt, beside=beside), charging(kept, beside=beside)
    assert await first_then(old, new) == "error -32603"
    assert begun("charge") == 1
    assert begun("backup") == 0
    assert "what was kept of step" in caplog.text
    assert "give what is new in it a default" in caplog.text
    assert "secret 1" not in caplog.text


async def test_a_task_does_not_see_that_what_was_kept_fits_its_annotation_no_more() -> None:
    store = MemoryStore()
    before = serve(charging(Receipt, beside=False), store=store, task="required")
    async with before.running():
        task_id = await TaskClient(before).start()
        await TaskClient(before).asked(task_id)
    after = serve(charging(ReceiptInEuro, beside=False), store=store, task="required")
    async with after.running():
        client = TaskClient(after)
        await client.update(task_id, {key: accept(True) for key in await client.asked(task_id)})
        task = await client.until(task_id, "failed")
    assert "secret 1" not in str(task)
    assert noted == ["begin charge"]


async def test_a_failure_that_was_kept_reaches_the_handler() -> None:
    async def tool(ctx: Context) -> str:
        try:
            paid = await ctx.step(steps.fails, "card")
        except StepFailed:
            paid = await ctx.step(steps.backup)
        await ctx.elicit("ok?", bool, key="k")
        return paid

    assert await first_then(tool, tool) == "backup"
    assert noted == ["begin card", "begin backup"]


# Validators that raise what is no ValueError


class Name(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def known(cls, value: str) -> str:
        return {"ann": "Ann"}[value]


class AnyName(BaseModel):
    name: str


BOB = accept(name="bob")


def naming(form: Any = Name, *, beside: bool = False) -> Handler:
    """A handler that would use the other card if it saw what the validator raised."""

    async def tool(ctx: Context) -> str:
        try:
            if beside:
                asking = ctx.elicit("who?", form, key="k")
                answer = (await asyncio.gather(asking, ctx.step(steps.lasting, "a", 0.05)))[0]
            else:
                answer = await ctx.elicit("who?", form, key="k")
        except Exception:
            return await ctx.step(steps.backup)
        await ctx.elicit("sure?", bool, key="sure")
        return str(answer.data)

    return tool


@pytest.mark.parametrize("resume", ["replay", "parked"])
@pytest.mark.parametrize("beside", [False, True])
async def test_a_validator_that_raises_fails_the_call(beside: bool, resume: str) -> None:
    server = serve(naming(beside=beside), resume=resume)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        assert await client.reply(first, {"k": BOB}) == "failed: Tool 'tool' failed"
    assert begun("backup") == 0


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (LookupError("nobody"), "LookupError: nobody"),
        (SystemExit(3), "RuntimeError: the handler raised SystemExit, which is not an Exception"),
    ],
)
@pytest.mark.parametrize("where", ["in a round", "parked", "beside a step", "of old"])
async def test_whatever_a_validator_raises_ends_only_its_call_and_is_in_the_log(
    where: str, what: BaseException, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Unlucky(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def known(cls, value: str) -> str:
            raise what

    handler = naming(Unlucky, beside=where == "beside a step")
    server = serve(handler, resume="parked" if where == "parked" else "replay")
    async with server.running():
        client = Client(server)
        if where == "of old":
            before = Client(serve(naming(AnyName)))
            asked = await before.retry(await before.ask("tool"), {"k": BOB})
            reply = await client.reply(asked, {"sure": accept(True)})
        else:
            reply = await client.reply(await client.ask("tool"), {"k": BOB})
        assert reply == "failed: Tool 'tool' failed"
        (error,) = [record.exc_info for record in caplog.records if record.levelname == "ERROR"]
        assert error
        assert f"{type(error[1]).__name__}: {error[1]}" == told
    assert begun("backup") == 0


@pytest.mark.parametrize("beside", [False, True])
async def test_a_validator_that_raises_over_what_was_read_before_fails_the_call(beside: bool) -> None:
    before = Client(serve(naming(AnyName, beside=beside)))
    second = await before.retry(await before.ask("tool"), {"k": BOB})
    after = Client(serve(naming(beside=beside)))
    assert await after.reply(second, {"sure": accept(True)}) == "failed: Tool 'tool' failed"
    assert begun("backup") == 0


@pytest.mark.parametrize("beside", [False, True])
async def test_a_validator_that_raises_fails_the_task(beside: bool) -> None:
    server = serve(naming(beside=beside), store=MemoryStore(), task="required")
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.update(task_id, dict.fromkeys(await client.asked(task_id), BOB))
        task = await client.until(task_id, "completed")
    assert said({"resultType": "complete", **task["result"]}) == "failed: Tool 'tool' failed"
    assert begun("backup") == 0


async def test_a_validator_that_raises_fails_the_call_of_a_client_who_waits() -> None:
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("who?", Name)).data)

    assert await play_pushed(tool, name="bob") == "failed: Tool 'tool' failed"
