"""The eight rules of replay (DESIGN, section 1), on the modern wire."""

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from ekiden import Context, Server, StepFailed
from ekiden.testing import DECLINE, CallFailed, Replicas
from tests.acceptance.driving import (
    EVERYTHING,
    Client,
    accept,
    error_text,
    key_of,
    messages,
    new_server,
    only,
    said,
    text,
)


class Name(BaseModel):
    name: str


# Rule 1: all asks that are pending together go out in one round


async def test_three_kinds_asked_together_are_one_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        name, poem, roots = await asyncio.gather(
            ctx.elicit("Your name?", Name), ctx.sample("A poem", max_tokens=9), ctx.list_roots()
        )
        assert name.data
        return f"{name.data.name} {poem.content.text} {roots[0].uri}"  # type: ignore[union-attr]

    client = Client(server, {"Your name?": {"name": "Ada"}, "A poem": "roses", "roots": ["file:///a"]})
    assert text(await client.call_tool("tool")) == "Ada roses file:///a"
    assert [len(played.requests) for played in client.rounds] == [3, 0]
    assert {r["method"] for r in client.rounds[0].requests.values()} == {
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    }


async def test_answers_of_one_round_reach_branches_that_wait_for_each_other() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        barrier = asyncio.Barrier(3)

        async def branch(question: Any) -> Any:
            answer = await question
            await barrier.wait()  # Nobody goes on before all three have their answers.
            return answer

        name, poem, roots = await asyncio.gather(
            branch(ctx.elicit("Name?", str)),
            branch(ctx.sample("Poem", max_tokens=9)),
            branch(ctx.list_roots()),
        )
        return f"{name.data} {poem.content.text} {len(roots)}"

    client = Client(server, {"Name?": "Ada", "Poem": "roses", "roots": ["file:///a", "file:///b"]})
    assert text(await client.call_tool("tool")) == "Ada roses 2"
    assert len(client.rounds) == 2


async def test_a_hundred_questions_asked_together_are_one_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.elicit(f"Number {n:03}?", int) for n in range(100)))
        return str([answer.data for answer in answers] == list(range(100)))

    client = Client(server, lambda _key, r: int(r["params"]["message"][7:10]))
    assert text(await client.call_tool("tool")) == "True"
    assert [len(played.requests) for played in client.rounds] == [100, 0]


async def test_a_wizard_of_ten_questions_is_eleven_rounds_on_any_replica() -> None:
    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            words = [(await ctx.elicit(f"Word {n}?", str)).data for n in range(10)]
            return " ".join(str(word) for word in words)

        return server

    replicas = Replicas(make)
    client = replicas.client(lambda _key, r: "w" + r["params"]["message"][5])
    assert text(await client.call_tool("tool")) == "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert [len(played.requests) for played in client.rounds] == [1] * 10 + [0]
    assert replicas.served == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]


async def test_one_question_is_told_apart_from_the_same_question_asked_again() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("Again?", str)
        second = await ctx.elicit("Again?", str)
        return f"{first.data} {second.data}"

    client = Client(server)
    one = await client.ask("tool")
    two = await client.retry(one, {only(one): accept("a")})
    assert only(one) != only(two)
    assert text(await client.retry(two, {only(two): accept("b")})) == "a b"


# Rule 2: when a round ends


@pytest.mark.parametrize("passes", [1, 2, 3])
async def test_a_sibling_that_is_a_few_passes_late_asks_in_the_same_round(passes: int) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def late() -> Any:
            for _ in range(passes):
                await asyncio.sleep(0)
            return await ctx.elicit("late", str)

        await asyncio.gather(ctx.elicit("early", str), late())
        return "done"

    first = await Client(server).ask("tool")
    assert messages(first) == ["early", "late"]


async def test_a_running_step_is_waited_for_and_journaled() -> None:
    server = new_server()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def slow() -> str:
            ran["begun"] += 1
            await asyncio.sleep(0.05)
            ran["ended"] += 1
            return "worked"

        worked, answer = await asyncio.gather(ctx.step(slow), ctx.elicit("ok?", bool))
        return f"{worked} {answer.data}"

    client = Client(server, {"ok?": True})
    first = await client.ask("tool")
    assert ran == {"begun": 1, "ended": 1}
    assert text(await client.retry(first, {only(first): accept(True)})) == "worked True"
    assert ran == {"begun": 1, "ended": 1}


