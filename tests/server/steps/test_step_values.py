"""How what a step returned or raised is remembered: it comes back equal, or as a failure that is recorded."""

import functools
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn
from uuid import UUID

import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, computed_field
from typing_extensions import TypedDict

from ekiden import Context, Server, StepFailed, ToolError, UsageError
from ekiden.rounds.journal import Entry
from ekiden.server.steps.step import FunctionStep
from ekiden.testing import ScriptedClient


async def seen(function: Callable[..., Any], *arguments: Any, **more: Any) -> tuple[Entry, Any, Any]:
    """The entry of a step, and what the first run and a run in another process see."""
    entry = await FunctionStep(function, arguments, **more).perform()
    elsewhere = msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Entry)
    found = [recalled(FunctionStep(function, arguments, **more), known) for known in (entry, elsewhere)]
    return entry, found[0], found[1]


def recalled(step: FunctionStep, entry: Entry) -> Any:
    try:
        return step.recall(entry)
    except Exception as error:
        return error


def returning(value: Any, hint: Any) -> Callable[[], Any]:
    async def give() -> Any:
        return value

    give.__annotations__ = {"return": hint}
    return give


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")
    either: int = Field(validation_alias=AliasChoices("e", "E"), serialization_alias="out")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Secretive(BaseModel):
    word: SecretStr


class Hiding(BaseModel):
    shown: int
    hidden: int = Field(0, exclude=True)


class Animal(BaseModel):
    name: str = "x"


class Cat(Animal):
    pass


class Dog(Animal):
    pass


class Kennel(BaseModel):
    animals: list[Animal]


class Tagged(BaseModel):
    kind: Literal["a"] = "a"


class OtherTagged(BaseModel):
    kind: Literal["b"] = "b"


class Measures(BaseModel):
    values: list[float]


class Blob(BaseModel):
    data: bytes


class Base64Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Money:
    amount: Decimal
    tags: set[str] = field(default_factory=set)


class Row(TypedDict):
    n: int


KEPT: list[tuple[Any, Any]] = [
    ({"a": [1, 2.5, None, True, "é"]}, Any),
    (2**64 - 1, int),
    (-(2**63), int),
    (5, float),
    ("text", str),
    (None, None),
    ([1], list[int]),
    ({"a": (1, 2)}, dict[str, tuple[int, int]]),
    ({1: "a"}, dict[int, str]),
    ({1, 2}, set[int]),
    (frozenset({1}), frozenset[int]),
    (b"\x00\xff", bytes),
    ([b"\xff"], list[bytes]),
    (math.inf, float),
    (-math.inf, float),
    (math.nan, float),
    ([math.nan, 1.0], list[float]),
    (math.nan, float | None),
    (Measures(values=[math.nan, math.inf]), Measures),
    (datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC), datetime),
    (datetime(2026, 1, 1), datetime),
    (timedelta(days=1, microseconds=1), timedelta),
    (Decimal("1.10"), Decimal),
    (Decimal("NaN"), Annotated[Decimal, Field(allow_inf_nan=True)]),
    (UUID(int=5), UUID),
    (Path("/a"), Path),
    (Colour.RED, Colour),
    (Point(1, 2), Point),
    (Money(Decimal("1.1"), {"a"}), Money),
    ({"n": 1}, Row),
    (Aliased(userId=1, e=2), Aliased),  # type: ignore[call-arg]
    ([Aliased(userId=1, e=2)], list[Aliased]),  # type: ignore[call-arg]
    (Computed(side=2), Computed),
    (Hiding(shown=1), Hiding),
    (Tagged(), Tagged | OtherTagged),
    (OtherTagged(), Tagged | OtherTagged),
    (Cat(), Cat),
    (Base64Blob(data=b"\xff"), Base64Blob),
    (Blob(data=b"text"), Blob),
    (defaultdict(list, a=[1]), dict[str, list[int]]),
]


@pytest.mark.parametrize(("value", "hint"), KEPT, ids=str)
async def test_what_can_be_kept_comes_back_equal_in_every_run(value: Any, hint: Any) -> None:
    entry, first, again = await seen(returning(value, hint))
    assert entry.kind == "step", entry.value
    assert repr(first) == repr(again)
    assert first == value or repr(first) == repr(value)
    assert first is not value or isinstance(value, str | int | float | None | Enum)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


