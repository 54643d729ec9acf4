"""Random handlers, random answers, random replicas: the end is that of a straight run, each step ran once.

A handler is a small program. It is interpreted twice: straight, with the answers at hand, and as a tool
whose rounds go from replica to replica while the client answers as it likes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ekiden import Context, Server, StepFailed
from ekiden.stores.memory import MemoryStore
from ekiden.testing import Replicas, Round
from tests.acceptance.driving import Client, accept, new_server, said, text


@dataclass(frozen=True)
class Ask:
    kind: str


@dataclass(frozen=True)
class Step:
    fails: bool = False
    threaded: bool = False


@dataclass(frozen=True)
class Draw:
    pass


@dataclass(frozen=True)
class Passes:
    """A few passes of the loop in which nothing happens."""

    count: int


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Program", ...]


@dataclass(frozen=True)
class Gather:
    parts: tuple["Program", ...]
    grouped: bool


@dataclass(frozen=True)
class Branch:
    """Asks yes or no, and goes on accordingly."""

    yes: "Program"
    no: "Program"


@dataclass(frozen=True)
class Finally:
    """Runs a step at the end of its body, whichever way that ends."""

    body: "Program"


Program: TypeAlias = Ask | Step | Draw | Passes | Sequence | Gather | Branch | Finally


def _inner(program: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    parts = st.lists(program, min_size=1, max_size=4).map(tuple)
    return (
        st.builds(Sequence, parts)
        | st.builds(Gather, parts, st.booleans())
        | st.builds(Branch, program, program)
        | st.builds(Finally, program)
    )


_LEAVES: st.SearchStrategy[Program] = (
    st.builds(Ask, st.sampled_from(["form", "sample", "roots"]))
    | st.builds(Step, st.booleans(), st.booleans())
    | st.builds(Draw)
    | st.builds(Passes, st.integers(1, 2))
)
_PROGRAMS = st.recursive(_LEAVES, _inner, max_leaves=16)


def answer_to(path: str) -> str:
    """What the user says; the same in both interpretations."""
    return "yes" if sum(path.encode()) % 3 else "no"


# Straight


def straight(program: Program, path: str, steps: Counter[str]) -> Any:
    match program:
        case Ask():
            return f"{path}={answer_to(path)}"
        case Step(fails=fails):
            steps[path] += 1
            return f"{path} failed" if fails else f"{path} done"
        case Draw():
            return f"{path} drawn"
        case Passes():
            return None
        case Sequence(parts) | Gather(parts):
            return [straight(part, f"{path}.{n}", steps) for n, part in enumerate(parts)]
        case Branch(yes, no):
            said_yes = answer_to(f"{path}?") == "yes"
            return straight(yes if said_yes else no, f"{path}.{'y' if said_yes else 'n'}", steps)
        case Finally(body):
            result = straight(body, f"{path}.b", steps)
            steps[f"{path}.f"] += 1
            return result


# As a tool


@dataclass
class Interpreter:
    ctx: Context
    steps: Counter[str]
    drawn: dict[str, set[str]]

    async def run(self, program: Program, path: str) -> Any:
        match program:
            case Ask(kind):
                return f"{path}={await self.ask(kind, path)}"
            case Step(fails, threaded):
                return await self.step(path, fails, threaded)
            case Draw():
                self.drawn.setdefault(path, set()).add(str(self.ctx.uuid(key=path)))
                return f"{path} drawn"
            case Passes(count):
                for _ in range(count):
                    await asyncio.sleep(0)
                return None
            case Sequence(parts):
                return [await self.run(part, f"{path}.{n}") for n, part in enumerate(parts)]
            case Gather(parts, grouped):
                return await self.gather(parts, path, grouped)
            case Branch(yes, no):
                said_yes = await self.ask("form", f"{path}?") == "yes"
                return await self.run(yes if said_yes else no, f"{path}.{'y' if said_yes else 'n'}")
            case Finally(body):
                try:
                    return await self.run(body, f"{path}.b")
                finally:
                    await self.step(f"{path}.f", fails=False, threaded=False)

    async def ask(self, kind: str, path: str) -> str:
        if kind == "form":
            return str((await self.ctx.elicit(path, str)).data)
        if kind == "sample":
            return str((await self.ctx.sample(path, max_tokens=9)).content.text)  # type: ignore[union-attr]
        return str((await self.ctx.list_roots(key=f"roots {path}"))[0].name)

    async def step(self, path: str, fails: bool, threaded: bool) -> str:
        def work(what: str) -> str:
            self.steps[what] += 1
            if fails:
                raise LookupError(what)
            return f"{what} done"

        async def slow_work(what: str) -> str:
            await asyncio.sleep(0.001)
            return work(what)

        try:
            return await self.ctx.step(work if threaded else slow_work, path, key=f"step {path}")
        except StepFailed:
            return f"{path} failed"

    async def gather(self, parts: tuple[Program, ...], path: str, grouped: bool) -> list[Any]:
        runs = [self.run(part, f"{path}.{n}") for n, part in enumerate(parts)]
        if not grouped:
            return list(await asyncio.gather(*runs))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run) for run in runs]
        return [task.result() for task in tasks]


@dataclass
class World:
    """One call, from outside: the replicas that serve it and what they did."""

    program: Program
    order: list[int]
    store: MemoryStore | None = None
    steps: Counter[str] = field(default_factory=Counter)
    drawn: dict[str, set[str]] = field(default_factory=dict)

    def client(self) -> Client:
        return Client(Replicas(self._make, 3, self.order).next)

    def _make(self) -> Server:
        server = new_server(store=self.store)

        @server.tool
        async def tool(ctx: Context) -> str:
            return repr(await Interpreter(ctx, self.steps, self.drawn).run(self.program, "p"))

        return server


def response_to(key: str, request: dict[str, Any]) -> dict[str, Any]:
    if request["method"] == "elicitation/create":
        return accept(answer_to(request["params"]["message"]))
    if request["method"] == "sampling/createMessage":
        return said(answer_to(request["params"]["messages"][0]["content"]["text"]))
    return {"roots": [{"uri": "file:///a", "name": answer_to(key.removeprefix("roots "))}]}


def some_answers(data: st.DataObject, asked: Round) -> dict[str, Any]:
    """Some of the answers, at least one, in any order; perhaps one that does not fit, perhaps strangers."""
    keys = data.draw(st.permutations(sorted(asked.requests)))
    count = data.draw(st.integers(1, len(keys)))
    answers = {key: response_to(key, asked.requests[key]) for key in keys[:count]}
    if data.draw(st.integers(0, 5)) == 0:
        answers["a stranger"] = accept("unasked")
    unfit = [key for key in keys[count:] if asked.requests[key]["method"] == "elicitation/create"]
    if unfit and data.draw(st.booleans()):
        answers[unfit[0]] = accept(["no text"])
    return answers


async def play(world: World, data: st.DataObject, again: Callable[[], bool]) -> str:
    client = world.client()
    played = await client.ask("tool")
    for _ in range(60):
        if played.result["resultType"] == "complete":
            return text(played)
        answers = some_answers(data, played)
        last = played
        played = await client.retry(last, answers)
        while again():  # The reply was lost.
            repeated = await client.retry(last, answers)
            assert repeated.requests == played.requests
            played = repeated
    raise AssertionError("the call does not end")


def check(world: World, end: str) -> None:
    steps: Counter[str] = Counter()
    assert end == repr(straight(world.program, "p", steps))
    assert world.steps == steps


@pytest.fixture(scope="module")
def runner() -> Generator[asyncio.Runner, None, None]:
    with asyncio.Runner() as running:
        yield running


_MANY = settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_SOME = settings(_MANY, max_examples=80)
_ORDERS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


def run_and_replay(runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject) -> None:
    world = World(program, order)
    end = runner.run(play(world, data, lambda: False))
    check(world, end)
    assert all(len(values) == 1 for values in world.drawn.values())


def run_with_losses(runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject) -> None:
    world = World(program, order, MemoryStore())
    end = runner.run(play(world, data, lambda: data.draw(st.integers(0, 2)) == 2))
    check(world, end)


@_SOME
@given(_PROGRAMS, _ORDERS, st.data())
def test_a_replayed_run_ends_like_a_straight_one(
    runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject
) -> None:
    run_and_replay(runner, program, order, data)


@_SOME
@given(_PROGRAMS, _ORDERS, st.data())
def test_a_run_whose_replies_get_lost_ends_like_a_straight_one(
    runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject
) -> None:
    run_with_losses(runner, program, order, data)


@pytest.mark.slow
@_MANY
@given(_PROGRAMS, _ORDERS, st.data())
def test_many_replayed_runs_end_like_straight_ones(
    runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject
) -> None:
    run_and_replay(runner, program, order, data)


@pytest.mark.slow
@_MANY
@given(_PROGRAMS, _ORDERS, st.data())
def test_many_runs_whose_replies_get_lost_end_like_straight_ones(
    runner: asyncio.Runner, program: Program, order: list[int], data: st.DataObject
) -> None:
    run_with_losses(runner, program, order, data)
