"""Keys are rotated, worker by worker, while calls are under way: no round is lost."""

import asyncio
from collections import Counter

from ekiden.server.sealing.keys import new_key

from .calls import Call, post
from .cluster import Cluster, Worker

REFUSED = {
    "code": -32602,
    "message": "Invalid or expired requestState: restart the call",
    "data": {"ekiden/next": "restart_call"},
}


def sealed_by(token: str) -> str:
    """The part of a token that names its key."""
    return token[: token.rindex(".")]


async def restart(worker: Worker, keys: str) -> None:
    worker.stop()
    worker.start(EKIDEN_KEYS=keys)
    await worker.ready()


async def test_three_phases_lose_no_round(workers: Cluster, key: str) -> None:
    new = new_key()
    phases = [f"{key},{new}", f"{new},{key}", new]
    calls = [Call("ten", f"call-{number}") for number in range(6)]
    seals: list[set[str]] = []

    async def one_round(turn: int) -> None:
        await asyncio.gather(*(call.round(workers[number + turn]) for number, call in enumerate(calls)))
        seals.append({sealed_by(call.state) for call in calls})

    await one_round(0)
    oldest = [call.request() for call in calls]
    for turn in range(1, 11):
        if turn <= 9:  # Three phases of three workers, between the first nine pairs of rounds.
            await restart(workers[turn - 1], phases[(turn - 1) // 3])
        await one_round(turn)

    for call in calls:
        assert call.report["answers"] == [f"{call.name}/{number}" for number in range(1, 11)]
        assert set(workers.steps(call.name).values()) == {1}
    old_seal, new_seal = seals[0], seals[-1]
    assert len(old_seal) == len(new_seal) == 1
    assert seals[:4] == [old_seal] * 4, "in the first phase the new key seals nothing"
    assert seals[4:6] == [old_seal | new_seal] * 2, "in the second phase both seal"
    assert seals[6:] == [new_seal] * 5, "after it the old key seals nothing"
    for worker in workers.workers:  # And it is really gone.
        refusals = [await post(worker, request) for request in oldest]
        assert [refusal["error"] for refusal in refusals] == [REFUSED] * len(calls)
        workers.refusals += len(calls)


async def test_a_key_that_seals_before_all_know_it_loses_rounds(workers: Cluster, key: str) -> None:
    """Why there are three phases."""
    await restart(workers[0], f"{new_key()},{key}")
    call = Call("ten", "hasty")
    await call.round(workers[0])

    refused = await post(workers[1], call.request())

    assert refused["error"] == REFUSED
    workers.refusals += 1
    assert workers.steps("hasty") == Counter()
