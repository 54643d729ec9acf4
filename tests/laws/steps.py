"""Steps that note when they begin and end. They capture nothing: what they share is of this module."""

import asyncio
import threading
import time
from typing import Any

noted: list[str] = []
"""What the steps of this test did, in order."""
_tests = 0
"""How many tests there were: a thread that outlives its test notes nothing in the next."""
gates: dict[str, asyncio.Event] = {}
"""What `held` waits for."""
doors: dict[str, threading.Event] = {}
"""What `held_thread` waits for."""


def forget() -> None:
    """Nothing has happened yet."""
    global _tests
    _tests += 1
    noted.clear()
    gates.clear()
    doors.clear()


def begun(what: Any) -> int:
    """How often a step began."""
    return noted.count(f"begin {what}")


def gate(what: str) -> asyncio.Event:
    """Set it to let `held(what)` end."""
    return gates.setdefault(what, asyncio.Event())


def door(what: str) -> threading.Event:
    """Set it to let `held_thread(what)` end."""
    return doors.setdefault(what, threading.Event())


async def until_begun(what: Any, times: int = 1) -> None:
    """Wait until a step has begun."""
    async with asyncio.timeout(30):
        while begun(what) < times:
            await asyncio.sleep(0.005)


async def until_ended(what: Any) -> None:
    """Wait until a step has ended."""
    async with asyncio.timeout(30):
        while f"end {what}" not in noted:
            await asyncio.sleep(0.005)


async def quick(what: str) -> str:
    noted.append(f"begin {what}")
    noted.append(f"end {what}")
    return f"did {what}"


def plain(what: str) -> str:
    noted.append(f"begin {what}")
    noted.append(f"end {what}")
    return f"did {what}"


async def lasting(what: str, seconds: float) -> str:
    noted.append(f"begin {what}")
    await asyncio.sleep(seconds)
    noted.append(f"end {what}")
    return what


def lasting_thread(what: str, seconds: float) -> str:
    test = _tests
    noted.append(f"begin {what}")
    time.sleep(seconds)
    if test == _tests:
        noted.append(f"end {what}")
    return what


async def stubborn(what: str, seconds: float) -> str:
    """Swallows its cancellation."""
    noted.append(f"begin {what}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        noted.append(f"swallowed {what}")
    return f"late {what}"


async def tidying(what: str, seconds: float) -> str:
    """Takes a while to be cancelled."""
    noted.append(f"begin {what}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(0.02)
        noted.append(f"tidied {what}")
        raise
    return what


async def leaves(what: str) -> str:
    """Cancels its own task, and feels it."""
    noted.append(f"begin {what}")
    _cancel()
    await asyncio.sleep(5)
    return what


async def leaves_and_raises(what: str) -> str:
    """Cancels its own task, and does not wait for it to come."""
    noted.append(f"begin {what}")
    _cancel()
    raise asyncio.CancelledError


async def leaves_and_returns(what: str) -> str:
    """Cancels its own task in the last moment."""
    noted.append(f"begin {what}")
    _cancel()
    return what


def _cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def held(what: str) -> str:
    noted.append(f"begin {what}")
    await gate(what).wait()
    noted.append(f"end {what}")
    return f"did {what}"


def held_thread(what: str) -> str:
    test = _tests
    noted.append(f"begin {what}")
    door(what).wait(5)
    if test == _tests:
        noted.append(f"end {what}")
    return f"did {what}"


async def fails(what: str, seconds: float = 0.0) -> str:
    noted.append(f"begin {what}")
    await asyncio.sleep(seconds)
    raise ValueError(what)


async def charge(amount: float, currency: str = "EUR") -> str:
    noted.append(f"begin charge {amount}")
    return f"charged {amount} {currency}"


async def charge_card(amount: float, currency: str = "EUR") -> str:
    noted.append(f"begin charge_card {amount}")
    return f"charged {amount} {currency}"


async def visa() -> str:
    noted.append("begin visa")
    return "visa"


async def backup() -> str:
    noted.append("begin backup")
    return "backup"
