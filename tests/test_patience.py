"""Patience counts only time in which the event loop ran."""

import asyncio
import gc
import weakref

from ekiden.patience import Patience
from tests.simulation.loop import VirtualLoop
from tests.simulation.world import WORKER


class _Late:
    def __init__(self) -> None:
        self.at: list[float] = []

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        self.at.append(loop.time())


def late_at(*, blocked_at: float, seconds: float, cancelled_at: float = 99.0) -> list[float]:
    """When patience of two seconds was over, if the loop stood still meanwhile."""
    loop, late = VirtualLoop(WORKER), _Late()

    async def main() -> None:
        patience = Patience(loop, 2.0, late.note, loop)
        loop.call_later(cancelled_at, patience.cancel)
        await asyncio.sleep(blocked_at)
        loop.now += seconds
        await asyncio.sleep(100)

    loop.run_until_complete(main())
    loop.close()
    return [round(each, 1) for each in late.at]


def test_patience_ends_after_its_time() -> None:
    assert late_at(blocked_at=1.0, seconds=0.0) == [2.0]
    assert late_at(blocked_at=1.0, seconds=0.5) == [2.0]


def test_patience_begins_again_if_the_event_loop_stood_still() -> None:
    assert late_at(blocked_at=1.0, seconds=7.0) == [10.0]


def test_patience_that_is_cancelled_never_ends() -> None:
    assert late_at(blocked_at=1.0, seconds=0.0, cancelled_at=1.5) == []
    assert late_at(blocked_at=1.0, seconds=7.0, cancelled_at=9.0) == []


def test_patience_leaves_nothing_to_the_garbage_collector() -> None:
    loop, late = VirtualLoop(WORKER), _Late()
    gone = weakref.ref(late)

    async def main() -> None:
        patience = Patience(loop, 2.0, late.note, loop)
        await asyncio.sleep(3)
        assert late.at
        del patience

    gc.disable()
    try:
        loop.run_until_complete(main())
        late = None  # type: ignore[assignment]  # the last that is held of it
        assert gone() is None
    finally:
        gc.enable()
        loop.close()
