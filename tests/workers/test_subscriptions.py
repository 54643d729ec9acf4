"""Subscriptions over several workers: what any of them changes reaches every listener, of both eras."""

import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.ports import free_port
from tests.cli.driving import Running, eventually, running

from .listeners import Listener, call, listening_2025, listening_2026
from .test_sessions import workers_of

SERVER = Path(__file__).with_name("news_server.py")
URIS = [f"note://{number}" for number in range(30)]
PROMPTS_CHANGED = "notifications/prompts/list_changed"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("news")


def kept_by(store: str) -> Any:
    """A store. All that uses it is run by one worker of xdist, with one set of our workers."""
    return pytest.param(store, marks=pytest.mark.xdist_group(f"news-{store}"))


@pytest.fixture(scope="module", params=[kept_by(store) for store in ("no store", "sqlite", "postgres")])
def store(request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """The settings of the workers."""
    if request.param == "sqlite":
        return {"STORE": f"sqlite:///{folder}/news.db"}
    return {"STORE": request.getfixturevalue("_migrated")} if request.param == "postgres" else {}


@pytest.fixture(scope="module")
def three(folder: Path, port: int, store: dict[str, str]) -> Iterator[Running]:
    arguments = ("run", str(SERVER), "--workers", "3", "--port", str(port), "--log-level", "warning")
    with running(folder / "log", *arguments, forks=False, **store) as command:
        command.await_saying("is served at")
        eventually(lambda: len(workers_of(command)) == 3, "three workers")
        yield command


@asynccontextmanager
async def listeners(port: int) -> AsyncGenerator[list[Listener], None]:
    """Four of each era, at whichever workers the kernel chooses."""
    async with AsyncExitStack() as stack:
        streams = [listening_2026(port, URIS) for _ in range(4)] + [
            listening_2025(port, URIS) for _ in range(4)
        ]
        yield [await stack.enter_async_context(stream) for stream in streams]


async def test_thirty_of_thirty_changes_of_three_workers_reach_every_listener(
    three: Running, port: int
) -> None:
    async with listeners(port) as hearing:
        changers = {
            await call(port, "change_in_a_thread" if number % 2 else "change", uri=uri)
            for number, uri in enumerate(URIS)
        }
        await call(port, "learn", name="another")
        for listener in hearing:
            await listener.until_heard(uris=30, lists=1)
        assert len(changers) > 1, "all changes were made by one worker"
        assert [sorted(set(listener.uris)) for listener in hearing] == [sorted(URIS)] * 8
        assert all(count <= 2 for listener in hearing for count in Counter(listener.uris).values())
        assert [listener.lists for listener in hearing] == [{PROMPTS_CHANGED}] * 8


async def test_thirty_of_thirty_reach_every_listener_while_a_worker_is_killed(
    three: Running, port: int
) -> None:
    async with listeners(port) as hearing:
        changers = [await call(port, "change", uri=uri) for uri in URIS[:10]]
        victim = changers[-1]
        surviving = [listener for listener in hearing if listener.pid != victim]
        for listener in surviving:
            await listener.until_heard(uris=10)
        os.kill(victim, signal.SIGKILL)
        changers += [await call(port, "change", uri=uri) for uri in URIS[10:20]]
        three.await_saying(f"worker {victim} was ended by SIGKILL")
        eventually(lambda: len(workers_of(three) - {victim}) == 3, "a new worker")
        changers += [await call(port, "change", uri=uri) for uri in URIS[20:]]
        assert surviving, "all listeners were at the worker that was killed"
        for listener in surviving:
            await listener.until_heard(uris=30)
        assert [sorted(set(listener.uris)) for listener in surviving] == [sorted(URIS)] * len(surviving)
        assert victim not in changers[10:]
