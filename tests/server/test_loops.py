"""The loop that runs here is the one that asyncio would name."""

import asyncio
import os
import threading

import pytest

from ekiden.server.loops import running_loop


async def is_right() -> bool:
    return running_loop() is asyncio.get_running_loop() and running_loop() is asyncio.get_running_loop()


def test_it_is_right_in_one_loop_after_the_other() -> None:
    assert asyncio.run(is_right())
    assert asyncio.run(is_right())


def test_there_is_none_where_none_runs() -> None:
    asyncio.run(is_right())
    with pytest.raises(RuntimeError, match="no running event loop"):
        running_loop()


async def test_each_thread_has_its_own() -> None:
    assert await is_right()
    assert await asyncio.to_thread(lambda: asyncio.run(is_right()))
    assert await is_right()


def test_many_threads_leave_nothing_behind() -> None:
    right: list[bool] = []
    threads = [threading.Thread(target=lambda: right.append(asyncio.run(is_right()))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert right == [True] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_forked_process_does_not_take_the_loop_of_its_parent() -> None:
    assert await is_right()
    child = os.fork()
    if child == 0:
        try:
            running_loop()
        except RuntimeError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
