"""`ctx.step(function, *args, **kwargs)`: whose argument is whose, and what is said if a step cannot run."""

import functools
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ekiden import Context, StepFailed, UsageError
from tests.acceptance.driving import new_server, text
from tests.laws.driving import Client

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def load(name: str, *, upper: bool = False, times: int = 1) -> str:
    ran.append(name)
    return (name.upper() if upper else name) * times


def plain(name: str, times: int = 1) -> str:
    ran.append(name)
    return name * times


async def fetch(bucket: str, key: str = "index") -> str:
    ran.append(key)
    return f"{bucket}/{key}"


async def note(key: str, ctx: Context) -> str:
    ran.append(key)
    return f"{key} {bool(ctx.step_key)}"


async def result_of(body: Callable[[Context], Awaitable[Any]]) -> str:
    """What a handler with two questions around its body returns; the body is run in both rounds."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        value = await body(ctx)
        await ctx.elicit("Go on?", bool)
        return str(value)

    async with server.running():
        return text(await Client(server).call_tool("tool"))


async def problem_of(body: Callable[[Context], Awaitable[Any]]) -> str:
    """What a step is refused with; it has not run."""

    async def tried(ctx: Context) -> str:
        with pytest.raises(UsageError) as refused:
            await body(ctx)
        return str(refused.value)

    said = await result_of(tried)
    assert ran == []
    return said


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (lambda ctx: ctx.step(load, "a", upper=True, times=2), "AA"),
        (lambda ctx: ctx.step(load, name="a"), "a"),
        (lambda ctx: ctx.step(plain, "a", times=3), "aaa"),
        (lambda ctx: ctx.step(load, "a", upper=True, key="mine", raises=[ValueError]), "A"),
        (lambda ctx: ctx.step(functools.partial(load, upper=True), "a", times=2), "AA"),
        (lambda ctx: ctx.step(note, "k", ctx=ctx), "k True"),
        (lambda ctx: ctx.step(fetch, "b", "k", key="mine"), "b/k"),
        (lambda ctx: ctx.step(functools.partial(fetch, key="k"), "b", key="mine"), "b/k"),
    ],
)
async def test_a_function_gets_its_arguments_by_name_and_runs_once(body: Any, result: str) -> None:
    assert await result_of(body) == result
    assert len(ran) == 1


async def test_a_step_by_name_is_the_same_as_a_partial_and_another_than_with_other_values() -> None:
    async def body(ctx: Context) -> Any:
        first = await ctx.step(load, "a", upper=True)
        second = await ctx.step(load, "a", upper=False)
        return first, second

    assert await result_of(body) == "('A', 'a')"
    assert ran == ["a", "a"]


async def test_what_runs_afterwards_gets_its_arguments_by_name() -> None:
    async def body(ctx: Context) -> str:
        ctx.on_complete(load, "later", upper=True)
        ctx.on_complete(plain, name="last", key="last one")
        return "done"

    assert await result_of(body) == "done"
    assert ran == ["later", "last"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            lambda ctx: ctx.step(load, "a", uper=True),
            (
                "step load: got an unexpected keyword argument 'uper' (did you mean upper=, a parameter of "
                "the function?)"
            ),
        ),
        (
            lambda ctx: ctx.step(load, "a", raise_=[ValueError]),
            (
                "step load: got an unexpected keyword argument 'raise_' (did you mean raises=, an option of "
                "ctx.step?)"
            ),
        ),
        (lambda ctx: ctx.step(load, upper=True), "step load: missing a required argument: 'name'"),
        (
            lambda ctx: ctx.step(fetch, "b", key="k"),
            (
                "step fetch: key= is an option of ctx.step, and fetch has a parameter 'key': pass the "
                "function's own by position, or as functools.partial(fetch, key=...)"
            ),
        ),
    ],
)
async def test_a_step_that_cannot_be_called_so_says_what_to_write(body: Any, said: str) -> None:
    assert await problem_of(body) == said


async def test_a_function_that_was_called_already_says_what_to_write_and_leaves_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await problem_of(lambda ctx: ctx.step(load("a"))) == (  # type: ignore[arg-type]
            "ctx.step takes a function and its arguments: write ctx.step(load, ...), not ctx.step(load(...))"
        )
    assert await problem_of(lambda ctx: ctx.step("a" * 3, key="k")) == (  # type: ignore[call-overload]
        "ctx.step takes a function and its arguments, not a value of type str: write ctx.step(f, ...), not "
        "ctx.step(f(...))"
    )


async def test_a_missing_argument_by_position_is_a_failed_step() -> None:
    async def body(ctx: Context) -> str:
        with pytest.raises(StepFailed, match="missing 1 required positional argument: 'name'"):
            await ctx.step(load)  # type: ignore[call-overload]
        return "told"

    assert await result_of(body) == "told"
