"""Many callers, one statement: nobody is forgotten, and nobody fails for another."""

import asyncio
from collections.abc import Sequence

import pytest

from ekiden.errors import StoreRefused, StoreUnavailable
from ekiden.stores.postgres.signals import payloads
from ekiden.stores.postgres.together import Together
from ekiden.tasks.store import Signal


class Database:
    """Doubles numbers, and writes down who came together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def double(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        await self.open.wait()
        if any(number < 0 for number in numbers):
            raise StoreRefused("negative")
        if 13 in numbers:
            raise StoreUnavailable("away")
        return [2 * number for number in numbers]


async def test_who_is_alone_goes_at_once_and_who_comes_meanwhile_goes_together() -> None:
    database = Database()
    together = Together(database.double, lanes=1)
    database.open.clear()
    first = asyncio.create_task(together.do(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert database.batches == [[1]]
    others = [asyncio.create_task(together.do(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    database.open.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8]
    assert database.batches == [[1], [2, 3, 4]]


async def test_nobody_is_forgotten_who_comes_in_the_moment_in_which_a_lane_ends() -> None:
    database = Database()
    together = Together(database.double, lanes=2)
    async with asyncio.timeout(10):
        for number in range(20, 220):
            first = asyncio.create_task(together.do(number, "key"))
            for _ in range(number % 7):
                await asyncio.sleep(0)
            assert await together.do(number + 1, "key") == 2 * number + 2
            assert await first == 2 * number
    await together.settle()


async def test_two_of_one_key_never_share_a_statement_and_keep_their_order() -> None:
    database = Database()
    together = Together(database.double, lanes=1)
    await asyncio.gather(*(together.do(number, f"key {number % 2}") for number in range(6)))
    assert database.batches == [[0, 1], [2, 3], [4, 5]]


async def test_what_is_refused_fails_alone() -> None:
    together = Together(Database().double, lanes=1)
    ended = await asyncio.gather(*(together.do(n) for n in (1, -2, 3)), return_exceptions=True)
    assert [type(each) for each in ended] == [int, StoreRefused, int]


async def test_a_database_that_is_away_is_away_for_all_and_the_next_may_try_again() -> None:
    together = Together(Database().double, lanes=1)
    ended = await asyncio.gather(*(together.do(n) for n in (1, 13)), return_exceptions=True)
    assert [type(each) for each in ended] == [StoreUnavailable, StoreUnavailable]
    assert await together.do(1) == 2


async def test_what_a_caller_asked_for_who_left_is_done_all_the_same() -> None:
    database = Database()
    together = Together(database.double, lanes=1)
    leaving = asyncio.create_task(together.do(5))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await together.settle()
    assert database.batches == [[5]]


async def test_who_left_is_not_told_that_the_database_is_away() -> None:
    together = Together(Database().double, lanes=1)
    leaving, other = asyncio.create_task(together.do(13)), asyncio.create_task(together.do(14))
    await asyncio.sleep(0)
    leaving.cancel()
    ended = await asyncio.gather(leaving, other, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError, StoreUnavailable]
    await together.settle()
    assert await together.do(1) == 2


async def test_large_items_do_not_come_together() -> None:
    database = Database()
    together = Together(database.double, lanes=1)
    sizes = {1: 3 * 2**20, 2: 3 * 2**20, 3: 100, 4: 50 * 2**20}
    await asyncio.gather(*(together.do(number, size=size) for number, size in sizes.items()))
    assert database.batches == [[1, 3], [2], [4]]


def test_news_fit_into_a_notification_each() -> None:
    signals = [Signal(f"{number:032}", float(number)) for number in range(1000)]
    told = payloads("origin", signals)
    assert all(len(payload.encode()) < 8000 for payload in told)
    assert sum(payload.count(".0]") for payload in told) == 1000
    assert payloads("origin", []) == []
    assert payloads("origin", [Signal("x" * 9000, None)]) == []


async def test_when_the_loop_ends_nobody_is_left_waiting() -> None:
    database = Database()
    together = Together(database.double, lanes=1)
    database.open.clear()
    callers = [asyncio.create_task(together.do(1))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers += [asyncio.create_task(together.do(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    lanes = asyncio.all_tasks() - {asyncio.current_task(), *callers}
    for lane in lanes:
        lane.cancel()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 3
    assert database.batches == [[1]], "those who waited for a turn have done nothing"
