"""Fixtures of the requirement tests."""

from collections.abc import Iterator

import pytest

from .over_http import Http, http_server
from .over_stdio import Stdio, stdio_server


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    """A client for a server with everything, over HTTP."""
    with http_server() as (client, _):
        yield client


@pytest.fixture(scope="module")
def stdio() -> Iterator[Stdio]:
    """A server with everything, over stdio, for tests that leave nothing behind."""
    with stdio_server() as client:
        yield client


@pytest.fixture
def fresh() -> Iterator[Stdio]:
    """A server with everything, over stdio, for one test."""
    with stdio_server() as client:
        yield client


@pytest.fixture
def bare() -> Iterator[Stdio]:
    """A server with one tool and nothing else, over stdio."""
    with stdio_server("bare") as client:
        yield client