BROKEN: list[tuple[Any, Any]] = [
    (object(), Any),
    (object(), str),
    (2**70, Any),
    (2**70, int),
    ({"n": -(2**70)}, dict[str, int]),
    ((1, 2), Any),
    ({1, 2}, Any),
    ({1: 2}, Any),
    ({"a": [(1,)]}, Any),
    (b"text", Any),
    (math.nan, Any),
    ([math.inf], Any),
    ("\ud800", Any),
    ("\ud800", str),
    (["\ud800"], list[str]),
    (deep(2000), Any),
    (deep(200), list[Any]),
    (endless(), Any),
    (endless(), list[Any]),
    (Animal(), Any),
    (Animal(), dict[str, Any]),
    (Money(Decimal(1)), Any),
    (5, str),
    ("5", int),
    ((1, 2), list[int]),
    (Point(1, 2), tuple[int, int]),
    (Colour.RED, Any),
    (Secretive(word=SecretStr("hunter2")), Secretive),
    (SecretStr("hunter2"), SecretStr),
    (Hiding(shown=1, hidden=2), Hiding),
    (Cat(), Animal),
    (Kennel(animals=[Dog()]), Kennel),
    (Dog(), Cat | Dog),
    ([Cat(), Dog()], list[Cat | Dog]),
    (Blob(data=b"\xff"), Blob),
    (len, Any),
    ((n for n in "ab"), Any),
    (Animal.model_construct(name=5), Animal),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("value", "hint"), BROKEN, ids=lambda value: type(value).__name__)
async def test_a_value_that_cannot_be_kept_is_a_recorded_failure(value: Any, hint: Any) -> None:
    entry, first, again = await seen(returning(value, hint))
    assert entry.kind == "failure"
    for error in (first, again):
        assert isinstance(error, StepFailed)
        assert error.type == "ValueNotKept"
        assert "give" in error.message
        assert "hunter2" not in error.message
    assert str(first) == str(again)


async def test_a_failure_says_where_the_value_changed() -> None:
    _, error, _ = await seen(returning(Kennel(animals=[Animal(), Dog()]), Kennel))
    assert "it.animals[1] was Dog and came back as Animal" in str(error)


async def test_an_object_without_equality_is_compared_by_what_it_holds() -> None:
    class Odd(BaseModel):
        __hash__ = None  # type: ignore[assignment]
        n: int

        def __eq__(self, other: object) -> bool:
            return False

    entry, _, _ = await seen(returning(Odd(n=1), Odd))
    assert entry.kind == "step"


# The codec is made first


class NoSchema:
    pass


def unresolved() -> "NothingOfThatName":  # type: ignore[name-defined]  # noqa: F821
    raise AssertionError("it must not run")


def without_schema() -> NoSchema:
    raise AssertionError("it must not run")


@pytest.mark.parametrize("function", [unresolved, without_schema, NoSchema])
def test_an_annotation_that_can_carry_nothing_is_refused_before_the_function_runs(function: Any) -> None:
    with pytest.raises(UsageError, match=function.__name__):
        FunctionStep(function, ())


async def test_only_the_return_annotation_is_resolved() -> None:
    def load(_client: "NotImportedHere") -> "Decimal":  # type: ignore[name-defined]  # noqa: F821
        return Decimal(1)

    assert (await seen(load, 1))[1] == Decimal(1)


async def test_an_annotation_may_name_what_the_function_captured() -> None:
    class Local(BaseModel):
        n: int

    def load() -> "Local":
        return Local(n=1)

    assert (await seen(load))[1] == Local(n=1)


async def test_a_function_that_never_returns_is_a_step_too() -> None:
    def fail() -> NoReturn:
        raise LookupError("no such order")

    assert str((await seen(fail))[1]) == "LookupError: no such order"


async def test_a_class_is_a_function_that_returns_its_own() -> None:
    assert (await seen(Animal))[1] == Animal()
    assert (await seen(int, "5"))[1] == 5


# By reference


async def test_what_is_done_to_a_value_never_reaches_its_entry() -> None:
    kept: list[Any] = []

    def load() -> Any:
        value = {"items": ["x"]}
        kept.append(value)
        return value

    step = FunctionStep(load, ())
    entry = await step.perform()
    for _ in range(2):
        kept[0]["items"].append("the function's")
        step.recall(entry)["items"].append("the handler's")
        assert step.recall(entry) == {"items": ["x"]}


@pytest.mark.parametrize("by_partial", [False, True])
async def test_a_step_gets_copies_of_its_arguments(by_partial: bool) -> None:
    def take(order: dict[str, Any], animal: Animal, ctx: Any) -> bool:
        del order["items"]
        animal.name = "changed"
        return isinstance(ctx, Call)

    class Call:
        step_key = "k"

    order, animal, call = {"items": [1]}, Animal(), Call()
    if by_partial:
        step = FunctionStep(functools.partial(take, order, ctx=call), (animal,))
    else:
        step = FunctionStep(take, (order, animal, call))
    step.prepare()
    assert step.recall(await step.perform()) is True
    assert order == {"items": [1]}
    assert animal.name == "x"


