"""What the listeners of a task are told is looked up once for all of them."""

import asyncio
from typing import Any, cast

from ekiden.server.tasks.methods import TaskMethods
from ekiden.server.tasks.news import NewsDesk, TaskNews
from ekiden.wire.json import decode, encode
from ekiden.wire.tasks import TaskView, as_params


async def test_all_who_ask_at_once_share_one_look_and_who_asks_later_gets_a_later_one() -> None:
    looks = 0
    going_on = asyncio.Event()

    async def look(task_id: str) -> TaskNews:
        nonlocal looks
        looks += 1
        seen = looks
        await going_on.wait()
        return TaskNews({"taskId": task_id, "seen": seen})

    desk = NewsDesk(look)
    first = [asyncio.create_task(desk.of("t")) for _ in range(300)]
    while not looks:
        await asyncio.sleep(0)
    second = [asyncio.create_task(desk.of("t")) for _ in range(300)]
    going_on.set()
    told = await asyncio.gather(*first, *second)
    assert looks == 2
    assert len({id(each) for each in told[:300]}) == len({id(each) for each in told[300:]}) == 1
    assert [each and each.params["seen"] for each in (told[0], told[300])] == [1, 2]


def test_a_task_as_parameters_is_spelled_as_it_was() -> None:
    task = TaskView(task_id="t", status="working", created_at="a", last_updated_at="b", ttl_ms=None)
    assert decode(encode(as_params(task))) == decode(encode(task))


async def test_others_have_their_turn_while_a_thousand_tasks_of_a_subscription_are_looked_up() -> None:
    class Known:
        def principal_of(self, request: object) -> str:
            return ""

        async def visible(self, task_id: str, principal: str) -> None:
            return None

    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    methods = TaskMethods.__new__(TaskMethods)
    methods._tasks = cast("Any", Known())  # pyright: ignore[reportPrivateUsage]
    others = asyncio.create_task(take_turns())
    assert not await methods.feeds(cast("Any", None), [str(number) for number in range(1000)])
    others.cancel()
    assert turns >= 50
