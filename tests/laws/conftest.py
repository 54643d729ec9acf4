"""No test of this folder may hang, waits for its timers, or sees what the steps of another noted."""

import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ekiden.server import handlers
from ekiden.stores.memory import MemoryStore
from ekiden.stores.sqlite import SQLiteStore
from tests.laws import steps
from tests.laws.driving import Faulty, settled
from tests.log_errors import _no_error_is_logged
from tests.simulation.virtual_time import _threads_are_counted, pytest_asyncio_loop_factories

__all__ = ["_no_error_is_logged", "_threads_are_counted", "pytest_asyncio_loop_factories"]

LONGEST = 30


@pytest.fixture(autouse=True)
def _bounded() -> Generator[None, None, None]:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"still running after {LONGEST} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EKIDEN_KEYS", "EKIDEN_KEYS_FILE", "EKIDEN_STORE"):
        monkeypatch.delenv(name, raising=False)
    steps.forget()


@pytest.fixture
def _threads_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop stands still until a thread has begun: no scope cuts it before, on any machine."""
    begun = threading.Event()
    contained, in_thread = handlers._contained, handlers._in_thread

    def begins(*arguments: Any, **keywords: Any) -> Any:
        begun.set()
        return contained(*arguments, **keywords)

    def starts(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        def runs(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            finally:
                begun.set()  # It may have found that it must not begin.

        begun.clear()
        thread = in_thread(runs, *arguments, **keywords)
        begun.wait(LONGEST)
        return thread

    monkeypatch.setattr(handlers, "_contained", begins)
    monkeypatch.setattr(handlers, "_in_thread", starts)


@pytest.fixture(params=["nothing", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What a server remembers its rounds in."""
    if request.param == "nothing":
        return None
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/rounds.db"


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that several servers have in common."""
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/rounds.db"


@pytest.fixture(params=["memory", "sqlite"])
async def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Faulty, None]:
    """A store that fails when told to, and in the end fails whoever still waits for it."""
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "rounds.db")
    made = Faulty(store)
    yield made
    made.away = True
    await settled(1, seconds=0.5)
    await store.close()
