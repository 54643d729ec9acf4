"""A write that lost against another one is tried again: further and further apart, and not for ever."""

import asyncio
import itertools

import pytest

from ekiden.errors import StoreUnavailable
from ekiden.stores.postgres import tasks as postgres
from tests.simulation.virtual_time import VirtualTimeLoop


def test_tries_are_further_and_further_apart() -> None:
    async def pauses() -> list[float]:
        patience, time = postgres._Patience("a row", 60.0), asyncio.get_running_loop().time
        moments = [time()]
        for _ in range(12):
            await patience.wait()
            moments.append(time())
        return [later - sooner for sooner, later in itertools.pairwise(moments)]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        waited = runner.run(pauses())
    expected = [min(postgres._SOON * 2**number, postgres._SELDOM) for number in range(12)]
    assert waited == pytest.approx(expected, abs=0.001)
    assert expected[-1] == postgres._SELDOM


async def test_tries_end() -> None:
    with pytest.raises(StoreUnavailable, match="a row is being written by others all the time"):
        await postgres._Patience("a row", -1.0).wait()
