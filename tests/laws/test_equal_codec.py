"""Equal: a value is kept whole, or refused before its step begins, or a failure that every run sees."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field

from ekiden import Context
from ekiden.testing import CallFailed
from tests.acceptance.driving import call, process
from tests.laws.driving import REPLAYED, Client, Runs, accept, play, serve, two_more_rounds
from tests.laws.steps import begun, noted


class Aliased(BaseModel):
    name: str = Field(alias="fullName")


class ValidatedByAnotherName(BaseModel):
    name: str = Field(validation_alias="fullName")


class SpelledByAnotherName(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(serialization_alias="fullName")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    price: int

    @computed_field
    def double(self) -> int:
        return 2 * self.price


class Secret(BaseModel):
    password: SecretStr


class Excluded(BaseModel):
    name: str
    note: str = Field(default="none", exclude=True)


class Animal(BaseModel):
    name: str


class Whale(Animal):
    depth: int


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


class Measured(BaseModel):
    value: float


class Point(NamedTuple):
    x: int
    y: int


class Tagged(BaseModel):
    tags: set[str]


class Permissive(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


def aliased() -> Aliased:
    noted.append("begin it")
    return Aliased(fullName="Ada")


def validated_by_another_name() -> ValidatedByAnotherName:
    noted.append("begin it")
    return ValidatedByAnotherName(fullName="Ada")


def spelled_by_another_name() -> SpelledByAnotherName:
    noted.append("begin it")
    return SpelledByAnotherName(name="Ada")


def computed() -> Computed:
    noted.append("begin it")
    return Computed(price=5)


def secret() -> Secret:
    noted.append("begin it")
    return Secret(password=SecretStr("xyzzy"))


def bare_secret() -> SecretStr:
    noted.append("begin it")
    return SecretStr("xyzzy")


def excluded() -> Excluded:
    noted.append("begin it")
    return Excluded(name="Ada", note="kept")


def subclass() -> Animal:
    noted.append("begin it")
    return Whale(name="Moby", depth=1000)


def listed_subclass() -> list[Animal]:
    noted.append("begin it")
    return [Whale(name="Moby", depth=1000), Animal(name="Tom")]


def either() -> Cat | Dog:
    noted.append("begin it")
    return Dog(name="Rex")


def either_in_a_list() -> list[Cat | Dog]:
    noted.append("begin it")
    return [Dog(name="Rex"), Cat(name="Tom")]


def infinite() -> float:
    noted.append("begin it")
    return math.inf


def infinite_in_a_model() -> Measured:
    noted.append("begin it")
    return Measured(value=-math.inf)


def infinite_and_unannotated():  # type: ignore[no-untyped-def]
    noted.append("begin it")
    return [1.0, math.inf]


def point() -> Point:
    noted.append("begin it")
    return Point(1, 2)


def a_set() -> frozenset[str]:
    noted.append("begin it")
    return frozenset({"a", "b"})


def extra() -> Permissive:
    noted.append("begin it")
    return Permissive.model_validate({"name": "Ada", "more": 1})


def anything() -> Any:
    noted.append("begin it")
    return {"deep": [{"er": None}]}


def an_object() -> object:
    noted.append("begin it")
    return Dog(name="Rex")


def raw() -> bytes:
    noted.append("begin it")
    return bytes(range(256))


def number_or_text() -> int | str:
    noted.append("begin it")
    return "5"


def keyed_by_number() -> dict[int, str]:
    noted.append("begin it")
    return {1: "one"}


CASES: list[tuple[Any, Any]] = [
    (aliased, Aliased(fullName="Ada")),
    (validated_by_another_name, ValidatedByAnotherName(fullName="Ada")),
    (spelled_by_another_name, SpelledByAnotherName(name="Ada")),
    (computed, Computed(price=5)),
    (secret, Secret(password=SecretStr("xyzzy"))),
    (bare_secret, SecretStr("xyzzy")),
    (excluded, Excluded(name="Ada", note="kept")),
    (subclass, Whale(name="Moby", depth=1000)),
    (listed_subclass, [Whale(name="Moby", depth=1000), Animal(name="Tom")]),
    (either, Dog(name="Rex")),
    (either_in_a_list, [Dog(name="Rex"), Cat(name="Tom")]),
    (infinite, math.inf),
    (infinite_in_a_model, Measured(value=-math.inf)),
    (infinite_and_unannotated, [1.0, math.inf]),
    (point, Point(1, 2)),
    (a_set, frozenset({"a", "b"})),
    (extra, Permissive.model_validate({"name": "Ada", "more": 1})),
    (anything, {"deep": [{"er": None}]}),
    (an_object, Dog(name="Rex")),
    (raw, bytes(range(256))),
    (number_or_text, "5"),
    (keyed_by_number, {1: "one"}),
]


@pytest.mark.parametrize("how", ["rounds", "task"])
@pytest.mark.parametrize(("function", "value"), CASES, ids=[case[0].__name__ for case in CASES])
async def test_a_value_is_kept_whole_or_every_run_fails_alike(function: Any, value: Any, how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            got = await ctx.step(function)
        except Exception as error:
            run.append((type(error).__name__, str(error)))
        else:
            run.append((type(got), got))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    ((kind, got),) = runs.agree()
    assert begun("it") <= 1
    assert isinstance(kind, str) or (kind, got) == (type(value), value)


def nothing_at_all() -> float:
    noted.append("begin it")
    return math.nan


@pytest.mark.parametrize("how", REPLAYED)
async def test_not_a_number_is_not_a_number_in_every_run(how: str) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            run.append(math.isnan(await ctx.step(nothing_at_all)))
        except Exception as error:
            run.append(type(error).__name__)
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    assert runs.agree() == [True]
    assert begun("it") == 1


@pytest.mark.parametrize("function", [aliased, validated_by_another_name, computed, infinite, point, a_set])
async def test_ordinary_values_are_kept_and_not_refused(function: Any) -> None:
    value = dict(CASES)[function]

    async def tool(ctx: Context) -> str:
        got = await ctx.step(function)
        await ctx.elicit("more?", bool)
        return str(got == value)

    assert await play(tool) == "True"


# Exceptions


class Declined(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Composed(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.first = first


class CardError(Exception):
    pass


class Expired(CardError):
    pass


class ExpiredWithYear(CardError):
    def __init__(self, year: int) -> None:
        super().__init__(f"expired in {year}")
        self.year = year


def declines() -> str:
    noted.append("begin it")
    raise Declined(51, reason="no funds")


def composes() -> str:
    noted.append("begin it")
    raise Composed("this", "that")


def expires() -> str:
    noted.append("begin it")
    raise Expired("2020")


def expires_with_year() -> str:
    noted.append("begin it")
    raise ExpiredWithYear(2020)


EXCEPTIONS = [
    (declines, Declined, "51: no funds"),
    (composes, Composed, "this and that"),
    (expires, CardError, "2020"),
    (expires_with_year, CardError, "expired in 2020"),
]


@pytest.mark.parametrize("how", ["rounds", "task"])
@pytest.mark.parametrize(("function", "listed", "words"), EXCEPTIONS, ids=["own", "two", "sub", "own sub"])
async def test_a_listed_exception_is_caught_as_itself_in_every_run(
    function: Any, listed: Any, words: str, how: str
) -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            await ctx.step(function, raises=[listed])
        except listed as error:
            run.append((type(error).__name__, str(error)))
        except Exception as error:
            run.append(("not listed", repr(error)))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool, how) == "done"
    ((kind, said),) = runs.agree()
    assert kind != "not listed"
    assert said == words
    assert begun("it") == 1


async def test_a_listed_exception_keeps_its_attributes_in_every_run() -> None:
    runs = Runs()

    async def tool(ctx: Context) -> str:
        run = runs.begin()
        try:
            await ctx.step(declines, raises=[Declined])
        except Declined as error:
            run.append((error.code, error.reason))
        await two_more_rounds(ctx)
        return "done"

    assert await play(tool) == "done"
    assert runs.agree() == [(51, "no funds")]


# Arguments


_WITH_SETS = """
import sys
from pathlib import Path
from pydantic import BaseModel
from ekiden import Context, Server

