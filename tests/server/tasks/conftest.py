"""Tests of this folder do not wait for timers."""

from tests.log_errors import _no_error_is_logged
from tests.simulation.virtual_time import _threads_are_counted, pytest_asyncio_loop_factories

__all__ = ["_no_error_is_logged", "_threads_are_counted", "pytest_asyncio_loop_factories"]
