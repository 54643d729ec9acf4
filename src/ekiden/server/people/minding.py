"""What happens to questions by themselves: reminders, the next person, the end; and tasks that must be told.

One loop in each process that serves pages or runs tasks. Every change is a conditional write, so of several
processes one does it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from ekiden.errors import StoreUnavailable
from ekiden.people import moves
from ekiden.people.moves import Happening
from ekiden.people.record import Inquiry, decode_inquiry
from ekiden.people.store import PeopleRow
from ekiden.server.people.people import Kept, People
from ekiden.wire.printable import printable

__all__ = ["mind", "minded"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
_AT_ONCE: Final = 100
_BESIDE: Final = 10
"""Of those, how many are looked after at the same time: a notifier may take long."""
_PURGE_EVERY: Final = 300
_REST_SECONDS: Final = 60.0
"""How long a question rests that cannot be looked after."""


def minded(
    enter: Callable[[], AbstractAsyncContextManager[object]] | None, people: People
) -> Callable[[], AbstractAsyncContextManager[object]]:
    """The lifespan of a server, with the loop inside it."""

    @asynccontextmanager
    async def entered() -> AsyncGenerator[object, None]:
        async with contextlib.AsyncExitStack() as stack:
            state = None if enter is None else await stack.enter_async_context(enter())
            looking = asyncio.ensure_future(_look_on(people))
            try:
                yield state
            finally:
                looking.cancel()
                await asyncio.wait({looking})

    return entered


async def _look_on(people: People) -> None:
    count = 0
    while True:
        try:
            if count % _PURGE_EVERY == 0:
                await people.store.purge(now=people.clock())
            await mind(people)
        except StoreUnavailable as error:
            _log.warning("Questions to people wait for their store: %s", error)
        except Exception:
            _log.exception("Questions to people could not be looked after")
        count += 1
        await asyncio.sleep(_LOOK_SECONDS)


async def mind(people: People) -> None:
    """Do all that is due now. A question that cannot be looked after rests, and stands before no other."""
    rows = await people.store.due(people.audience, now=people.clock(), limit=_AT_ONCE)
    room = asyncio.Semaphore(_BESIDE)
    await asyncio.gather(*(_mind_by_itself(people, row, room) for row in rows))


async def _mind_by_itself(people: People, row: PeopleRow, room: asyncio.Semaphore) -> None:
    """Look after one. If that fails, or takes long, the others are looked after all the same."""
    async with room:
        try:
            await _mind_one(people, row)
        except StoreUnavailable as error:
            _log.warning("A question to a person waits for the store: %s", error)
        except Exception:
            _log.exception("A question to a person could not be looked after")
            row.due = people.clock() + _REST_SECONDS
            await people.store.replace(row)


async def _mind_one(people: People, row: PeopleRow) -> None:
    inquiry = (await people.current(Kept(row, decode_inquiry(row.data)))).inquiry
    if inquiry.state == "answered":
        await people.settled(Kept(row, inquiry))
        return
    happened: list[Happening | None] = []

    def move(fresh: Inquiry) -> bool:
        happened.append(moves.pass_time(fresh, now=people.clock()))
        return happened[-1] is not None

    kept = await people.change(row.id, move)
    if kept is None:
        return
    if happened[-1] == "ended":
        _log.info("Nobody answered a question of %s in time", printable(inquiry.target))
        await people.settled(kept)
    else:
        await people.tell(kept)