async def test_a_question_that_follows_a_siblings_step_is_in_the_same_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def slow() -> int:
            await asyncio.sleep(0.02)
            return 1

        async def branch() -> None:
            await ctx.step(slow)
            await ctx.elicit("after the step", str)

        await asyncio.gather(ctx.elicit("at once", str), branch())
        return "done"

    assert messages(await Client(server).ask("tool")) == ["after the step", "at once"]


async def test_plain_io_is_cancelled_and_repeated() -> None:
    server = new_server()
    seen: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def plain() -> str:
            seen.append("begun")
            try:
                await asyncio.sleep(0 if len(seen) > 1 else 3600)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            return "read"

        read, answer = await asyncio.gather(plain(), ctx.elicit("ok?", bool))
        return f"{read} {answer.data}"

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "read True"
    assert seen == ["begun", "cancelled", "begun"]


# Rule 3: how a round ends


async def test_except_exception_does_not_swallow_the_end_of_a_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            return str((await ctx.elicit("ok?", bool)).data)
        except Exception:
            return "swallowed"

    client = Client(server, {"ok?": True})
    assert text(await client.call_tool("tool")) == "True"
    assert len(client.rounds) == 2


async def test_a_step_in_a_finally_runs_once_and_not_at_each_suspension() -> None:
    server = new_server()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        def tidy() -> None:
            ran["tidy"] += 1

        try:
            await ctx.elicit("one", bool)
            await ctx.elicit("two", bool)
        finally:
            await ctx.step(tidy)
        return "done"

    client = Client(server, {"one": True, "two": True})
    assert text(await client.call_tool("tool")) == "done"
    assert len(client.rounds) == 3
    assert ran == {"tidy": 1}


async def test_no_effect_works_or_is_journaled_once_the_round_is_ending() -> None:
    server = new_server()
    ran: list[str] = []
    drawn: list[UUID] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def forbidden() -> None:
            ran.append("forbidden")

        try:
            answer = await ctx.elicit("ok?", bool)
        except BaseException:
            for effect in (ctx.step, ctx.sleep, ctx.checkpoint, ctx.elicit, ctx.list_roots):
                arguments: dict[Any, tuple[Any, ...]] = {
                    ctx.step: (forbidden,),
                    ctx.sleep: (0,),
                    ctx.elicit: ("never asked", str),
                }
                try:
                    await effect(*arguments.get(effect, ()))  # type: ignore[operator]
                    ran.append(effect.__name__)
                except BaseException:
                    pass
            for draw in (ctx.uuid, ctx.now, ctx.random):
                try:
                    draw()
                    ran.append(draw.__name__)
                except BaseException:
                    pass
            raise
        drawn.append(ctx.uuid())
        await ctx.elicit("sure?", bool)
        return str(answer.data)

    client = Client(server, {"ok?": True, "sure?": True})
    assert text(await client.call_tool("tool")) == "True"
    assert [messages(played) for played in client.rounds] == [["ok?"], ["sure?"], []]
    assert ran == []
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_what_a_handler_does_after_the_end_of_its_round_is_discarded_and_logged(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    caplog.set_level(logging.DEBUG)

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("ok?", bool)
        except BaseException:
            if how == "returns":
                return "swallowed"
            raise ValueError("swallowed") from None
        return str(answer.data)

    client = Client(server, {"ok?": True})
    assert text(await client.call_tool("tool")) == "True"
    assert len(client.rounds) == 2
    assert any(
        "swallowed" in record.getMessage() or "tool" in record.getMessage() for record in caplog.records
    )


# Rule 4: an answer counts for the question as it was rendered


def _asking(message: str, schema: Any, key: str | None = None) -> Server:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit(message, schema, key=key)
        return f"{message} {answer.data}"

    return server


@pytest.mark.parametrize("key", [None, "mine"])
@pytest.mark.parametrize(
    ("message", "schema", "content"), [("Delete it all?", bool, True), ("Keep it?", str, "True")]
)
async def test_a_reworded_question_is_asked_again(
    key: str | None, message: str, schema: Any, content: Any
) -> None:
    asked = await Client(_asking("Keep it?", bool, key)).ask("tool")
    upgraded = Client(_asking(message, schema, key))
    again = await upgraded.retry(asked, {only(asked): accept(True)})
    assert messages(again) == [message]
    assert text(await upgraded.retry(again, {only(again): accept(content)})) == f"{message} {content}"


@pytest.mark.parametrize("key", [None, "mine"])
async def test_an_answer_already_kept_does_not_count_for_the_reworded_question(key: str | None) -> None:
    def make(first: str) -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            answer = await ctx.elicit(first, bool, key=key)
            await ctx.elicit("And?", bool)
            return f"{first} {answer.data}"

        return server

    old, new = Client(make("Keep it?")), Client(make("Delete it?"))
    one = await old.ask("tool")
    two = await old.retry(one, {only(one): accept(True)})
    three = await new.retry(two, {only(two): accept(True)})
    assert messages(three) == ["Delete it?"]
    four = await new.retry(three, {only(three): accept(False)})
    if four.requests:
        four = await new.retry(four, {only(four): accept(True)})
    assert text(four) == "Delete it? False"


@pytest.mark.parametrize("key", [None, "mine"])
async def test_an_answer_without_any_state_counts_if_its_key_fits_and_it_validates(key: str | None) -> None:
    client = Client(_asking("Keep it?", bool, key))
    asked = await client.ask("tool")
    ended = await client.ask("tool", inputResponses={only(asked): accept(True)})
    assert text(ended) == "Keep it? True"
    again = await client.ask("tool", inputResponses={only(asked): accept("no boolean")})
    assert messages(again) == ["Keep it?"]


async def test_with_once_an_answer_without_state_does_not_count() -> None:
    server = new_server(store="sqlite:///:memory:")

    @server.tool(once=True)
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("ok?", bool, key="mine")).data)

    client = Client(server)
    await client.ask("tool")
    again = await client.ask("tool", inputResponses={"mine": accept(True)})
    assert messages(again) == ["ok?"]
    assert text(await client.retry(again, {"mine": accept(False)})) == "False"


