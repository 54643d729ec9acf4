"""A call of ten rounds, every one of them served by another process than the one before."""

import asyncio
from collections import Counter
from itertools import pairwise

from ekiden.server.sealing.keys import new_key

from .calls import Call, post, questions
from .cluster import Cluster, Worker

STEPS = ["order", "reserve", "pack", "ship", "close"]


def check_ended_right(call: Call, cluster: Cluster) -> None:
    report = call.report
    assert questions(call) == list(range(1, 11))
    assert report["answers"] == [f"{call.name}/{number}" for number in range(1, 11)]
    assert all(report["ticket"] in str(result["inputRequests"]) for result in call.asked)
    assert cluster.steps(call.name) == Counter(STEPS)
    assert report["ran"] == cluster.runners(call.name)
    served = cluster.served(call.name)
    assert len(served) == 11
    assert all(before != after for before, after in pairwise(served))


async def test_a_hundred_calls_of_a_hundred_end_right(workers: Cluster) -> None:
    at_a_time = asyncio.Semaphore(10)

    async def run(number: int) -> Call:
        call, turn = Call("ten", f"call-{number}"), number
        async with at_a_time:
            while call.result is None:
                await call.round(workers[turn])
                turn += 1 + number % 2  # Some go round one way, some the other.
        return call

    calls = await asyncio.gather(*(run(number) for number in range(100)))

    for call in calls:
        check_ended_right(call, workers)


async def test_calls_go_on_while_workers_crash_and_come_back(workers: Cluster) -> None:
    """Between any two rounds a worker is killed. The next round does without it, then it is back."""
    calls = [Call("ten", f"hardy-{number}") for number in range(20)]
    await all_of_them(calls, {call: workers[number] for number, call in enumerate(calls)})
    first = {worker.pid for worker in workers.workers}
    back: Worker | None = None
    killed: list[int] = []

    for gap in range(10):
        victim = workers[gap]
        killed.append(victim.pid)
        victim.kill()
        await all_of_them(calls, {call: choose(workers, call, down=victim, rather=back) for call in calls})
        victim.start()
        await victim.ready()
        back = victim

    for call in calls:
        check_ended_right(call, workers)
        assert set(workers.served(call.name)) & set(killed), "it has outlived a process that served it"
        assert set(workers.served(call.name)) - first, "it was served by one that came back"


async def all_of_them(calls: list[Call], turns: dict[Call, Worker]) -> None:
    """One round of every call at the same time."""
    await asyncio.gather(*(call.round(turns[call]) for call in calls))


def choose(cluster: Cluster, call: Call, *, down: Worker, rather: Worker | None) -> Worker:
    """A living worker that did not serve the last round; best the one that came back just now."""
    able = cluster.but(down, call.last)
    return rather if rather in able else able[0]


async def test_a_round_goes_to_a_process_that_did_not_exist_when_the_call_began(workers: Cluster) -> None:
    call = Call("ten", "survivor")
    for turn in range(4):
        await call.round(workers[turn])
    before = {worker.pid for worker in workers.workers}

    for worker in workers.workers:
        worker.kill()
    for worker in workers.workers:
        worker.start()
    for worker in workers.workers:
        await worker.ready()
    for turn in range(4, 11):
        await call.round(workers[turn])

    check_ended_right(call, workers)
    served = workers.served("survivor")
    assert set(served[:4]) <= before
    assert not set(served[4:]) & before


async def test_a_worker_without_the_key_refuses_the_round_and_the_others_go_on(workers: Cluster) -> None:
    call = Call("ten", "stranger")
    await call.round(workers[0])
    workers[1].kill()
    workers[1].start(EKIDEN_KEYS=new_key())
    await workers[1].ready()

    refused = await post(workers[1], call.request())

    assert refused["error"] == {
        "code": -32602,
        "message": "Invalid or expired requestState: restart the call",
        "data": {"ekiden/next": "restart_call"},
    }
    workers.refusals += 1
    while call.result is None:
        await call.round(next(iter(workers.but(call.last, workers[1]))))
    assert workers.steps("stranger") == Counter(STEPS)
