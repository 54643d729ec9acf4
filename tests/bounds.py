"""Every test ends, and so does the process that runs the tests. What hangs says where its threads stand.

pytest-timeout fails a test that takes too long (`timeout` in pyproject.toml). It stops watching when the test
has failed, and it cannot interrupt everything. So a process whose test goes on after that is ended here, and
so is one that does not end after its last test.
"""

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

_MORE_SECONDS: Final = 120.0
"""For a test that is over its time or has failed: until it has given back what it had."""
_EXIT_SECONDS: Final = 60.0
"""For the process to end after its tests."""
_IDLE_SECONDS: Final = 10.0
"""For threads to end their work after the last test."""


class Bounds:
    """Ends this process if a test goes on for too long."""

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # Tests capture the other one.
        self._is_watching = False

    def _watch(self, seconds: float) -> None:
        self._is_watching = True
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)

    def pytest_timeout_set_timer(self, settings: Any) -> None:
        self._watch(settings.timeout + _MORE_SECONDS)

    def pytest_timeout_cancel_timer(self) -> None:
        self._is_watching = False
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True)
    def pytest_exception_interact(self) -> Iterator[None]:
        """When a test has failed, its fixtures are still to end, and nobody else watches any more."""
        was_watching = self._is_watching
        result = yield
        if was_watching:
            self._watch(_MORE_SECONDS)
        return result

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if not hasattr(config, "workerinput"):  # xdist ends its workers itself.
            self._watch(_EXIT_SECONDS)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Bounds())


@pytest.fixture(autouse=True, scope="session")
def _no_thread_is_left_at_work() -> Iterator[None]:
    """A thread that still works when all tests have ended would keep the process from ending."""
    yield
    deadline = time.monotonic() + _IDLE_SECONDS
    while (left := threads_at_work()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, "threads that still work after the last test:\n" + "\n".join(left)


def threads_at_work() -> list[str]:
    """The threads that Python waits for when it exits, with their stacks; not those that wait for work."""
    frames = sys._current_frames()
    return [
        f"{thread.name}\n{''.join(traceback.format_stack(frame))}"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
        if (frame := frames.get(thread.ident or 0)) is not None and not _waits_for_work(frame)
    ]


def _waits_for_work(frame: FrameType) -> bool:
    """Whether this is an executor's own frame: it runs nothing, and ends with the process."""
    return Path(frame.f_code.co_filename).parts[-3:] == ("concurrent", "futures", "thread.py") and (
        frame.f_code.co_name == "_worker"
    )
