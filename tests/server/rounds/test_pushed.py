"""A call of a client of 2025 that is run again and again by itself is not run all the time."""

import asyncio
import itertools
from collections.abc import Mapping

import pytest

from ekiden.server.rounds import pushed
from tests.simulation.virtual_time import VirtualTimeLoop


def pauses(answers: Mapping[str, object]) -> list[float]:
    """Seconds before each of ten rounds that follow such answers."""

    async def waited() -> list[float]:
        time = asyncio.get_running_loop().time
        moments = [time()]
        for number in range(10):
            await pushed.pause_before(number, answers)
            moments.append(time())
        return [later - sooner for sooner, later in itertools.pairwise(moments)]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(waited())


def test_rounds_that_ask_nothing_are_further_and_further_apart() -> None:
    expected = [min(1.0, pushed._IDLE_SECONDS * 2**number) for number in range(10)]
    assert pauses({}) == pytest.approx(expected, abs=0.001)
    assert expected[-1] == 1.0


def test_what_was_answered_is_gone_on_with_at_once() -> None:
    assert pauses({"k": {"action": "accept"}}) == pytest.approx([0.0] * 10, abs=0.001)
