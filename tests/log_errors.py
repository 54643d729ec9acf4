"""What survives its own errors is held to have none."""

import inspect
import logging
from collections.abc import Iterator
from typing import Final

import pytest

__all__ = ["_no_error_is_logged"]

_LOOPS: Final = ("ekiden.bus", "ekiden.server.rounds.owning", "ekiden.stores", "ekiden.tasks")
"""Whose loops go on whatever they raise. Elsewhere an error is the answer to somebody."""


@pytest.fixture(autouse=True)
def _no_error_is_logged(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test in whose course such a loop logs an error has failed, unless it looks at the log itself.

    The next look makes good what the last one missed. So an error is seen nowhere but in the log.
    """
    yield
    if "caplog" not in inspect.signature(request.function).parameters:
        logged = [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]
        assert [each.getMessage() for each in logged if each.name.startswith(_LOOPS)] == []