async def test_a_redeploy_with_one_more_question_keeps_the_answers() -> None:
    def make(*questions: str) -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            return " ".join([str((await ctx.elicit(question, str)).data) for question in questions])

        return server

    old, new = Client(make("name", "age")), Client(make("name", "town", "age"))
    one = await old.ask("tool")
    two = await old.retry(one, {only(one): accept("Ada")})
    assert messages(two) == ["age"]
    three = await new.retry(two, {only(two): accept("36")})
    assert messages(three) == ["town"]
    assert text(await new.retry(three, {only(three): accept("London")})) == "Ada London 36"


async def test_an_answer_that_came_while_its_branch_was_busy_is_not_lost() -> None:
    server = new_server()
    rounds: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        rounds.append(1)

        async def busy() -> Any:
            await asyncio.sleep(3600 if len(rounds) == 2 else 0)  # Plain I/O, slow in the second round.
            return await ctx.elicit("busy", str)

        async def quick() -> Any:
            await ctx.elicit("quick", str)
            return await ctx.elicit("more", str)

        one, other = await asyncio.gather(busy(), quick())
        return f"{one.data} {other.data}"

    client = Client(server)
    first = await client.ask("tool")
    assert messages(first) == ["busy", "quick"]
    second = await client.retry(first, {key: accept("a") for key in first.requests})
    assert messages(second) == ["more"]
    assert text(await client.retry(second, {only(second): accept("b")})) == "a b"


# Rule 6: non-determinism


async def test_a_step_key_used_with_other_arguments_in_a_later_round_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()
    runs: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def pay(amount: int) -> int:
            runs.append(amount)
            return amount

        amount = 1 + len(runs)  # What no handler should do.
        paid = await ctx.step(pay, amount, key="pay")
        await ctx.elicit("ok?", bool)
        return str(paid)

    client = Client(server)
    first = await client.ask("tool")
    with caplog.at_level(logging.WARNING):
        error = await client.refused(inputResponses={only(first): accept(True)}, requestState=first.state)
    assert error.code == -32603
    assert runs == [1]
    assert "pay" in caplog.text


