"""The phases of a handler's task: the table, and what is done in it."""

import asyncio
import contextlib
import logging
from typing import Any, get_args

import pytest

from ekiden.errors import MissingCapability
from ekiden.rounds.asks import RoundQuestions
from ekiden.rounds.handler_task import MOVES, OVER, SETTLED, HandlerTask, Move, Phase
from ekiden.rounds.journal import Journal
from ekiden.rounds.leg import Leg
from ekiden.rounds.outcome import Suspended
from ekiden.rounds.replay import Replay
from ekiden.server.questions.forms import form_for
from ekiden.server.questions.questions import ROOTS
from tests.serving import soon

PHASES: tuple[Phase, ...] = get_args(Phase)
ALL_MOVES: tuple[Move, ...] = get_args(Move)


def test_the_table_names_only_phases_and_moves_that_there_are() -> None:
    named = {phase for moves in MOVES.values() for pair in moves.items() for phase in pair}
    assert named == set(PHASES)
    assert set(MOVES) == set(ALL_MOVES)


@pytest.mark.parametrize("what", ALL_MOVES)
def test_a_leg_that_is_over_stays_over(what: Move) -> None:
    assert all(after in OVER for before, after in MOVES[what].items() if before in OVER)


def test_every_phase_leads_to_an_end() -> None:
    reached: set[str] = {"ended"}
    for _ in PHASES:
        reached |= {b for moves in MOVES.values() for b, after in moves.items() if after in reached}
    assert reached == set(PHASES)


def test_every_leg_can_be_ended_once_it_has_started() -> None:
    assert set(MOVES["end"]) == set(PHASES) - {"new"}


def test_nobody_waits_for_a_handler_that_cannot_go_on() -> None:
    assert set(PHASES) - {"new", "running", "finishing", "unwinding"} == SETTLED


def started(body: Any, *, parked: bool = False, unwind_seconds: float = 5.0) -> HandlerTask:
    task = HandlerTask("Tool 'tool'", unwind_seconds)

    async def whole() -> Any:
        task.begin(parked=parked)
        return await body()

    task.start(whole())
    return task


async def test_a_handler_that_returns_has_ended() -> None:
    async def body() -> str:
        return "done"

    task = started(body)
    await soon(task.settled())
    assert task.phase == "ended"
    assert task.task is not None
    assert task.task.result() == "done"


async def test_a_handler_is_alone_until_it_starts_a_task_or_waits() -> None:
    seen: list[bool] = []

    async def body() -> None:
        seen.append(task.alone)
        child = asyncio.create_task(asyncio.sleep(0))
        seen.append(task.alone)
        await child

    task = HandlerTask("Tool 'tool'")

    async def whole() -> None:
        task.begin(parked=False)
        await body()

    task.start(whole())
    await soon(task.settled())
    assert seen == [True, False]
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_a_parked_handler_rests_and_goes_on() -> None:
    went_on = asyncio.Event()
    task = started(went_on.wait, parked=True)
    await asyncio.sleep(0)
    task.suspend(Suspended({}, []), parked=True)
    await soon(task.settled())
    assert task.phase == "resting"
    task.resume()
    went_on.set()
    await soon(task.settled())
    assert task.phase == "ended"


async def test_a_handler_is_cancelled_when_whoever_waits_for_it_is_thrown_away() -> None:
    task = started(asyncio.Event().wait)
    waiting = task.settled()
    waiting.send(None)
    waiting.close()
    await asyncio.sleep(0.01)
    assert task.phase == "ended"
    assert not task.alone
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_the_first_error_is_why_a_leg_ends() -> None:
    task = started(asyncio.Event().wait)
    await asyncio.sleep(0)
    first, second = ValueError("first"), ValueError("second")
    task.fail(first)
    task.fail(second)
    await soon(task.settled())
    assert task.ending is first
    assert task.phase == "ended"


async def test_a_handler_that_will_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    goes_on = asyncio.Event()

    async def body() -> str:
        while not goes_on.is_set():
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    with caplog.at_level(logging.WARNING, "ekiden.rounds"):
        task = started(body, unwind_seconds=0.01)
        await asyncio.sleep(0)
        task.suspend(Suspended({}, []), parked=False)
        await soon(task.settled())
        assert task.phase == "left"
        goes_on.set()
        assert task.task is not None
        await soon(asyncio.wait({task.task}))
        await asyncio.sleep(0)
    assert task.phase == "ended"
    assert ["left behind" in caplog.text, "that is dropped" in caplog.text] == [True, True]


async def test_what_runs_beside_a_handler_ends_before_its_leg_does() -> None:
    ended: list[str] = []

    async def step() -> None:
        await asyncio.sleep(0.02)
        ended.append("step")

    async def body() -> None:
        task.run_beside(step())

    task = HandlerTask("Tool 'tool'")

    async def whole() -> None:
        task.begin(parked=False)
        await body()

    task.start(whole())
    await soon(task.settled())
    assert ended == ["step"]


async def test_whoever_waits_and_is_cancelled_stops_the_leg_but_not_its_steps() -> None:
    ended: list[str] = []

    async def step() -> None:
        await asyncio.sleep(0.02)
        ended.append("step")

    task = started(asyncio.Event().wait)
    await asyncio.sleep(0)
    task.run_beside(step())

    async def wait() -> None:
        await task.settled()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await soon(asyncio.wait({waiting}))
    assert waiting.cancelled()
    assert ended == ["step"]
    assert task.phase == "ended"


async def test_a_parked_handler_that_was_left_behind_is_not_waited_for() -> None:
    fails, ends = asyncio.Event(), asyncio.Event()
    questions = RoundQuestions("Tool 'tool'", {}, None, {"elicitation": {"form": {}}})
    task = HandlerTask("Tool 'tool'", unwind_seconds=0.01)
    leg = Leg(Replay(task, Journal(), questions, lambda: 0.0, parked=True))

    async def beside() -> None:
        await fails.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await leg.ask(ROOTS)  # The client has none: this ends the leg.

    async def handler() -> None:
        branch = asyncio.create_task(beside())
        with contextlib.suppress(asyncio.CancelledError):
            await leg.ask(form_for(bool).ask("Really?"))
        while not ends.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ends.wait()
        await branch

    assert type(await soon(leg.run(handler, {}))) is Suspended
    fails.set()
    async with asyncio.timeout(30):
        while task.phase != "left":
            await asyncio.sleep(0.005)
    try:
        with pytest.raises(MissingCapability):
            await soon(leg.go_on({}, questions.capabilities))
    finally:
        ends.set()
        await asyncio.sleep(0)
