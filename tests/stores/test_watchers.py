"""Watchers hear of changes in their own event loop, as long as it lives."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ekiden.stores.watchers import Watchers
from ekiden.tasks.store import Signal

SIGNAL = Signal("t1", None)


async def test_who_watches_in_another_loop_is_told_there() -> None:
    watchers, told = Watchers(), list[Signal]()
    heard = asyncio.Event()

    def hear(signal: Signal) -> None:
        assert asyncio.get_running_loop() is mine
        told.append(signal)
        heard.set()

    mine = asyncio.get_running_loop()
    watchers.add(hear)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(watchers.tell, SIGNAL).result(10)
    await asyncio.wait_for(heard.wait(), 10)
    assert told == [SIGNAL]


def test_who_watched_in_a_loop_that_is_closed_is_forgotten() -> None:
    watchers, told = Watchers(), list[Signal]()

    async def watch() -> None:
        watchers.add(told.append)

    asyncio.run(watch())
    assert watchers
    watchers.tell(SIGNAL)
    assert not watchers
    assert told == []


async def test_who_does_not_watch_any_more_is_not_told() -> None:
    watchers, told = Watchers(), list[Signal]()
    stop = watchers.add(told.append)
    watchers.tell(SIGNAL)
    stop()
    watchers.tell(SIGNAL)
    assert told == [SIGNAL]