async def test_a_journaled_step_that_does_not_come_up_again_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()
    rounds: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def charge_the_card() -> None: ...

        rounds.append(1)
        if len(rounds) == 1:
            await ctx.step(charge_the_card)
        await ctx.elicit("ok?", bool)
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    with caplog.at_level(logging.WARNING):
        error = await client.refused(inputResponses={only(first): accept(True)}, requestState=first.state)
    assert error.code == -32603
    assert "charge_the_card" in caplog.text
    assert "charge_the_card" not in error.message


async def test_a_journaled_step_that_is_missing_at_the_next_question_is_an_error() -> None:
    server = new_server()
    rounds: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def charge() -> None: ...

        rounds.append(1)
        if len(rounds) == 1:
            await ctx.step(charge)
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    error = await client.refused(inputResponses={only(first): accept(True)}, requestState=first.state)
    assert error.code == -32603


async def test_two_different_questions_under_one_key_never_share_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        keep = await ctx.elicit("Keep it?", bool, key="k")
        drop = await ctx.elicit("Drop it?", bool, key="k")
        return f"{keep.data} {drop.data}"

    client = Client(server)
    first = await client.ask("tool")
    # Rule 6 says -32603; a misuse that shows within one run may as well be the tool's own error.
    with contextlib.suppress(CallFailed):
        assert error_text(await client.retry(first, {"k": accept(True)}))
    assert "'k'" in caplog.text


async def test_an_answer_that_no_one_asks_for_any_more_is_fine() -> None:
    def make(*questions: str) -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            return " ".join([str((await ctx.elicit(question, str)).data) for question in questions])

        return server

    old, new = Client(make("name", "age")), Client(make("age"))
    one = await old.ask("tool")
    two = await old.retry(one, {only(one): accept("Ada")})
    assert text(await new.retry(two, {only(two): accept("36")})) == "36"


# Rule 7: the values and failures of steps


@dataclass
class Point:
    x: int
    y: tuple[int, int]


class Order(BaseModel):
    number: int
    due: date
    total: Decimal


class Colour(Enum):
    RED = "red"


async def _returns_order() -> Order:
    return Order(number=1, due=date(2026, 7, 28), total=Decimal("1.10"))


def _returns_point() -> Point:
    return Point(1, (2, 3))


def _returns_moment() -> datetime:
    return datetime(2026, 7, 28, 1, 2, 3, 456789, tzinfo=UTC)


def _returns_tuple() -> tuple[int, str]:
    return (1, "a")


def _returns_set() -> set[int]:
    return {3, 1, 2}


def _returns_enum() -> Colour:
    return Colour.RED


def _returns_span() -> timedelta:
    return timedelta(days=1, microseconds=1)


def _returns_float() -> float:
    return 1.0


def _returns_keyed() -> dict[int, str]:
    return {1: "one"}


def _returns_none() -> None:
    return None


def _returns_uuid() -> UUID:
    return UUID(int=7)


def _returns_untyped():  # type: ignore[no-untyped-def]
    return {"list": [1, 2.0, None, "ä \u2028 \U0001f600"], "nested": {"deep": [True], "": 2**63}}


@pytest.mark.parametrize(
    "function",
    [
        _returns_order,
        _returns_point,
        _returns_moment,
        _returns_tuple,
        _returns_set,
        _returns_enum,
        _returns_span,
        _returns_float,
        _returns_keyed,
        _returns_none,
        _returns_uuid,
        _returns_untyped,
    ],
)
async def test_a_steps_value_is_the_same_in_every_round(function: Any) -> None:
    server = new_server()
    seen: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        value = await ctx.step(function)
        seen.append(value)
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    assert text(await Client(server, {"one": True, "two": True}).call_tool("tool")) == "done"
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert type(seen[0]) is type(seen[1]) is type(seen[2])
    assert repr(seen[0]) == repr(seen[1])


async def test_a_typed_step_gives_back_its_type() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        order, point = await ctx.step(_returns_order), await ctx.step(_returns_point)
        await ctx.elicit("ok?", bool)
        return f"{order!r} {point!r}"

    shown = text(await Client(server, {"ok?": True}).call_tool("tool"))
    assert shown == (
        "Order(number=1, due=datetime.date(2026, 7, 28), total=Decimal('1.10')) Point(x=1, y=(2, 3))"
    )


