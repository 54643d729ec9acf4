"""No test of this folder may hang, not even one whose handler blocks the event loop."""

import signal
import sys
import traceback
from collections.abc import Generator
from types import FrameType

import pytest

from tests.log_errors import _no_error_is_logged
from tests.simulation.virtual_time import _threads_are_counted, pytest_asyncio_loop_factories

__all__ = ["_no_error_is_logged", "_threads_are_counted", "pytest_asyncio_loop_factories"]

LONGEST = 60


@pytest.fixture(autouse=True)
def _bounded() -> Generator[None, None, None]:
    def give_up(_signal: int, frame: FrameType | None) -> None:
        traceback.print_stack(frame, file=sys.stderr)
        pytest.fail(f"still running after {LONGEST} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_keys_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EKIDEN_KEYS", raising=False)
    monkeypatch.delenv("EKIDEN_KEYS_FILE", raising=False)
