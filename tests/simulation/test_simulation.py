"""A few hundred seeds in every mode; `make simulate` runs more."""

import asyncio
import time

import pytest

from tests.simulation.case import happen
from tests.simulation.loop import Deadlock, VirtualLoop
from tests.simulation.printing import python_of
from tests.simulation.programs import generate, nodes
from tests.simulation.run import Tally, case_of, run_seed, shown
from tests.simulation.world import WORKER

SEEDS = {"rounds": 240, "tasks": 120, "parked": 60, "push": 60}


@pytest.mark.parametrize("mode", SEEDS)
def test_every_law_holds_in_every_seed(mode: str) -> None:
    tally = Tally()
    for seed in range(SEEDS[mode]):
        run_seed(seed, mode, tally)
    assert not tally.broken, shown(tally.broken[0].seed, mode)


def test_a_seed_is_always_the_same_case() -> None:
    for mode in SEEDS:
        for seed in range(8):
            program, setting = case_of(seed, mode)
            assert (program, setting) == case_of(seed, mode)
            if any(node.kind == "each" for node in nodes(program.body)):
                continue  # `asyncio.as_completed` begins its coroutines in the order of a set.
            one, other = happen(seed, program, setting), happen(seed, program, setting)
            assert [run.trace for run in one.world.runs] == [run.trace for run in other.world.runs]
            assert one.reply == other.reply


def test_a_program_is_printed_as_python() -> None:
    for seed in range(200):
        compile(python_of(generate(seed)), "program", "exec")


def test_a_simulated_day_passes_at_once() -> None:
    loop = VirtualLoop(WORKER)
    began = time.perf_counter()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == pytest.approx(86_400)
    assert time.perf_counter() - began < 1
    loop.close()


def test_a_call_that_waits_for_nothing_is_a_deadlock() -> None:
    loop = VirtualLoop(WORKER)
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_a_simulated_thread_cannot_be_cancelled() -> None:
    loop = VirtualLoop(WORKER)
    called: list[str] = []

    def work() -> None:
        called.append("work")
        loop.thread_seconds = 5.0

    async def main() -> float:
        future = loop.run_in_executor(None, work)
        await asyncio.sleep(1)
        future.cancel()
        while loop.threads:
            await asyncio.sleep(1)
        return loop.time()

    assert loop.run_until_complete(main()) == pytest.approx(6.0, abs=1.1)
    assert called == ["work"]
    loop.close()