async def test_changing_a_steps_value_does_not_change_the_journal() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def load() -> list[int]:
            return [1]

        values = await ctx.step(load)
        values.append(2)
        await ctx.elicit("ok?", bool)
        return str(values)

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "[1, 2]"


class PaymentError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


async def test_a_step_that_raises_is_step_failed_in_every_round() -> None:
    server = new_server()
    runs: list[int] = []
    caught: list[tuple[str, str]] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def fail() -> None:
            runs.append(1)
            raise LookupError("no such order")

        try:
            await ctx.step(fail)
        except StepFailed as failure:
            caught.append((failure.type, failure.message))
        answer = await ctx.elicit("Again?", bool)
        return str(answer.data)

    assert text(await Client(server, {"Again?": False}).call_tool("tool")) == "False"
    assert runs == [1]
    assert caught == [("LookupError", "no such order")] * 2


async def test_a_step_gives_back_the_classes_in_raises_as_themselves() -> None:
    server = new_server()
    caught: list[tuple[Any, ...]] = []
    runs: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def pay() -> None:
            runs.append(1)
            raise PaymentError(402, "no funds")

        try:
            await ctx.step(pay, raises=(PaymentError,))
        except PaymentError as error:
            caught.append((type(error), error.code, error.reason, error.args))
        await ctx.elicit("ok?", bool)
        return "done"

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "done"
    assert caught == [(PaymentError, 402, "no funds", (402, "no funds"))] * 2
    assert runs == [1]


async def test_a_step_failure_that_is_not_caught_is_the_tools_error_in_the_round_that_reaches_it() -> None:
    server = new_server()
    runs: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def fail() -> None:
            runs.append(1)
            raise LookupError("no such order")

        await ctx.elicit("ok?", bool)
        await ctx.step(fail)
        return "never"

    assert error_text(await Client(server, {"ok?": True}).call_tool("tool"))
    assert runs == [1]


def _hard_bytes() -> bytes:
    return b"\x00\xff"


def _hard_huge() -> int:
    return 2**200


def _hard_negative() -> int:
    return -(2**200)


def _hard_huge_within() -> dict[str, Any]:
    return {"n": 2**64}


def _hard_not_a_number() -> float:
    return float("nan")


def _hard_infinity() -> list[float]:
    return [float("inf"), -0.0]


def _hard_surrogate() -> str:
    return "\ud800"


def _hard_tuple() -> Any:
    return (1, 2)


def _hard_set() -> Any:
    return {1, 2}


def _hard_number_keys() -> Any:
    return {1: 2}


def _hard_tuple_keys() -> dict[Any, Any]:
    return {(1, 2): 3}


def _hard_depth() -> Any:
    value: Any = 1
    for _ in range(2000):
        value = [value]
    return value


def _hard_generator() -> Any:
    return (n for n in range(3))


def _hard_function() -> Any:
    return len


def _hard_wrong_type() -> int:
    return "text"  # type: ignore[return-value]


def _hard_aware_and_naive() -> list[datetime]:
    return [datetime(2026, 7, 28, tzinfo=UTC), datetime(2026, 7, 28)]


