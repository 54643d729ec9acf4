"""Calls whose questions are pushed, when they are given up."""

import asyncio
from typing import Any

import pytest

from ekiden.errors import InternalError
from ekiden.rounds.pushing import Push
from tests.simulation.virtual_time import VirtualTimeLoop


async def _sends_nothing(*_: Any) -> None:
    raise AssertionError("nothing is asked")


async def test_a_call_that_is_given_up_begins_nothing_from_that_moment_on() -> None:
    """Also before its request has been told, a pass of the loop later."""
    leave = asyncio.Event()

    async def handler() -> None:
        await leave.wait()

    push = Push("the tool", _sends_nothing, capabilities={}, clock=lambda: 0.0, flow="f")
    running = asyncio.create_task(push.run(handler()))
    await asyncio.sleep(0)
    push.give_up(InternalError("too late"))
    for begin in (push.step, push.ask, push.sleep):
        with pytest.raises(asyncio.CancelledError):
            await begin(None)  # type: ignore[operator]
    with pytest.raises(InternalError, match="too late"):
        await running
    leave.set()
    await asyncio.sleep(0)
    push.give_up(InternalError("later still"))


def test_a_checkpoint_costs_a_client_that_waits_no_time_but_lets_others_run() -> None:
    async def main() -> tuple[float, list[str]]:
        happened: list[str] = []

        async def handler() -> None:
            for _ in range(3):
                happened.append("ours")
                await push.pause()

        async def other() -> None:
            happened.append("another's")

        push = Push("the tool", _sends_nothing, capabilities={}, clock=lambda: 0.0, flow="f")
        began = asyncio.get_running_loop().time()
        running = asyncio.create_task(push.run(handler()))
        await asyncio.sleep(0)
        beside = asyncio.create_task(other())
        await running
        await beside
        return asyncio.get_running_loop().time() - began, happened

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        took, happened = runner.run(main())
    assert took < 0.01
    assert happened.index("another's") < 3
