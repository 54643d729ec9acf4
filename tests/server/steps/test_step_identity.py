"""What a step is: when two are the same, and what has no identity that a replay could rely on."""

import functools
import os
import subprocess
import sys
import threading
import types
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr

from ekiden import Context, Server, UsageError
from ekiden.server.steps.step import FunctionStep
from ekiden.testing import ScriptedClient


def charge(*_arguments: Any, **_keywords: Any) -> str:
    return "charged"


def digest(*arguments: Any, function: Callable[..., Any] = charge, **more: Any) -> str:
    return FunctionStep(function, arguments, **more).digest


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Money:
    amount: Decimal
    tags: set[str] = field(default_factory=set)


class Order(BaseModel):
    number: int
    hidden: str = Field("", exclude=True)
    tags: set[str] = set()


class GiftOrder(Order):
    card: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Login(BaseModel):
    password: SecretStr


class UserId(str):
    __slots__ = ()


# Names


def test_functions_of_one_name_in_two_modules_are_two_steps() -> None:
    modules: list[types.ModuleType] = []
    for name in ("shop.audit", "shop.crm"):
        module = types.ModuleType(name)
        exec("def delete(number): return number", module.__dict__)
        modules.append(module)
    one, other = (FunctionStep(module.delete, (1,)) for module in modules)
    assert one.name == other.name == "delete"
    assert one.digest != other.digest


def test_a_step_is_named_by_its_qualified_name_without_the_module() -> None:
    assert FunctionStep(functools.partial(charge, 1), ()).name == "charge"
    assert FunctionStep(Colour, ("red",)).name == "Colour"


def test_the_words_about_a_step_say_where_it_is_and_shorten_its_arguments() -> None:
    about = FunctionStep(charge, (5, "EUR", "a" * 1000, SecretStr("hunter2"), Order(number=7))).about
    assert about.startswith(f"{__name__}.charge(5, 'EUR', 'aaa")
    assert f" at {Path(__file__).name}:" in about
    assert "hunter2" not in about
    assert len(about) < 300


def test_the_words_about_a_secret_tell_one_from_another() -> None:
    one, other = (FunctionStep(charge, (SecretStr(word),)).about for word in ("one", "other"))
    assert one != other


# Arguments

