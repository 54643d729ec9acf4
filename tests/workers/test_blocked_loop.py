"""A step that blocks the event loop of its worker for several leases: the worker keeps its round."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from .calls import Call, post
from .cluster import LEASE_SECONDS, Cluster, cluster, gate


@pytest.fixture(params=["sqlite", "postgres"])
def three(request: pytest.FixtureRequest, key: str, tmp_path: Path) -> Iterator[Cluster]:
    """Three workers with a store of either kind."""
    store = True if request.param == "sqlite" else request.getfixturevalue("database")
    with cluster(tmp_path, key, store=store) as made:
        yield made


async def test_a_step_that_blocks_its_event_loop_is_not_begun_again(three: Cluster) -> None:
    async with gate("one") as door:
        call = Call("blocks", "blocked", gate=door.port)
        await call.round(three[0])
        first = asyncio.create_task(post(three[0], call.request()))
        owner = await door.beginning_of("one")
        repeats = [asyncio.create_task(post(worker, call.request())) for worker in three.workers[1:]]
        done, _ = await asyncio.wait(repeats, timeout=4 * LEASE_SECONDS)
        assert not done, "while the step runs there is nothing to reply"
        door.open("one")
        replies = await asyncio.gather(first, *repeats)
        assert door.began == [("one", owner), ("two", owner)]
    assert all(reply["result"] == replies[0]["result"] for reply in replies)
    (owners,) = [worker for worker in three.workers if worker.pid == owner]
    assert "The event loop is blocked" in owners.log.read_text()
