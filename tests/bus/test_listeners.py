"""Listeners hear of changes in their own event loop, as long as it lives."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ekiden.bus.listeners import Listeners
from ekiden.tasks.store import Signal

SIGNAL = Signal("t1", None)


async def test_who_watches_in_another_loop_is_told_there() -> None:
    listeners, told = Listeners[Signal](), list[Signal]()
    heard = asyncio.Event()

    def hear(signal: Signal) -> None:
        assert asyncio.get_running_loop() is mine
        told.append(signal)
        heard.set()

    mine = asyncio.get_running_loop()
    listeners.add(hear)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(listeners.tell, SIGNAL).result(10)
    await asyncio.wait_for(heard.wait(), 10)
    assert told == [SIGNAL]


def test_who_watched_in_a_loop_that_is_closed_is_forgotten() -> None:
    listeners, told = Listeners[Signal](), list[Signal]()

    async def watch() -> None:
        listeners.add(told.append)

    asyncio.run(watch())
    assert listeners
    listeners.tell(SIGNAL)
    assert not listeners
    assert told == []


async def test_who_does_not_watch_any_more_is_not_told() -> None:
    listeners, told = Listeners[Signal](), list[Signal]()
    stop = listeners.add(told.append)
    listeners.tell(SIGNAL)
    stop()
    listeners.tell(SIGNAL)
    assert told == [SIGNAL]
