"""Accounted for: nothing fresh begins while a step that the journal knows could be its earlier self."""

import asyncio
import functools
import logging
import random
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from ekiden import Context
from ekiden.stores.memory import MemoryStore
from tests.laws import audit, crm, steps
from tests.laws.driving import Client, Handler, TaskClient, accept, first_then, serve
from tests.laws.steps import noted

REFUSED = "error -32603"


def does(*effects: Any) -> Handler:
    """A handler that does one effect after another: a question for a text, a step for a tuple."""

    async def tool(ctx: Context) -> str:
        values = []
        for effect in effects:
            if isinstance(effect, str):
                values.append(str((await ctx.elicit(effect, bool, key=effect)).data))
            else:
                function, *arguments = effect
                values.append(str(await ctx.step(function, *arguments)))
        return ", ".join(values)

    return tool


PAY_5, PAY_6 = (steps.charge, 5), (steps.charge, 6)
SHIP, WRAP = (steps.quick, "ship"), (steps.quick, "wrap")


# A new version that could charge again is refused before it does anything


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([PAY_5, "ok?"], [PAY_6, "ok?"]),
        ([PAY_5, "ok?"], [(steps.charge, 5, "USD"), "ok?"]),
        ([PAY_5, "ok?"], [(steps.charge_card, 5), "ok?"]),
        ([PAY_5, "ok?", SHIP], ["ok?", SHIP]),
        ([PAY_5, WRAP, "ok?"], [PAY_6, WRAP, "ok?"]),
        ([WRAP, PAY_5, "ok?"], [WRAP, PAY_6, "ok?"]),
        ([PAY_5, "ok?"], [SHIP, PAY_5, "ok?"]),
        ([(crm.delete, 1), "ok?"], [(audit.delete, 1), "ok?"]),
        ([(crm.delete, 1), "ok?"], [(audit.delete, 1), (crm.delete, 1), "ok?"]),
        ([PAY_5, "ok?"], ["ok?", PAY_6]),
        ([PAY_5, PAY_5, "ok?"], [PAY_5, PAY_6, "ok?"]),
        ([PAY_5, PAY_5, "ok?", SHIP], [PAY_5, "ok?", SHIP]),
    ],
    ids=[
        "argument",
        "one more argument",
        "renamed",
        "removed",
        "argument of the first",
        "argument of the second",
        "one more in front",
        "another module",
        "another module in front",
        "moved behind and changed",
        "one of two equal ones changed",
        "one of two equal ones removed",
    ],
)
async def test_a_changed_handler_is_refused_before_anything_begins(old: Any, new: Any, store: Any) -> None:
    before = None

    async def watched(ctx: Context) -> str:
        nonlocal before
        before = [*noted]
        return str(await does(*new)(ctx))

    assert await first_then(does(*old), watched, store=store) == REFUSED
    assert before
    assert noted == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ([PAY_5, "ok?"], [PAY_5, "ok?", SHIP], "charged 5 EUR, True, did ship"),
        ([PAY_5, "ok?"], ["new?", PAY_5, "ok?"], "asks new?"),
        ([PAY_5, "ok?"], [PAY_5, "new?", "ok?"], "asks new?"),
        ([PAY_5, "ok?"], [PAY_5, "ok?", "new?"], "asks new?"),
        ([PAY_5, "ok?"], [PAY_5, "reworded?"], "asks reworded?"),
        (["ok?", PAY_5], ["ok?", PAY_6], "True, charged 6 EUR"),
        (["ok?", PAY_5], [SHIP, "ok?", PAY_5], "did ship, True, charged 5 EUR"),
        (["ok?", PAY_5], [PAY_5], "charged 5 EUR"),
    ],
    ids=[
        "a step behind",
        "a question in front",
        "a question between",
        "a question behind",
        "a reworded question",
        "a step that had not begun",
        "a step where none had begun",
        "a question less",
    ],
)
async def test_a_changed_handler_goes_on_where_no_step_is_in_doubt(
    old: Any, new: Any, told: str, store: Any
) -> None:
    assert await first_then(does(*old), does(*new), store=store) == told
    assert len([one for one in noted if one.startswith("begin charge")]) <= 1


