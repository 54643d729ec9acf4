"""A caller who is gone, and a round that somebody else has taken over."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from ekiden import StoreUnavailable
from ekiden.rounds.outcome import Complete, Failed
from ekiden.server.rounds.enduring import to_the_end
from ekiden.server.rounds.once import Once, RoundClaim
from ekiden.stores.sqlite import SQLiteStore
from tests.acceptance.driving import soon


async def test_what_a_caller_wanted_is_done_though_he_is_gone_and_its_failure_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    caller = asyncio.create_task(to_the_end(work))
    for _ in range(2):  # However often.
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.wait({caller}, timeout=0.05)
    assert not caller.done(), "the work is not done"
    with caplog.at_level(logging.WARNING):
        work.set_exception(StoreUnavailable("the disk is full"))
        with pytest.raises(asyncio.CancelledError):
            await soon(caller)
    assert "the disk is full" in caplog.text


async def test_who_lost_a_round_to_somebody_who_still_runs_it_has_no_result(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=0.2, keep=100.0) for store in stores)
    mine, theirs = (RoundClaim(once, "flow.1", "token", {}) for once in (one, other))
    await mine.own()
    renew = stores[0].renew

    async def never(*arguments: Any, **more: Any) -> bool:
        raise StoreUnavailable("frozen")

    stores[0].renew = never  # type: ignore[method-assign]  # the fault that is tested
    await soon(theirs.own())
    stores[0].renew = renew  # type: ignore[method-assign]  # it is over
    lost = await soon(mine.finish(Complete({"mine": True})))
    assert isinstance(lost, Failed)
    assert lost.error.code == -32603
    assert await soon(theirs.finish(Complete({"theirs": True}))) == Complete({"theirs": True})
    for store in stores:
        await store.close()
