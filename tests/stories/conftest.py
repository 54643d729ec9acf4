"""Tests of this folder do not wait for timers."""

from tests.simulation.virtual_time import _threads_are_counted, pytest_asyncio_loop_factories

__all__ = ["_threads_are_counted", "pytest_asyncio_loop_factories"]