async def test_steps_that_changed_places_are_not_begun_again() -> None:
    old, new = does(PAY_5, SHIP, "ok?"), does(SHIP, PAY_5, "ok?")
    assert await first_then(old, new) in ("did ship, charged 5 EUR, True", REFUSED)
    assert noted == ["begin charge 5", "begin ship", "end ship"]


async def test_a_question_in_front_keeps_the_answer_and_the_step() -> None:
    server = serve(does("new?", PAY_5, "ok?", SHIP))
    first = await Client(serve(does(PAY_5, "ok?", SHIP))).ask("tool")
    client = Client(server)
    second = await client.retry(first, {"ok?": accept(True)})
    assert await client.reply(second, {"new?": accept(True)}) == "True, charged 5 EUR, True, did ship"
    assert noted == ["begin charge 5", "begin ship", "end ship"]


@pytest.mark.parametrize("what", [time.time, random.random, lambda: uuid.uuid4().int % 1_000_000_007])
async def test_an_argument_that_is_another_in_every_round_is_charged_once(
    what: Callable[[], float], caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(ctx: Context) -> str:
        paid = await ctx.step(steps.charge, what())
        await ctx.elicit("ok?", bool)
        return paid

    with caplog.at_level(logging.WARNING):
        assert await first_then(tool, tool) == REFUSED
    assert len(noted) == 1
    assert caplog.text.count("charge(") >= 2


async def test_what_runs_on_complete_is_refused_where_a_step_was_removed() -> None:
    async def old(ctx: Context) -> str:
        await ctx.step(steps.charge, 5)
        await ctx.elicit("ok?", bool, key="k")
        return "done"

    async def new(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        ctx.on_complete(steps.quick, "bill")
        return "done"

    assert await first_then(old, new) == REFUSED
    assert noted == ["begin charge 5"]


async def test_a_step_that_was_cut_is_accounted_for_like_any_other() -> None:
    def version(name: str) -> Handler:
        async def tool(ctx: Context) -> str:
            try:
                async with asyncio.timeout(0.01):
                    await ctx.step(steps.lasting, name, 0.05)
            except TimeoutError:
                pass
            await ctx.elicit("ok?", bool, key="k")
            return "done"

        return tool

    assert await first_then(version("pay 5"), version("pay 6")) == REFUSED
    assert "begin pay 6" not in noted


async def test_a_step_that_failed_is_accounted_for_like_any_other() -> None:
    def version(name: str) -> Handler:
        async def tool(ctx: Context) -> str:
            try:
                await ctx.step(steps.fails, name)
            except Exception:
                await ctx.elicit("ok?", bool, key="k")
            return "done"

        return tool

    assert await first_then(version("pay 5"), version("pay 6")) == REFUSED
    assert noted == ["begin pay 5"]


# Branches


def branches(first: Any, second: Any) -> Handler:
    async def tool(ctx: Context) -> str:
        one, other = await asyncio.gather(does(*first)(ctx), does(*second)(ctx))
        return f"{one} & {other}"

    return tool


@pytest.mark.parametrize(
    "new",
    [([PAY_6, "a?"], ["b?", SHIP]), (["a?"], ["b?", SHIP]), (["a?", SHIP], ["b?"])],
    ids=["changed", "removed", "removed, and a fresh one behind the question"],
)
async def test_a_fresh_step_of_another_branch_does_not_begin_before_all_is_accounted_for(new: Any) -> None:
    old = branches([PAY_5, "a?"], ["b?", SHIP])
    assert await first_then(old, branches(*new)) == REFUSED
    assert noted == ["begin charge 5"]


async def test_a_fresh_step_beside_a_branch_that_is_behind_begins() -> None:
    """The other branch comes to its step a little later: plain waiting is nobody's fault."""
    rounds = [0]

    async def tool(ctx: Context) -> str:
        rounds[0] += 1

        async def late() -> str:
            await asyncio.sleep(0.005 if rounds[0] == 2 else 0)
            return await ctx.step(steps.charge, 5)

        async def asks() -> str:
            await ctx.elicit("a?", bool, key="k")
            return await ctx.step(steps.quick, "ship")

        return " & ".join(await asyncio.gather(late(), asks()))

    assert await first_then(tool, tool) == "charged 5 EUR & did ship"
    assert noted == ["begin charge 5", "begin ship", "end ship"]


def paying_after(seconds: float) -> Handler:
    """A branch that pays. In a new version it sleeps before it comes to what it did before."""

    async def branch(ctx: Context) -> str:
        await ctx.step(steps.quick, "weigh")
        if seconds:
            await ctx.sleep(seconds)
        return str(await does(PAY_5, "a?")(ctx))

    return branch


async def test_fresh_steps_of_two_branches_wait_for_the_one_that_is_behind() -> None:
    def version(seconds: float) -> Handler:
        async def tool(ctx: Context) -> str:
            others = does("b?", SHIP)(ctx), does("c?", WRAP)(ctx)
            return " & ".join(await asyncio.gather(paying_after(seconds)(ctx), *others))

        return tool

    told = await first_then(version(0), version(0.1))
    assert told == "charged 5 EUR, True & True, did ship & True, did wrap"
    begun = [one for one in noted if one.startswith("begin")]
    assert begun == ["begin weigh", "begin charge 5", "begin ship", "begin wrap"]


async def test_a_fresh_step_that_is_cut_while_it_waits_never_begins() -> None:
    """Nor is the call refused for it when it would have waited long enough."""

    def version(seconds: float) -> Handler:
        async def impatient(ctx: Context) -> str:
            await ctx.elicit("b?", bool, key="b?")
            try:
                async with asyncio.timeout(0.05):
                    return await ctx.step(steps.quick, "ship")
            except TimeoutError:
                return "did not wait"

        async def tool(ctx: Context) -> str:
            return " & ".join(await asyncio.gather(paying_after(seconds)(ctx), impatient(ctx)))

        return tool

    longer_than_steps_are_held = 1.2
    told = await first_then(version(0), version(longer_than_steps_are_held))
    assert told == "charged 5 EUR, True & did not wait"
    assert noted == ["begin weigh", "end weigh", "begin charge 5"]


# What cannot be told apart by its name


class Card:
    def __init__(self, name: str) -> None:
        self.name = name

    async def pay(self, amount: int) -> str:
        noted.append(f"begin {self.name} {amount}")
        return f"{self.name} paid {amount}"


def _do(what: str) -> str:
    noted.append(f"begin {what}")
    return what


def _closure(what: str) -> Callable[[], str]:
    def pay() -> str:
        return _do(what)

    return pay


def _callable(what: str) -> Any:
    class Pays:
        def __call__(self) -> str:
            return _do(what)

    return Pays()


VISA, AMEX = Card("visa"), Card("amex")

LOOKALIKES: dict[str, tuple[Any, Any]] = {
    "lambdas": ((lambda: _do("visa"),), (lambda: _do("amex"),)),
    "closures": ((_closure("visa"),), (_closure("amex"),)),
    "bound methods": ((VISA.pay, 5), (AMEX.pay, 5)),
    "callable objects": ((_callable("visa"),), (_callable("amex"),)),
}


@pytest.mark.parametrize("kind", LOOKALIKES)
async def test_a_step_never_gets_the_value_of_one_that_looks_like_it(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    visa, amex = LOOKALIKES[kind]
    old, new = does(visa, "ok?"), does(amex, "ok?")
    with caplog.at_level(logging.WARNING):
        first = await Client(serve(old)).ask("tool")
        if not first.requests:
            assert noted == []
            assert "key=" in caplog.text
            return
        assert await Client(serve(new)).reply(first, {"ok?": accept(True)}) == REFUSED
    assert len(noted) == 1


@pytest.mark.parametrize("kind", LOOKALIKES)
async def test_lookalikes_of_one_handler_each_begin_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """And swapped by a deploy, neither gets the value of the other."""
    visa, amex = LOOKALIKES[kind]
    with caplog.at_level(logging.WARNING):
        first = await Client(serve(does(visa, amex, "ok?"))).ask("tool")
        if not first.requests:
            assert noted == []
            assert "key=" in caplog.text
            return
        told = await Client(serve(does(amex, visa, "ok?"))).reply(first, {"ok?": accept(True)})
    assert told == REFUSED or told.index("amex") < told.index("visa")
    assert len(noted) == 2


async def test_a_closure_over_a_value_that_changed_is_refused_or_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    prices = [5]

    async def tool(ctx: Context) -> str:
        price = prices[0]

        async def pay() -> str:
            noted.append(f"begin {price}")
            return f"paid {price}"

        paid = await ctx.step(pay)
        await ctx.elicit("ok?", bool, key="k")
        return f"{paid} of {price}"

    client = Client(serve(tool))
    with caplog.at_level(logging.WARNING):
        first = await client.ask("tool")
        if not first.requests:
            assert noted == []
            assert "key=" in caplog.text
            return
        prices[0] = 6
        assert await client.reply(first, {"k": accept(True)}) == REFUSED
    assert noted == ["begin 5"]


async def test_a_lambda_with_a_key_or_a_function_with_arguments_is_always_possible() -> None:
    async def tool(ctx: Context) -> str:
        paid = await ctx.step(steps.charge, 5)
        again = await ctx.step(steps.charge, 5, key="second")
        await ctx.elicit("ok?", bool, key="k")
        return f"{paid} {again}"

    assert await first_then(tool, tool) == "charged 5 EUR charged 5 EUR"
    assert noted == ["begin charge 5"] * 2


@pytest.mark.parametrize("amounts", [(5, 5), (5, 6)])
async def test_a_partial_is_known_by_what_it_holds(amounts: tuple[int, int]) -> None:
    old, new = (does((functools.partial(steps.charge, currency="USD"), amount), "ok?") for amount in amounts)
    told = await first_then(old, new)
    assert told == ("charged 5 USD, True" if amounts == (5, 5) else REFUSED)
    assert noted == ["begin charge 5"]


@pytest.mark.parametrize("currencies", [("EUR", "EUR"), ("EUR", "USD")])
async def test_a_partial_is_known_by_its_keywords_too(currencies: tuple[str, str]) -> None:
    old, new = (does((functools.partial(steps.charge, 5, currency=name),), "ok?") for name in currencies)
    told = await first_then(old, new)
    assert told == ("charged 5 EUR, True" if len(set(currencies)) == 1 else REFUSED)
    assert noted == ["begin charge 5"]


async def with_context(amount: int, ctx: Context) -> str:
    noted.append(f"begin {amount}")
    return ctx.step_key


async def test_a_partial_that_holds_the_context_is_the_same_in_every_round() -> None:
    async def tool(ctx: Context) -> str:
        key = await ctx.step(functools.partial(with_context, ctx=ctx), 5)
        await ctx.elicit("ok?", bool, key="k")
        return f"key: {bool(key)}"

    assert await first_then(tool, tool) == "key: True"
    assert noted == ["begin 5"]


# What the log says


def line_of(function: Any) -> str:
    return f"steps.py:{function.__code__.co_firstlineno}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (PAY_5, PAY_6, ["tests.laws.steps.charge", "charge(5", "charge(6", line_of(steps.charge)]),
        (
            PAY_5,
            (steps.charge_card, 5),
            ["charge(5", "charge_card(5", line_of(steps.charge), line_of(steps.charge_card)],
        ),
        ((crm.delete, 1), (audit.delete, 1), ["crm.delete(1", "audit.delete(1", "crm.py:", "audit.py:"]),
    ],
    ids=["argument", "renamed", "module"],
)
async def test_the_log_names_both_sides_and_the_client_neither(
    old: Any, new: Any, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    first = await Client(serve(does(old, "ok?"))).ask("tool")
    with caplog.at_level(logging.WARNING):
        error = await Client(serve(does(new, "ok?"))).refused(
            inputResponses={"ok?": accept(True)}, requestState=first.state
        )
    said = "\n".join(record.getMessage() for record in caplog.records) + caplog.text
    assert [word for word in words if word not in said] == []
    assert not any(word.split("(")[0] in error.message for word in words)


async def test_the_log_names_a_step_that_was_removed_and_the_one_that_would_have_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await first_then(does(PAY_5, "ok?", SHIP), does("ok?", SHIP)) == REFUSED
    for word in ("charge(5", line_of(steps.charge), "quick(", "ship", line_of(steps.quick)):
        assert word in caplog.text


async def test_the_log_names_the_key_of_a_step_that_changed(caplog: pytest.LogCaptureFixture) -> None:
    def version(amount: int) -> Handler:
        async def tool(ctx: Context) -> str:
            paid = await ctx.step(steps.charge, amount, key="the-payment")
            await ctx.elicit("ok?", bool, key="k")
            return paid

        return tool

    with caplog.at_level(logging.WARNING):
        assert await first_then(version(5), version(6)) == REFUSED
    for word in ("the-payment", "charge(5", "charge(6"):
        assert word in caplog.text
    assert noted == ["begin charge 5"]


async def log_in(password: SecretStr) -> str:
    noted.append("begin log in")
    return "in"


async def test_a_secret_argument_is_told_apart_but_not_told(caplog: pytest.LogCaptureFixture) -> None:
    old, new = does((log_in, SecretStr("xyzzy")), "ok?"), does((log_in, SecretStr("plugh")), "ok?")
    with caplog.at_level(logging.DEBUG):
        assert await first_then(old, new) == REFUSED
    assert "log_in(" in caplog.text
    assert not re.search("xyzzy|plugh", caplog.text)
    assert noted == ["begin log in"]


# Tasks


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([PAY_5, "ok?"], [PAY_6, "ok?"]),
        ([PAY_5, "ok?", SHIP], ["ok?", SHIP]),
        ([(crm.delete, 1), "ok?"], [(audit.delete, 1), (crm.delete, 1), "ok?"]),
    ],
    ids=["argument", "removed", "another module in front"],
)
async def test_a_task_whose_handler_changed_fails_before_anything_begins(old: Any, new: Any) -> None:
    store = MemoryStore()
    before = serve(does(*old), store=store, task="required")
    async with before.running():
        task_id = await TaskClient(before).start()
        await TaskClient(before).asked(task_id)
    done = [*noted]
    after = serve(does(*new), store=store, task="required")
    async with after.running():
        client = TaskClient(after)
        asked = await client.asked(task_id)
        await client.update(task_id, {key: accept(True) for key in asked})
        await client.until(task_id, "failed")
    assert noted == done


async def test_a_step_that_vanished_before_a_checkpoint_is_missed_before_the_next_question() -> None:
    def version(*, does: bool) -> Handler:
        async def tool(ctx: Context) -> str:
            if does:
                await ctx.step(steps.charge, 5)
            await ctx.checkpoint()
            await ctx.elicit("more?", bool)
            return "done"

        return tool

    assert await first_then(version(does=True), version(does=True)) == "asks more?"
    assert await first_then(version(does=True), version(does=False)) == "error -32603"