UNLIKE: list[tuple[Any, Any]] = [
    (1, "1"),
    (1, True),
    (0, False),
    (None, "null"),
    ("a", b"a"),
    ("YQ==", b"a"),
    (b"\xff", b"\xfe"),
    ([1], (1,)),
    ([1], {1}),
    ({1}, {2}),
    ([1, 2], [[1, 2]]),
    ([], {}),
    ({1: "a"}, {"1": "a"}),
    (float("nan"), None),
    (float("inf"), float("-inf")),
    (Decimal(1), 1),
    (Decimal(1), "1"),
    (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
    (date(2026, 1, 1), datetime(2026, 1, 1)),
    (UUID(int=1), str(UUID(int=1))),
    (Path("/a"), "/a"),
    (Colour.RED, "red"),
    (Colour.RED, Colour.BLUE),
    (Size.ONE, 1),
    (Point(1, 2), (1, 2)),
    (Money(Decimal(1)), Money(Decimal(2))),
    (Order(number=1), Order(number=2)),
    (Order(number=1, hidden="a"), Order(number=1, hidden="b")),
    (Order(number=1), GiftOrder(number=1)),
    (GiftOrder(number=1, card="a"), GiftOrder(number=1, card="b")),
    (Order(number=1), {"number": 1, "hidden": "", "tags": []}),
    (Open(a=1), Open(a=2)),  # type: ignore[call-arg]
    (SecretStr("a"), SecretStr("b")),
    (SecretBytes(b"a"), SecretBytes(b"b")),
    (Login(password=SecretStr("a")), Login(password=SecretStr("b"))),
    (UserId("a"), "a"),
    (charge, digest),
    (Order, GiftOrder),
    ("\ud800", "\ud801"),
    (2**200, 2**200 + 1),
    (1e300, 1e301),
]


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=lambda value: type(value).__name__)
def test_unlike_arguments_make_unlike_steps(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest([one]) != digest([other])
    assert digest({"in": one}) != digest({"in": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}),
        ({"a", "b"}, {"b", "a"}),
        (float("nan"), float("nan")),
        ([float("nan"), 1], [float("nan"), 1.0]),
        (Order(number=1, tags={"a", "b"}), Order(number=1, tags={"b", "a"})),
        (timedelta(seconds=60), timedelta(minutes=1)),
        (time(1), time(1)),
        (deque([1]), deque([1])),
        (defaultdict(list, a=[1]), defaultdict(list, a=[1])),
        (memoryview, memoryview),
    ],
    ids=lambda value: type(value).__name__,
)
def test_equal_arguments_make_equal_steps(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


def test_arguments_never_run_into_one_another() -> None:
    assert digest("a", "b") != digest("ab", "") != digest("a,b")
    assert digest([1], [2]) != digest([1, 2])
    assert digest({"a"}, {"b"}) != digest({"a", "b"})


@pytest.mark.parametrize(
    "argument", [object(), threading.Lock(), (n for n in "ab"), lambda: 1, [object()], {"a": {object()}}]
)
@pytest.mark.parametrize("keyed", [False, True])
def test_an_argument_without_an_identity_is_refused_by_the_name_of_the_step(
    argument: Any, keyed: bool
) -> None:
    if keyed and isinstance(argument, types.FunctionType):
        return  # Its key tells it from others.
    with pytest.raises(UsageError, match=r"step charge: an argument cannot be identified"):
        digest(argument, keyed=keyed)


def test_an_argument_that_holds_itself_or_is_too_deep_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = {1}
    for _ in range(500):
        deep = [deep]
    for argument in (endless, deep):
        with pytest.raises(UsageError, match="charge"):
            digest(argument)


def test_the_identity_does_not_consume_an_argument() -> None:
    letters = (letter for letter in "ab")
    with pytest.raises(UsageError):
        digest(letters)
    assert list(letters) == ["a", "b"]


_ELSEWHERE = """
from tests.server.steps import test_step_identity as t
tags = {f"tag {n}" for n in range(30)}
def local():
    frozen = frozenset(tags)
    def step(): return frozen
    return step
print(t.digest(
    tags, frozenset(tags), {"tags": tags}, [tags], t.Order(number=1, tags=tags), t.Money(t.Decimal(1), tags),
    b"\\xff", t.Decimal("1.10"), t.datetime(2026, 1, 1, tzinfo=t.UTC), t.UUID(int=5), t.Colour.RED,
    t.Path("/a"), t.Point(1, 2), (1, 2), float("nan"), float("inf"), t.SecretStr("word"), t.charge, t.Order,
    t.re.compile("a+"), {1: tags, "1": 2}, {(1, 2): 3},
))
print(t.FunctionStep(local(), ()).digest)
"""


def test_an_identity_is_equal_in_every_process() -> None:
    told = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        program = _ELSEWHERE.replace("t.re.", "__import__('re').")
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, timeout=60, check=True
        )
        told.add(done.stdout)
    assert len(told) == 1
    assert len(told.pop().split()) == 2


# Partials


def test_what_a_partial_holds_counts_and_contexts_do_not() -> None:
    class Call:
        step_key = "k"

    assert digest(function=functools.partial(charge, 1)) != digest(function=functools.partial(charge, 2))
    assert digest(function=functools.partial(charge, a=1)) != digest(function=functools.partial(charge, b=1))
    assert digest(function=functools.partial(charge, 1)) == digest(1)
    assert digest(1, Call()) == digest(1) == digest(1, function=functools.partial(charge, ctx=Call()))


# Lambdas