async def test_an_argument_that_cannot_be_copied_is_refused_before_the_function_runs() -> None:
    @dataclass
    class Stubborn:
        n: int

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one of me")

    ran: list[int] = []

    def use(_: Stubborn) -> None:
        ran.append(1)

    with pytest.raises(UsageError, match=r"step .*use: an argument cannot be copied.*there is one of me"):
        FunctionStep(use, (Stubborn(1),)).prepare()
    assert ran == []


# Exceptions


class PaymentError(Exception):
    def __init__(self, *, code: int, amount: Decimal) -> None:
        super().__init__(f"no {code}")
        self.code = code
        self.amount = amount


class CardError(PaymentError):
    pass


def paying(error: BaseException) -> Callable[[], Any]:
    def pay() -> Any:
        raise error

    return pay


@pytest.mark.parametrize("kind", [PaymentError, CardError])
async def test_a_listed_exception_and_its_subclasses_come_back_as_themselves(kind: Any) -> None:
    error = kind(code=5, amount=Decimal("1.10"))
    error.more = {"when": datetime(2026, 1, 1), 1: (1, {2}), "b": b"\xff", "for": timedelta(1)}
    for found in (await seen(paying(error), raises=(PaymentError,)))[1:]:
        assert type(found) is kind
        assert found is not error
        assert found.args == error.args
        assert vars(found) == vars(error)


async def test_a_tool_error_is_always_listed_and_others_are_not() -> None:
    assert type((await seen(paying(ToolError("told"))))[1]) is ToolError
    assert type((await seen(paying(LookupError("hidden"))))[1]) is StepFailed
    assert type((await seen(paying(FileNotFoundError(2, "gone")), raises=(OSError,)))[2]) is FileNotFoundError


async def test_a_listed_exception_that_cannot_be_kept_is_step_failed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = (await seen(paying(LookupError(object())), raises=(LookupError,)))[1]
    assert isinstance(found, StepFailed)
    assert found.type == "LookupError"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "pay" in warning.getMessage()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("raises", [(), (Unspeakable,)])
async def test_an_exception_whose_text_cannot_be_had_is_remembered(raises: Any) -> None:
    found = (await seen(paying(Unspeakable(1)), raises=raises))[1]
    assert type(found) is (Unspeakable if raises else StepFailed)


async def test_a_class_that_is_gone_is_stood_in_for_by_the_listed_one() -> None:
    class Gone(LookupError):
        pass

    step = FunctionStep(paying(Gone("a")), (), (LookupError,))
    entry = await step.perform()
    entry.value[2][0] = ["no.such.module", "Gone"]
    with pytest.raises(LookupError) as caught:
        step.recall(entry)
    assert type(caught.value) is LookupError
    assert caught.value.args == ("a",)
    with pytest.raises(StepFailed):
        FunctionStep(paying(Gone("a")), (), (ValueError,)).recall(entry)


_ELSEWHERE = """
import sys, msgspec
from ekiden.rounds.journal import Entry
from ekiden.server.steps.step import FunctionStep
def work(): pass
entry = msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Entry)
try:
    FunctionStep(work, (), (OSError,)).recall(entry)
except Exception as error:
    print(type(error).__module__, type(error).__qualname__, error.args)
"""


async def test_the_class_of_an_exception_is_found_in_a_process_that_has_not_loaded_it() -> None:
    entry = await FunctionStep(paying(shutil.SameFileError("a")), (), (OSError,)).perform()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, msgspec.msgpack.encode(entry).hex()],
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert re.fullmatch(rb"shutil SameFileError \('a',\)\s*", done.stdout)


# In a call


async def test_the_effect_of_a_value_that_cannot_be_kept_is_not_repeated() -> None:
    server = Server("test", keys=[b"k" * 32])
    ran: list[int] = []
    caught: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def open_it() -> Any:
            ran.append(1)
            return object()

        try:
            await ctx.step(open_it)
        except StepFailed as failure:
            caught.append(str(failure))
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    await ScriptedClient(server, {"one": True, "two": True}).call_tool("tool")
    assert ran == [1]
    assert len(caught) == 3
    assert len(set(caught)) == 1


async def test_a_handler_that_changes_what_came_back_sees_the_same_in_every_round() -> None:
    server = Server("test", keys=[b"k" * 32])
    found: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        order = {"items": ["x"]}

        def load(order: dict[str, Any]) -> Any:
            return {"items": order.pop("items")}

        loaded = await ctx.step(load, order)
        found.append((list(loaded["items"]), dict(order)))
        loaded["items"].append("y")
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    await ScriptedClient(server, {"one": True, "two": True}).call_tool("tool")
    assert found == [(["x"], {"items": ["x"]})] * 3