def _hard_cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "function",
    [
        _hard_bytes,
        _hard_huge,
        _hard_negative,
        _hard_huge_within,
        _hard_not_a_number,
        _hard_infinity,
        _hard_surrogate,
        _hard_tuple,
        _hard_set,
        _hard_number_keys,
        _hard_tuple_keys,
        _hard_depth,
        _hard_generator,
        _hard_function,
        _hard_wrong_type,
        _hard_aware_and_naive,
        _hard_cycle,
    ],
)
async def test_a_hard_value_of_a_step_is_the_same_in_every_round_or_refused_by_name(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    seen: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        seen.append(repr(await ctx.step(function)))
        await ctx.elicit("ok?", bool)
        return "done"

    with caplog.at_level(logging.DEBUG):
        try:
            result = await Client(server, {"ok?": True}).call_tool("tool")
        except CallFailed as error:
            result = {"isError": True, "error": str(error)}
    if result.get("isError"):
        told = [record.getMessage() for record in caplog.records]
        told += [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
        assert function.__name__ in " ".join(told)
        assert seen == []
    else:
        assert seen[0] == seen[1]


async def test_steps_made_by_one_factory_keep_their_own_types() -> None:
    server = new_server()

    class Cat(BaseModel):
        lives: int = 9

    class Dog(BaseModel):
        tricks: list[str] = []

    def loader(kind: Any) -> Any:
        async def load() -> kind:
            return kind()

        return load

    @server.tool
    async def tool(ctx: Context) -> str:
        cat, dog = await ctx.step(loader(Cat), key="cat"), await ctx.step(loader(Dog), key="dog")
        await ctx.elicit("ok?", bool)
        return f"{cat!r} {dog!r}"

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "Cat(lives=9) Dog(tricks=[])"


async def test_a_value_that_cannot_be_serialised_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def open_the_connection() -> Any:
            return object()

        await ctx.step(open_the_connection)
        return "never"

    with caplog.at_level(logging.DEBUG):
        result = await Client(server).call_tool("tool")
    assert "open_the_connection" in error_text(result) + caplog.text


async def test_an_argument_that_cannot_be_serialised_is_refused_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def use_the_connection(_connection: Any) -> int:
            ran.append(1)
            return 1

        await ctx.step(use_the_connection, object())
        await ctx.elicit("ok?", bool)
        return "never"

    with caplog.at_level(logging.DEBUG):
        result = await Client(server).call_tool("tool")
    assert "use_the_connection" in error_text(result) + caplog.text
    assert ran == []


# Rule 8: what the client did not declare is not asked


async def _asks_form(ctx: Context) -> Any:
    return await ctx.elicit("?", bool)


async def _asks_url(ctx: Context) -> Any:
    return await ctx.elicit_url("?", "https://example.com/")


async def _asks_sample(ctx: Context) -> Any:
    return await ctx.sample("?", max_tokens=1)


async def _asks_sample_with_tools(ctx: Context) -> Any:
    from mcp_types import Tool

    return await ctx.sample("?", max_tokens=1, tools=[Tool(name="t", input_schema={"type": "object"})])


async def _asks_sample_with_tool_choice(ctx: Context) -> Any:
    from mcp_types import ToolChoice

    return await ctx.sample("?", max_tokens=1, tool_choice=ToolChoice(mode="none"))


async def _asks_roots(ctx: Context) -> Any:
    return await ctx.list_roots()


_KINDS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (_asks_form, {"elicitation": {"form": {}}}, {}),
    (_asks_form, {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
    (_asks_url, {"elicitation": {"url": {}}}, {}),
    (_asks_url, {"elicitation": {"url": {}}}, {"elicitation": {}}),
    (_asks_url, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    (_asks_sample, {"sampling": {}}, {"elicitation": {}, "roots": {}}),
    (_asks_sample_with_tools, {"sampling": {"tools": {}}}, {"sampling": {}}),
    (_asks_sample_with_tool_choice, {"sampling": {"tools": {}}}, {"sampling": {"context": {}}}),
    (_asks_roots, {"roots": {}}, {"elicitation": {}, "sampling": {}}),
]


@pytest.mark.parametrize(("handler", "needed", "declared"), _KINDS)
async def test_what_was_not_declared_is_not_asked(
    handler: Any, needed: dict[str, Any], declared: dict[str, Any]
) -> None:
    server = new_server()
    server.add_tool(handler, name="tool")
    error = await Client(server, capabilities=declared).refused()
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": needed}


@pytest.mark.parametrize(("handler", "needed", "_declared"), _KINDS)
async def test_what_was_declared_is_asked(
    handler: Any, needed: dict[str, Any], _declared: dict[str, Any]
) -> None:
    server = new_server()
    server.add_tool(handler, name="tool")
    assert len((await Client(server, capabilities=needed).ask("tool")).requests) == 1


async def test_an_empty_elicitation_capability_means_forms() -> None:
    server = new_server()
    server.add_tool(_asks_form, name="tool")
    assert len((await Client(server, capabilities={"elicitation": {}}).ask("tool")).requests) == 1


async def test_of_several_questions_an_undeclared_one_stops_the_call() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("?", bool), ctx.list_roots())
        return "never"

    error = await Client(server, capabilities={"elicitation": {}}).refused()
    assert error.code == -32021
    assert error.data["requiredCapabilities"].keys() <= {"roots"}


@pytest.mark.parametrize("everything", [Exception, BaseException])
async def test_a_handler_that_catches_everything_cannot_hide_the_missing_capability(
    everything: type[BaseException],
) -> None:
    server = new_server()
    caught: list[BaseException] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            await ctx.list_roots()
        except everything as error:
            caught.append(error)
            return "never"
        return "never"

    error = await Client(server, capabilities={}).refused()
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": {"roots": {}}}
    assert [isinstance(one, Exception) for one in caught] in ([], [False]), "it is not an Exception"


@pytest.mark.parametrize(
    ("asks", "needed"),
    [
        ("elicitation", {"elicitation": {"form": {}}}),
        ("elicitation.url", {"elicitation": {"url": {}}}),
        ("sampling", {"sampling": {}}),
        ("sampling.tools", {"sampling": {"tools": {}}}),
        ("roots", {"roots": {}}),
        (Name, {"elicitation": {"form": {}}}),
    ],
)
async def test_a_tool_that_says_what_it_asks_is_not_run_for_a_client_without_it(
    asks: Any, needed: dict[str, Any]
) -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool(asks=[asks])
    async def tool(ctx: Context) -> str:
        ran.append(1)
        return "ran"

    error = await Client(server, capabilities={}).refused()
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": needed}
    assert ran == []
    assert text(await Client(server, capabilities=needed).call_tool("tool")) == "ran"


async def test_prompts_and_resources_that_say_what_they_ask_are_checked_too() -> None:
    server = new_server()

    @server.prompt(asks=["roots"])
    async def prompt() -> str:
        raise AssertionError

    @server.resource("test://static", asks=["roots"])
    async def static() -> str:
        raise AssertionError

    @server.resource("test://{name}/template", asks=["roots"])
    async def template(name: str) -> str:
        raise AssertionError

    client = Client(server, capabilities={})
    for method, params in (
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "test://static"}),
        ("resources/read", {"uri": "test://a/template"}),
    ):
        with pytest.raises(Exception, match="capability") as caught:
            await client.round(method, params)
        assert caught.value.code == -32021  # type: ignore[attr-defined]


async def test_can_ask_lets_a_handler_choose_another_way() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        every = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")
        return " ".join(what for what in every if ctx.can_ask(what))  # type: ignore[arg-type]

    for declared, possible in (
        ({}, ""),
        ({"elicitation": {}}, "elicitation"),
        ({"elicitation": {"url": {}}}, "elicitation.url"),
        ({"sampling": {}}, "sampling"),
        ({"roots": {}}, "roots"),
        (EVERYTHING, "elicitation elicitation.url sampling sampling.tools roots"),
    ):
        client = Client(server, capabilities=declared)
        result = await client.call_tool("tool")
        assert (result["content"][0]["text"] if result["content"] else "") == possible


async def test_the_capabilities_of_the_round_count_and_not_those_of_the_first() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("?", bool)
        await ctx.list_roots()
        return "done"

    first = await Client(server).ask("tool")
    less = Client(server, capabilities={"elicitation": {}})
    error = await less.refused(inputResponses={only(first): accept(True)}, requestState=first.state)
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": {"roots": {}}}


# Across the rules


async def test_declined_and_answered_questions_lead_on_any_replica_to_the_same_end() -> None:
    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            name = await ctx.elicit("name", str)
            if name.action != "accept":
                poem = await ctx.sample("nameless", max_tokens=9)
                return f"{name.action} {poem.content.text}"  # type: ignore[union-attr]
            return name.data

        return server

    client = Replicas(make).client({"name": DECLINE, "nameless": "roses"})
    assert text(await client.call_tool("tool")) == "decline roses"


async def test_branches_keep_their_own_answers_whatever_the_order_of_the_responses() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answers = await asyncio.gather(
            *(ctx.elicit(f"q{n}", str) for n in range(5)), ctx.sample("s", max_tokens=1)
        )
        return " ".join(str(a.data) for a in answers[:5])

    client = Client(server)
    first = await client.ask("tool")
    responses = {key_of(first, f"q{n}"): accept(f"a{n}") for n in range(5)}
    responses |= {key: said("x") for key in first.requests if key not in responses}
    backwards = dict(reversed(responses.items()))
    assert text(await client.retry(first, backwards)) == "a0 a1 a2 a3 a4"
