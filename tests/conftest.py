"""For all tests."""

import asyncio
import functools
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import httpcore2
import pytest
import uvicorn.server

from ekiden.client.sessions import eras
from tests import warm
from tests.official import sent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Whoever starts the tests in the background ignores it, and every process inherits that. Those that are
    # started here do not inherit a handler: they begin as at a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 2 * 1024**3
"""Bytes that must be free in memory: the tests need a tenth of them."""


def _is_fit(memory: Path) -> bool:
    """Whether tests may keep their files there: containers give little room, and do not let programs run."""
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        return False
    there = os.statvfs(memory)
    return there.f_bavail * there.f_frsize >= _ROOM and not there.f_flag & os.ST_NOEXEC


if _is_fit(_MEMORY):
    # SQLite waits for the disk at every commit, some milliseconds each: on a disk, tests do so for minutes.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Every HTTP client reads all certificates of the system, which takes longer than most tests.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


class _QuickTicks:
    """asyncio for uvicorn, which looks ten times a second whether it is to stop, and waits again as it stops.

    Many tests stop a server of this process: together they would wait for minutes.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.005))


uvicorn.server.asyncio = _QuickTicks()  # type: ignore[assignment, attr-defined]

pytest_plugins = ["pytester", "tests.bounds", "tests.scheduling", "tests.store_fixtures"]


@pytest.fixture(autouse=True)
def _ports_are_used_again() -> Iterator[None]:
    """What one test found out about an address says nothing to the next: another server may be there."""
    yield
    eras._known.clear()


@pytest.fixture(autouse=True)
def _settings_are_left_as_they_were() -> Iterator[None]:
    """Commands that run in the process of a test set keys for the processes that they start."""
    before = _settings()
    yield
    for name in _settings().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("EKIDEN_")}


sent.watch()


@pytest.fixture
def wrong_messages() -> list[str]:
    """What was wrong with messages that were sent. A test that takes this is about them, and looks itself."""
    return sent.wrong


@pytest.fixture(autouse=True)
def _messages_are_valid(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every message that ekiden sends in a test is valid by the official types of its version."""
    sent.wrong.clear()
    yield
    if "wrong_messages" not in request.fixturenames:
        assert not sent.wrong, "\n".join(sent.wrong)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All tests and modules stay: the garbage collector need not look at them, now and again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, help="how many seeds the tests in tests/fuzz try")
    parser.addoption("--matrix", action="store_true", help="print who works with whom, as the tests found it")


def pytest_sessionfinish() -> None:
    warm.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--matrix"):
        from tests.peers import matrix

        ended = [report for how in ("passed", "failed") for report in terminalreporter.stats.get(how, [])]
        works = matrix.found(ended)
        for table in (matrix.OUR_SERVER, matrix.OUR_CLIENT):
            terminalreporter.section(table)
            terminalreporter.write_line(matrix.render(table, works))
