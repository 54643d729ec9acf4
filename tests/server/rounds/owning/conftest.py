"""Tests of leases do not wait for timers. Other tests here wait for real threads."""

import asyncio
from collections.abc import Callable

import pytest

from tests.log_errors import _no_error_is_logged
from tests.simulation.virtual_time import VirtualTimeLoop, _threads_are_counted

__all__ = ["_no_error_is_logged", "_threads_are_counted"]


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name in ("test_lease.py", "test_watching.py"):
        return {"virtual": VirtualTimeLoop}
    return {"real": asyncio.SelectorEventLoop}
