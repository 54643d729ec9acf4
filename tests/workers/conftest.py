"""Clusters for the tests.

After every test the logs of the workers are read: a fault that no client sees is a fault.
"""

import asyncio
from collections.abc import Iterator

import pytest

from ekiden.server.sealing.keys import new_key

from .calls import Call, post
from .cluster import Cluster, cluster


@pytest.fixture(scope="module")
def key() -> str:
    return new_key()


@pytest.fixture(scope="module")
def lasting(key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("steady"), key) as made:
        yield made


@pytest.fixture(scope="module")
def lasting_stored(key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("stored"), key, store=True) as made:
        yield made


@pytest.fixture
def workers(lasting: Cluster) -> Iterator[Cluster]:
    """Three workers without a store. What a test does to them is mended before the next."""
    yield from watched(lasting)


@pytest.fixture
def stored(lasting_stored: Cluster) -> Iterator[Cluster]:
    """Three workers with a store. What a test does to them is mended before the next."""
    yield from watched(lasting_stored)


@pytest.fixture
def newly_stored(key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers with a store that nobody has used before."""
    with cluster(tmp_path_factory.mktemp("new"), key, store=True) as made:
        yield from watched(made)


def watched(made: Cluster) -> Iterator[Cluster]:
    made.repair()
    before, made.refusals = made.logged(), 0
    yield made
    asyncio.run(tidy(made))
    complaints = made.complaints(since=before)
    assert not complaints, f"the workers logged:\n{complaints}"


async def tidy(made: Cluster) -> None:
    """Let the workers end whatever they still do, so that what they log about it counts for this test."""
    for worker in [worker for worker in made.workers if worker.runs]:
        reply = await post(worker, Call("tidy", "tidy").request())
        assert reply["result"]["structuredContent"] is True
