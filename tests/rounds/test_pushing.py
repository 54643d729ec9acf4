"""Calls whose questions are pushed, when they are given up."""

import asyncio
from typing import Any

import pytest

from ekiden.errors import InternalError
from ekiden.rounds.pushing import Push


async def test_a_call_that_is_given_up_begins_nothing_from_that_moment_on() -> None:
    """Also before its request has been told, a pass of the loop later."""
    leave = asyncio.Event()

    async def handler() -> None:
        await leave.wait()

    async def send(*_: Any) -> None:
        raise AssertionError("nothing is asked")

    push = Push("the tool", send, capabilities={}, clock=lambda: 0.0, flow="f")
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
