"""Work that goes on although its caller is cancelled or the store is unavailable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ekiden.errors import StoreUnavailable
from ekiden.tasks.leases.renewing import answer_of

__all__ = ["insist", "to_the_end"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


async def to_the_end(work: "asyncio.Future[T]") -> T:
    """Wait until the work is done. If the caller is cancelled meanwhile, that is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled() and (problem := work.exception()) is not None:
        _log.warning("The store failed for a caller that was cancelled: %s", problem)
    raise cancelled


async def insist(attempt: Callable[[], Awaitable[T]], go_on: Callable[[float], bool], round_id: str) -> T:
    """Try until the store answers. `go_on` gets the seconds since the start and says whether to try again."""
    pause, since = _FIRST_PAUSE, asyncio.get_running_loop().time()
    while True:
        try:
            return await answer_of(attempt())
        except StoreUnavailable as error:
            if not go_on(asyncio.get_running_loop().time() - since):
                raise
            if pause == _FIRST_PAUSE:
                _log.warning("Round %s waits for the store: %s", round_id, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
