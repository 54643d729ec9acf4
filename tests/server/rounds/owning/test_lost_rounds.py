"""A caller who is gone, and a round that somebody else has taken over."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from ekiden import StoreUnavailable
from ekiden.rounds.outcome import Complete, Failed
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.enduring import to_the_end
from ekiden.server.rounds.owning.once import Once
from ekiden.signals import Ended
from ekiden.stores.memory import MemoryStore
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


async def test_a_claim_whose_reply_comes_too_late_is_not_used(tmp_path: Path) -> None:
    """The store has given the round away again, and somebody else runs its steps."""
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=0.2, keep=100.0) for store in stores)
    mine, theirs = (RoundClaim(once, "flow.1", "token", {}) for once in (one, other))
    claim, claimed, told = stores[0].claim, asyncio.Event(), asyncio.Event()

    async def late(*arguments: Any, **more: Any) -> Any:
        found = await claim(*arguments, **more)
        claimed.set()
        await soon(told.wait())
        return found

    stores[0].claim = late  # type: ignore[method-assign]  # the fault that is tested
    owning = asyncio.create_task(mine.own())
    await soon(claimed.wait())
    await soon(theirs.own())
    told.set()
    done, _ = await asyncio.wait({owning}, timeout=0.5)
    assert not done, "somebody else has the round, and has not ended it"
    assert await soon(theirs.finish(Complete({"theirs": True}))) == Complete({"theirs": True})
    with pytest.raises(Ended) as ended:
        await soon(owning)
    assert ended.value.outcome == Complete({"theirs": True})
    for store in stores:
        await store.close()


async def test_who_lost_a_round_to_somebody_who_still_runs_it_has_no_result(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=0.2, keep=100.0) for store in stores)
    mine, theirs = (RoundClaim(once, "flow.1", "token", {}) for once in (one, other))
    await mine.own()
    renew = stores[0].renew

    async def never(*arguments: Any, **more: Any) -> Any:
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


async def test_a_round_whose_row_is_being_written_is_not_lost_and_renewed_soon() -> None:
    """The store leaves it out of its answer, and renews the others."""
    store = MemoryStore()
    renew, tries = store.renew, list[int]()

    async def without_the_first(claims: Any, *, until: float) -> Any:
        tries.append(len(claims))
        written = {"flow.1"} if len(tries) <= 3 else set[str]()
        return await renew({key: claim for key, claim in claims.items() if key not in written}, until=until)

    store.renew = without_the_first  # type: ignore[method-assign]  # the fault that is tested
    once = Once(store, time.time, lease=0.3, keep=100.0)
    claims = [RoundClaim(once, f"flow.{number}", "token", {}) for number in (1, 2)]
    for claim in claims:
        await claim.own()
    async with asyncio.timeout(10.0):
        while len(tries) < 5:
            await asyncio.sleep(0.01)
    assert not any(claim.lost for claim in claims)
    assert all(claim.is_sure() for claim in claims)
    assert set(tries) == {2}, "all are renewed together"
    for claim in claims:
        await claim.release()
