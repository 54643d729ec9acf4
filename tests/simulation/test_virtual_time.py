import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio
import pytest

from tests.simulation.virtual_time import VirtualTimeLoop, _threads_are_counted, clock

__all__ = ["_threads_are_counted"]

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


async def seconds_of(waiting: Coroutine[Any, Any, Any]) -> float:
    """How long it took, by the clock of the loop."""
    began = asyncio.get_running_loop().time()
    await waiting
    return asyncio.get_running_loop().time() - began


def test_an_hour_is_not_waited_for_and_code_takes_no_time() -> None:
    async def main() -> None:
        began = clock()
        async with asyncio.timeout(0.01):
            time.sleep(0.05)
            await asyncio.sleep(0.005)
        assert await seconds_of(asyncio.sleep(3600)) == pytest.approx(3600)
        assert clock() - began == pytest.approx(3600.005)

    began = time.monotonic()
    run(main)
    assert time.monotonic() - began < 60


def test_the_work_of_a_store_takes_no_time() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1, "ekiden-sqlite") as store:
            async with asyncio.timeout(0.01):
                await asyncio.wrap_future(store.submit(time.sleep, 0.05))

    run(main)


def test_a_thread_of_a_handler_takes_its_time() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1, "ekiden-handler") as handlers:
            loop = asyncio.get_running_loop()
            assert await seconds_of(loop.run_in_executor(handlers, time.sleep, 0.05)) > 0.04  # type: ignore[arg-type]
            for _ in range(200):  # One that ends at once is heard before any timer.
                async with asyncio.timeout(60):
                    await loop.run_in_executor(handlers, int)

    run(main)


def test_a_thread_of_somebody_else_is_waited_for() -> None:
    async def main() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()

        def say() -> None:
            time.sleep(0.05)
            loop.call_soon_threadsafe(heard.set)

        threading.Thread(target=say).start()
        async with asyncio.timeout(60):
            await heard.wait()

    run(main)


def test_a_socket_is_waited_for() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            timer = threading.Timer(0.05, theirs.send, [b"x"])
            timer.start()
            async with asyncio.timeout(60):
                return await asyncio.get_running_loop().sock_recv(ours, 1)

    assert run(main) == b"x"


def test_a_scope_that_asks_in_every_pass_does_not_stop_the_clock() -> None:
    async def main() -> None:
        with anyio.move_on_after(0.05), anyio.CancelScope(shield=True):
            await asyncio.sleep(0.2)

    run(main)


def test_a_thread_that_ends_while_it_is_looked_for_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop, ended, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def speaks() -> None:
            may_end.wait(30)
            loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=speaks)
        everybody = threading.enumerate

        def looked_for() -> list[threading.Thread]:
            may_end.set()
            thread.join(30)
            return everybody()

        thread.start()
        monkeypatch.setattr(threading, "enumerate", looked_for)
        async with asyncio.timeout(300):
            await ended.wait()

    run(main)
