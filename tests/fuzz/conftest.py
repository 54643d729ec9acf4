"""How many seeds are tried."""

import pytest

SAMPLE = 300
"""What `make test` tries: a second or two."""


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> range:
    """The seeds of this run."""
    return range(request.config.getoption("--fuzz") or SAMPLE)