@pytest.mark.parametrize("wrap", [lambda function: function, functools.partial])
def test_a_lambda_is_refused_without_a_key_and_told_how_to_be_written(wrap: Any) -> None:
    with pytest.raises(UsageError, match=r"lambda.*key=.*named function.*arguments"):
        FunctionStep(wrap(lambda: 1), ())
    assert FunctionStep(wrap(lambda: 1), (), keyed=True).digest


# Captures


def paying(amount: Any) -> Callable[[], Any]:
    def pay() -> Any:
        return amount

    return pay


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        ("a", "b"),
        (None, False),
        (b"a", b"b"),
        (Decimal(1), Decimal(2)),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (Colour.RED, Colour.BLUE),
        ((1, (2,)), (1, (3,))),
        (frozenset({1}), frozenset({2})),
        (charge, digest),
        (Order, GiftOrder),
        (os, sys),
        (paying(1), paying(2)),
    ],
)
def test_what_never_changes_counts_when_it_is_captured(one: Any, other: Any) -> None:
    first = digest(function=paying(one))
    assert first != digest(function=paying(other))
    assert first == digest(function=paying(one))


def test_with_a_key_nothing_counts_that_is_captured() -> None:
    assert digest(function=paying(1), keyed=True) == digest(function=paying(2), keyed=True)


def test_what_was_captured_outside_of_the_call_is_surroundings() -> None:
    assert digest(function=paying([1])) == digest(function=paying([2]))
    assert digest(function=paying(object())) == digest(function=paying(threading.Lock()))


def test_what_the_running_handler_made_counts_when_it_is_captured() -> None:
    def of(items: Any) -> str:
        def pay() -> Any:
            return items

        return digest(function=pay)

    assert of([1]) != of([2])
    assert of({"a": Order(number=1)}) == of({"a": Order(number=1)})
    with pytest.raises(UsageError, match=r"captures 'items'.*argument.*key="):
        of(object())
    with pytest.raises(UsageError, match=r"captures 'items'.*lambda"):
        of(lambda: 1)


def test_a_key_leaves_out_captures_that_may_change() -> None:
    def of(items: Any) -> str:
        def pay() -> Any:
            return items

        return digest(function=pay, keyed=True)

    assert of([1]) == of([2]) == of(object())


def build(ran: list[int]) -> Callable[[], str]:
    def handler() -> str:
        def pay() -> None:
            ran.append(1)

        return digest(function=pay)

    return handler


def test_a_variable_from_outside_of_the_handler_is_surroundings_in_a_function_made_inside() -> None:
    assert build([])() == build([1, 2])()


