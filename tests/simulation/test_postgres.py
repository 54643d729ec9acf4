"""A few seeds on a real Postgres; `make simulate STORE=postgres` runs more."""

from collections.abc import Iterator

import pytest

from scripts.postgres import Postgres
from tests.simulation import databases
from tests.simulation.run import MODES_WITH_STORE, Tally, run_seed

SEEDS = {"rounds": 30, "tasks": 20}


@pytest.fixture(scope="module")
def simulated(postgres: Postgres) -> Iterator[None]:
    with databases.in_use(postgres.server_url):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
@pytest.mark.xdist_group("simulated postgres")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", MODES_WITH_STORE)
def test_every_law_holds_on_postgres(mode: str) -> None:
    tally = Tally()
    for seed in range(SEEDS[mode]):
        run_seed(seed, mode, tally, "postgres")
    assert not tally.broken, tally.broken[0].found
