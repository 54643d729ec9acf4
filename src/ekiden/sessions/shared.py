"""The sessions of a server that lie in its store, as one process sees them.

Rows are the truth. What others change is told over the bus, and looked up if something was missed.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from ekiden.bus.port import Bus
from ekiden.errors import EkidenError, StoreRefused, StoreUnavailable
from ekiden.sessions.messages import Answered, Cancelled, Changed, Ended, News, read, spell
from ekiden.sessions.pace import Pace
from ekiden.sessions.record import SessionRecord, What, apply, decode_session, encode_session
from ekiden.sessions.store import Room, SessionRow, SessionStore
from ekiden.signals import SessionsFull

__all__ = ["Hearing", "SessionRules", "SharedSessions", "key_of"]

_log = logging.getLogger(__name__)

_GOODBYE_SECONDS: Final = 5.0
"""How long the end waits for what is under way."""
_PURGE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 3.0
"""How often answers are looked for, besides when another process says that there is one."""
_LONGEST_ID: Final = 1000
"""Characters of the id of a request that other processes are told of. What is too long for the bus would have
all of them look up all their sessions."""


def key_of(session_id: str) -> str:
    """What a session is called in the store and on the bus: its id lets whoever knows it speak as its
    client."""
    return hashlib.blake2b(session_id.encode(), digest_size=18).hexdigest()


class SessionRules(msgspec.Struct, frozen=True):
    """The limits that concern the store."""

    sessions: int
    per_principal: int
    idle_seconds: float
    busy_seconds: float


class Hearing(Protocol):
    """What the sessions of this process do with news."""

    def heard(self, news: News | None) -> None:
        """Something happened in another process; None if it is not known what."""
        ...


class SharedSessions:
    """Adds, finds and changes sessions; carries the answers to questions."""

    def __init__(
        self, store: SessionStore, bus: Bus, audience: str, rules: SessionRules, clock: Callable[[], float]
    ) -> None:
        self.store = store
        self.clock = clock
        self.name = secrets.token_hex(8)
        """This process, as the owner of streams."""
        self.hearing: list[Hearing] = []
        self._pace = Pace()
        self._bus = bus
        self._audience = audience
        self._rules = rules
        self._listening: asyncio.Task[Callable[[], None]] | None = None
        self._asked: dict[str, dict[int, Callable[[bytes], object]]] = {}
        """Who hears of an answer, by session and question."""
        self._running: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._purged_at = float("-inf")

    # The bus

    async def ready(self) -> None:
        """Hear of other processes from now on."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await asyncio.shield(self._listening)

    async def _listen(self) -> Callable[[], None]:
        return await self._bus.listen(self._hear)

    def tell(self, news: News) -> None:
        """Tell all other processes."""
        self._bus.publish(spell(news))

    def _hear(self, message: bytes | None) -> None:
        news = None if message is None else read(message)
        if message is not None and news is None:
            return
        if news is None:
            for key in self._asked:
                self.soon(self._take(key))
        elif isinstance(news, Answered) and news.number in self._asked.get(news.session, ()):
            self.soon(self._take(news.session))
        for hearing in self.hearing:
            hearing.heard(news)

    async def stop(self) -> None:
        """Part from other processes, when what is under way has ended."""
        listening, self._listening = self._listening, None
        if self._looking is not None:
            self._looking.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=_GOODBYE_SECONDS)
        if listening is not None:
            (await listening)()

    def soon(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Do something for which nobody has to wait; that the store is away is logged."""
        task = asyncio.create_task(_quietly(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    # Sessions

    async def add(
        self,
        session_id: str,
        principal: str,
        record: SessionRecord,
        *,
        more: int = 0,
        ends_others: bool = True,
    ) -> None:
        """Keep a new session; `SessionsFull` if there are too many.

        There may be so many `more` than the limit. With `ends_others`, one that was not used for a while
        makes room.
        """
        await self.ready()
        now = self.clock()
        rules, key = self._rules, key_of(session_id)
        row = SessionRow(
            key=key,
            audience=self._audience,
            principal=principal,
            used=now,
            expires=now + rules.idle_seconds,
            data=encode_session(record),
        )
        unused_since = now - rules.busy_seconds if ends_others else float("-inf")
        room = Room(rules.sessions + more, rules.per_principal, unused_since)
        ended = await self.store.add(row, room)
        if ended is None:
            raise SessionsFull("Too many sessions are open; try again later")
        for other in ended:
            self._end(other)
        self.purge_in_time()

    def purge_in_time(self) -> None:
        """Have the store forget what has expired, once a minute while there is anything new."""
        now = self.clock()
        if now - self._purged_at > _PURGE_SECONDS:
            self._purged_at = now
            self.soon(self.store.purge(now=now))

    async def load(self, session_id: str) -> tuple[str, SessionRecord] | None:
        """The principal of a session and what is remembered of it; None if it cannot be read any more."""
        await self.ready()
        try:
            row = await self.store.load(key_of(session_id), now=self.clock())
        except StoreRefused as error:
            _log.warning("A session has to begin anew: %s", error)
            return None
        if row is None or row.audience != self._audience:
            return None
        return row.principal, decode_session(row.data)

    async def change(
        self, session_id: str, what: What, value: str = "", client: str = ""
    ) -> tuple[SessionRecord, SessionRecord] | None:
        """Change what is remembered of a session, and tell other processes. `client` is whose session it is.

        Returns the record as it was and as it is; None if there is no such session any more.
        """
        await self._pace.turn(client or session_id)
        was = now = SessionRecord("", {}, {}, "")

        def make(data: bytes) -> bytes | None:
            nonlocal was, now
            was, now = decode_session(data), decode_session(data)
            return encode_session(now) if apply(now, what, value) else None

        key = key_of(session_id)
        if not await self.store.change(key, make):
            return None
        # Also if it was so before: the process that made it so may have died before it told.
        self.tell(Changed(key, what, value, now.revision))
        return was, now

    async def touch(self, session_id: str) -> None:
        """Remember that a session was used."""
        now = self.clock()
        await self.store.touch(key_of(session_id), used=now, expires=now + self._rules.idle_seconds)

    async def remove(self, session_id: str) -> None:
        """End a session in all processes."""
        key = key_of(session_id)
        await self.store.remove(key)
        self.tell(Ended(key))

    def _end(self, key: str) -> None:
        """Say of a session that it was ended to make room, also to this process."""
        self.tell(Ended(key))
        for hearing in self.hearing:
            hearing.heard(Ended(key))

    async def cancel(self, session_id: str, request: int | str, client: str = "") -> None:
        """Have another process cancel a request; not one whose id is longer than any that clients use."""
        if isinstance(request, int) or len(request) <= _LONGEST_ID:
            await self._pace.turn(client or session_id)
            self.tell(Cancelled(key_of(session_id), request))

    # Questions

    async def ask(
        self, session_id: str, number: int, *, seconds: float, hear: Callable[[bytes], object]
    ) -> None:
        """Call `hear` with the answer to a question, whichever process it reaches; `withdraw` it in the
        end."""
        key = key_of(session_id)
        self._asked.setdefault(key, {})[number] = hear
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_answers())
        await self.store.ask(key, number, expires=self.clock() + seconds)

    def withdraw(self, session_id: str, number: int) -> None:
        """Expect an answer no longer."""
        key = key_of(session_id)
        asked = self._asked.get(key, {})
        if asked.pop(number, None) is not None:
            if not asked:
                del self._asked[key]
            self.soon(self.store.withdraw(key, number))

    async def answer(self, session_id: str, number: int, data: bytes) -> bool:
        """Hand an answer to the process that asked; False if nobody asks that."""
        await self._pace.turn(session_id)
        key = key_of(session_id)
        known = await self.store.answer(key, number, data)
        if known:
            self.tell(Answered(key, number))
        return known

    async def _look_for_answers(self) -> None:
        """Find the answers of which a process could not tell, because it was killed."""
        while self._asked:
            await asyncio.sleep(_LOOK_SECONDS)
            for key in tuple(self._asked):
                await _quietly(self._take(key))

    async def _take(self, key: str) -> None:
        numbers = tuple(self._asked.get(key, ()))
        for number, data in (await self.store.take(key, numbers)).items():
            if (hear := self._asked.get(key, {}).get(number)) is not None:
                hear(data)


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except StoreUnavailable as error:
        _log.debug("The store of sessions is away: %s", error)
    except EkidenError as error:
        _log.warning("The store of sessions: %s", error)