def test_in_a_branch_the_handlers_own_function_tells_whose_a_variable_is() -> None:
    ran: list[int] = []

    def handler(items: list[int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def pay() -> Any:
            return items

        def note() -> None:
            ran.append(1)

        return pay, note

    def elsewhere(step: Callable[..., Any], within: Any) -> str:
        made: list[str] = []
        # Another thread has another stack, as another task has.
        thread = threading.Thread(target=lambda: made.append(digest(function=step, within=within)))
        thread.start()
        thread.join(10)
        return made[0]

    (pay, note), (other_pay, _) = handler([1]), handler([2])
    assert elsewhere(pay, handler) != elsewhere(other_pay, handler)
    before = elsewhere(note, handler)
    ran.append(1)
    assert elsewhere(note, handler) == before
    assert elsewhere(pay, handler.__qualname__)


def test_functions_that_capture_themselves_or_one_another_have_an_identity() -> None:
    def recursive(n: int) -> int:
        return n and recursive(n - 1)

    def ping() -> Any:
        return pong

    def pong() -> Any:
        return ping

    def early() -> Any:
        return late

    assert digest(3, function=recursive) != digest(3, function=ping) != digest(3, function=pong)
    assert digest(function=early)
    late = 1
    assert late


def test_defaults_of_a_local_function_count_like_captures() -> None:
    def of(amount: int) -> str:
        def pay(amount: int = amount) -> int:
            return amount

        return digest(function=pay)

    def by_keyword(amount: int) -> str:
        def pay(*, amount: int = amount) -> int:
            return amount

        return digest(function=pay)

    assert of(1) != of(2)
    assert of(1) == of(1)
    assert by_keyword(1) != by_keyword(2)


def logged(client: Any) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return client, function(*arguments)

        return wrapper

    return decorate


def test_a_decorated_function_is_known_by_the_function_inside() -> None:
    def work() -> None: ...

    def other() -> None: ...

    decorate = logged(object())
    assert digest(function=decorate(work)) == digest(function=decorate(work))
    assert digest(function=decorate(work)) != digest(function=decorate(other))
    assert digest(1, function=logged(object())(charge)) == digest(1, function=logged(object())(charge))


@functools.lru_cache
def cached(number: int) -> int:
    return number


def test_a_cached_function_of_a_module_is_known_by_its_name() -> None:
    assert digest(1, function=cached) == digest(1, function=cached) != digest(2, function=cached)


# Methods


class Service:
    def load(self) -> str:
        return "loaded"

    def __call__(self) -> str:
        return "called"

    @classmethod
    def made(cls) -> str:
        return cls.__name__

    @staticmethod
    def static() -> str:
        return "static"


class OtherService(Service):
    pass


@dataclass
class Account:
    number: int

    def close(self) -> str:
        return "closed"

    def __call__(self) -> str:
        return "called"


def test_methods_of_unlike_data_are_unlike_steps() -> None:
    assert digest(function=Account(1).close) != digest(function=Account(2).close)
    assert digest(function=Account(1).close) == digest(function=Account(1).close)
    assert digest(function=Account(1)) != digest(function=Account(2))
    assert digest(function=Account(1)) != digest(function=Account(1).close)
    assert digest(function="a".upper) != digest(function="b".upper)


@pytest.mark.parametrize("function", [Service().load, Service(), threading.Event().wait])
def test_a_method_of_what_cannot_be_identified_needs_a_key(function: Any) -> None:
    with pytest.raises(UsageError, match=r"object that cannot be identified.*key=.*inside"):
        FunctionStep(function, ())
    assert FunctionStep(function, (), keyed=True).digest


def test_methods_of_classes_and_functions_of_modules_need_none() -> None:
    assert digest(function=Service.made) != digest(function=OtherService.made)
    assert digest(function=Service.static) == digest(function=OtherService.static)
    assert digest(function=threading.get_ident) != digest(function=threading.active_count)
    assert digest(function=int) != digest(function=float)


# In a call


async def test_a_lambda_in_a_handler_is_refused_before_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("test", keys=[b"k" * 32])
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.step(lambda: ran.append(1))
        return "never"

    assert (await ScriptedClient(server).call_tool("tool"))["isError"]
    assert ran == []
    assert any("key=" in str(record.exc_info) for record in caplog.records if record.exc_info)


async def test_closures_over_unlike_values_are_never_swapped() -> None:
    server = Server("test", keys=[b"k" * 32])
    rounds: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def paying(amount: int) -> Callable[[], int]:
            def pay() -> int:
                return amount

            return pay

        rounds.append(1)
        amounts = (1, 2) if len(rounds) == 1 else (2, 1)
        for amount in amounts:
            assert await ctx.step(paying(amount)) == amount
        await ctx.elicit("ok?", bool)
        return "done"

    result = await ScriptedClient(server, {"ok?": True}).call_tool("tool")
    assert result["content"][0]["text"] == "done"


async def test_on_complete_takes_a_key() -> None:
    server = Server("test", keys=[b"k" * 32])
    told: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool)
        ctx.on_complete(lambda: told.append("completed"), key="tell")
        return "done"

    await ScriptedClient(server, {"ok?": True}).call_tool("tool")
    assert told == ["completed"]