class Tags(BaseModel):
    names: set[str]
    more: dict[str, frozenset[str]] = {}

server = Server("sets", keys=[b"k" * 32])
words = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}

def charge(tags: Tags) -> str:
    with Path(sys.argv[1]).open("a") as file:
        file.write("charged\\n")
    return "charged"

@server.tool
async def tool(ctx: Context) -> str:
    paid = await ctx.step(charge, Tags(names=set(words), more={"x": frozenset(words)}))
    await ctx.elicit("more?", bool, key="k")
    return paid

server.run("stdio", grace=1)
"""


async def test_a_set_inside_a_model_is_the_same_argument_in_every_process(tmp_path: Path) -> None:
    charges = tmp_path / "charges"
    async with (
        process(_WITH_SETS, str(charges), PYTHONHASHSEED="1") as one,
        process(_WITH_SETS, str(charges), PYTHONHASHSEED="2") as other,
    ):
        for number in range(5):
            first = (await one.exchange(call("tool", {}, number)))["result"]
            again = {"inputResponses": {"k": accept(True)}, "requestState": first["requestState"]}
            reply = await other.exchange(call("tool", {}, number, **again))
            assert "result" in reply, reply
    assert charges.read_text().splitlines() == ["charged"] * 5


async def takes(model: BaseModel) -> str:
    noted.append("begin it")
    return "took"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Secret(password=SecretStr("xyzzy")), Secret(password=SecretStr("plugh"))),
        (Whale(name="Moby", depth=1), Whale(name="Moby", depth=2)),
        (Measured(value=math.inf), Measured(value=-math.inf)),
    ],
    ids=["secret", "subclass", "infinity"],
)
async def test_arguments_that_differ_in_what_is_not_written_are_different(before: Any, now: Any) -> None:
    """Refused, or run each for itself; never the value of the one for the other."""
    arguments = [before]

    async def tool(ctx: Context) -> str:
        paid = await ctx.step(takes, arguments[0])
        await ctx.elicit("more?", bool, key="k")
        return paid

    client = Client(serve(tool))
    try:
        first = await client.ask("tool")
    except CallFailed:
        return
    if not first.requests:
        assert begun("it") == 0
        return
    arguments[0] = now
    assert await client.reply(first, {"k": accept(True)}) == "error -32603"
    assert begun("it") == 1
