"""A round that is sent very often, to all workers at once: it is run once, and everybody gets its reply."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from .calls import Call, Json, post
from .cluster import LEASE_SECONDS, Cluster, cluster, gate
from .conftest import watched

PATIENCE = 240.0


@pytest.fixture(params=["sqlite", "postgres"])
def three(request: pytest.FixtureRequest, key: str, tmp_path: Path) -> Iterator[Cluster]:
    """Three workers with a store of either kind."""
    if request.param == "sqlite":
        with cluster(tmp_path, key, store=True) as made:
            yield from watched(made)
    else:
        with cluster(tmp_path, key, store=request.getfixturevalue("database")) as made:
            yield from watched(made)


@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_hundreds_of_duplicates_run_a_step_once(three: Cluster, tool: str) -> None:
    await check_duplicates(three, tool, 300)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["gated", "strict"])
async def test_thousands_of_duplicates_run_a_step_once(three: Cluster, tool: str) -> None:
    await check_duplicates(three, tool, 3000)


async def check_duplicates(three: Cluster, tool: str, count: int) -> None:
    """Send a round so often while its first step is held for several leases."""
    async with gate("one") as door:
        call = Call(tool, f"{tool}-{count}", gate=door.port)
        await call.round(three[0])
        sent = [post(three[n], call.request(), patience=PATIENCE) for n in range(count)]
        waiting = [asyncio.create_task(one) for one in sent]
        await door.beginning_of("one")
        done, _ = await asyncio.wait(waiting, timeout=3 * LEASE_SECONDS)
        assert not done, "while the step runs there is nothing to reply"
        door.open("one")
        replies = await asyncio.gather(*waiting)
        assert len(door.runners("one")) == 1
        for step in ("one", "two", "three"):
            assert len(door.runners(step)) == 1
    check_equal(replies)


def check_equal(replies: list[Json]) -> None:
    assert [reply["error"] for reply in replies if "error" in reply] == []
    assert all(reply["result"] == replies[0]["result"] for reply in replies)
