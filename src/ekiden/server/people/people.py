"""The questions to people of one server: how they are put, shown, answered, and taken back.

The laws: a question of a call is kept once, however often its round is repeated. An answer is taken once: it
is a conditional write, and whoever comes second is told so. An answer counts for the very question that was
asked. A link is random, is kept as a hash and sealed only, and opens nothing once the question has an answer.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import ProtocolError, StoreUnavailable
from ekiden.people import moves
from ekiden.people.record import Inquiry, WaitingCall, decode_call, decode_inquiry, encode
from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.rounds.asks import PAGED, PAGES, Ask
from ekiden.rounds.call_state import CallState, decode_state, encode_state
from ekiden.rounds.journal import framed
from ekiden.server.people.port import Notice, PeoplePages
from ekiden.server.sealing.keys import TokenSealer
from ekiden.wire.json import JsonObject, decode
from ekiden.wire.principal import Principal
from ekiden.wire.printable import printable

__all__ = ["Kept", "People", "ToAsk", "client_title"]

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.5
"""How often a call that waits looks for an answer. Needed only if the page is in another process."""
_TRIES: Final = 20
"""How often a change is tried that others come before."""
_AFTER_SECONDS: Final = 86_400.0
"""How long an answer is kept: until then, the call has to come for it."""
_FORM: Final[JsonObject] = {"form": {}, "url": {}}


class Kept(msgspec.Struct):
    """A question with its row."""

    row: PeopleRow
    inquiry: Inquiry


class ToAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the call that asks."""

    flow: str
    method: str
    target: str
    principal: str
    client: str
    task: str | None = None


class People:
    """Puts questions to people, and takes their answers."""

    def __init__(
        self,
        store: PeopleStore,
        pages: PeoplePages,
        *,
        audience: str,
        name: str,
        keys: Callable[[], TokenSealer],
        clock: Callable[[], float],
    ) -> None:
        self.store = store
        self.pages = pages
        self.audience = audience
        self.name = name
        """The server, as people know it."""
        self.describe: Callable[[str, str], tuple[str, str]] = lambda _, target: (target, "")
        """The title and the description of what asks, by its method and name."""
        self.deliver: Callable[[Inquiry], Awaitable[None]] | None = None
        """Tells a task its answer; set where there are tasks."""
        self.is_wanted: Callable[[Inquiry], Awaitable[bool]] | None = None
        """Whether the task still waits for an answer; set where there are tasks."""
        self._keys = keys
        self.clock = clock
        self._answered: dict[str, asyncio.Event] = {}

    # Putting a question

    def askable(self, capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
        """What can be asked of a client and its user, if the pages are counted in."""
        declared = capabilities.get("elicitation")
        return {**capabilities, "elicitation": {**(declared or {}), **_FORM}, PAGES: PAGED}

    async def put(
        self, ask: Ask, key: str, asks: ToAsk, given: Iterable[str] = (), wire_key: str = ""
    ) -> Kept:
        """Put a question, unless it stands. `given` are the ids of those whose answers were of no use."""
        attempt, useless = 1, frozenset(given)
        while True:
            row = self._row(ask, key, asks, attempt, wire_key)
            kept = await self.store.add(row)
            found = Kept(kept, decode_inquiry(kept.data))
            if kept.id not in useless:
                break
            attempt += 1
        if ask.person is not None and kept.data == row.data:
            await self.tell(found)
        return found

    def _row(self, ask: Ask, key: str, asks: ToAsk, attempt: int, wire_key: str) -> PeopleRow:
        now, person = self.clock(), ask.person
        secret, hashed = _new_secret()
        inquiry = Inquiry(
            key=key,
            digest=ask.digest,
            attempt=attempt,
            params=dict(ask.params or {}),
            method=asks.method,
            target=asks.target,
            principal=asks.principal,
            client=asks.client,
            asked=now,
            since=now,
            persons=[] if person is None else [person.name, *person.escalate],
            remind=None if person is None else person.remind,
            deadline=None if person is None else person.deadline,
            default=None if person is None else person.default,
            links=[hashed],
            newest=self._keys().seal(secret.encode()),
            untold_until=None if person is None else now + moves.AGAIN_SECONDS,
            task=asks.task,
            wire_key=wire_key,
        )
        place = framed(*(part.encode() for part in (self.audience, asks.flow, key, ask.digest, str(attempt))))
        return PeopleRow(
            id=hashlib.sha256(place).hexdigest()[:32],
            call=asks.flow,
            audience=self.audience,
            due=moves.due_at(inquiry),
            expires=self.expiry(ask),
            data=encode(inquiry),
        )

    def expiry(self, ask: Ask) -> float:
        """Until when a question that is asked now is kept."""
        lasts, person = self.pages.keep_seconds, ask.person
        if person is not None and person.deadline is not None:
            lasts = max(lasts, person.deadline * (1 + len(person.escalate)) + _AFTER_SECONDS)
        return self.clock() + lasts

    async def tell(self, kept: Kept) -> None:
        """Have the notifier tell the person. If that fails, it is tried again later."""
        inquiry = kept.inquiry
        notice = Notice(
            kind="reminded" if inquiry.reminded else "asked",
            person=inquiry.person,
            link=await self.link(kept),
            message=inquiry.params.get("message", ""),
            server=self.name,
            target=inquiry.target,
            until=None if inquiry.deadline is None else inquiry.since + inquiry.deadline,
        )
        told: float | None = None
        try:
            await self.pages.notify(notice)
        except Exception as error:
            about = (printable(inquiry.person), printable(inquiry.target))
            _log.error("%s was not told of a question of %s: %r", *about, error)
            told = self.clock() + moves.AGAIN_SECONDS
        await self.change(kept.row.id, lambda now_kept: _mark_told(now_kept, inquiry.turn, told))

    async def link(self, kept: Kept) -> str:
        """The link of an open question. If the newest cannot be opened with our keys, there is a new one."""
        sealed = kept.inquiry.newest
        known = self._keys().open(sealed) if sealed else None
        if known is not None:
            return self._link(kept.row.id, known.decode())
        secret, hashed = _new_secret()
        sealed = self._keys().seal(secret.encode())
        await self.change(kept.row.id, lambda inquiry: moves.add_link(inquiry, hashed, sealed))
        return self._link(kept.row.id, secret)

    def _link(self, row_id: str, secret: str) -> str:
        return self.pages.link_to(f"{row_id}.{secret}")

    # Looking at it, and answering

    async def find(self, link: str) -> tuple[Kept, bool] | None:
        """The question that a link belongs to, and whether the link opens it. None if there is none."""
        row_id, _, secret = link.partition(".")
        row = await self.store.load(row_id) if len(row_id) == 32 and row_id.isalnum() else None
        if row is None or row.audience != self.audience or row.expires <= self.clock():
            return None
        kept, hashed = await self.current(Kept(row, decode_inquiry(row.data))), _hash(secret)
        fits = [hmac.compare_digest(known.encode(), hashed.encode()) for known in kept.inquiry.links]
        return kept, any(fits)

    async def current(self, kept: Kept) -> Kept:
        """The question; it is taken back if its task has ended."""
        inquiry = kept.inquiry
        if inquiry.state != "open" or inquiry.task is None or self.is_wanted is None:
            return kept
        if await self.is_wanted(inquiry):
            return kept
        return await self.change(kept.row.id, moves.withdraw) or kept

    async def change(self, row_id: str, move: Callable[[Inquiry], bool]) -> Kept | None:
        """Make a move, however many others change the same row; None if the move is not possible."""
        for _ in range(_TRIES):
            row = await self.store.load(row_id)
            if row is None:
                return None
            inquiry = decode_inquiry(row.data)
            if not move(inquiry):
                return None
            row.data, row.due = encode(inquiry), moves.due_at(inquiry)
            if await self.store.replace(row):
                return Kept(row, inquiry)
        raise StoreUnavailable("a question to a person is changed by too many at once")

    async def answer(self, row_id: str, given: JsonObject, *, by: str, turn: int | None = None) -> bool:
        """Take the answer to a question; False if it has one, or is not open any more.

        `turn` is whose turn it was when it was checked who answers: meanwhile it may be somebody else's.
        """
        now = self.clock()
        kept = await self.change(row_id, lambda asked: moves.answer(asked, given, by=by, now=now, turn=turn))
        if kept is not None:
            await self.settled(kept)
        return kept is not None

    async def settled(self, kept: Kept) -> None:
        """A question has its answer: wake the call, or tell the task."""
        if (event := self._answered.get(kept.row.call)) is not None:
            event.set()
        if kept.inquiry.task is not None and self.deliver is not None:
            try:
                await self.deliver(kept.inquiry)
            except StoreUnavailable as error:
                _log.warning("A task is told its answer later: %s", error)
                return
            await self.change(kept.row.id, _mark_delivered)

    async def of_call(self, flow: str) -> dict[str, Kept]:
        """The questions of a call by key; of those with the same key, the one that was asked last."""
        found: dict[str, Kept] = {}
        for row in await self.store.of_call(flow):
            if row.audience != self.audience or row.id.startswith(_CALL):
                continue
            kept = Kept(row, decode_inquiry(row.data))
            before = found.get(kept.inquiry.key)
            if before is None or (before.inquiry.asked, before.inquiry.attempt) < (
                kept.inquiry.asked,
                kept.inquiry.attempt,
            ):
                found[kept.inquiry.key] = kept
        return found

    async def wait(self, flow: str, is_over: Callable[[dict[str, Kept]], bool]) -> dict[str, Kept]:
        """The questions of a call, once that is over, or after `wait_seconds`."""
        event = self._answered.setdefault(flow, asyncio.Event())
        loop = asyncio.get_running_loop()
        until = loop.time() + self.pages.wait_seconds
        try:
            while True:
                event.clear()
                found = await self.of_call(flow)
                left = until - loop.time()
                if left <= 0 or is_over(found):
                    return found
                try:
                    async with asyncio.timeout(min(left, _POLL_SECONDS)):
                        await event.wait()
                except TimeoutError:
                    continue
        finally:
            self._answered.pop(flow, None)

    def is_same_user(self, principal: str, person: Principal) -> bool:
        """Whether a call is made for this person: the same issuer and subject, through whatever client."""
        try:
            issuer, subject, _ = decode(principal.encode())
        except (ProtocolError, ValueError, TypeError):
            return principal in (person.id, person.subject)
        return (issuer, subject) == (person.issuer, person.subject)

    # Calls that wait

    async def keep_call(self, call_id: str, state: CallState, *, until: float) -> str:
        """Keep the state of a call that waits, for when the same call is made again.

        Returns the flow that waits: another one, if another call with the same arguments has come first.
        """
        data = encode(WaitingCall(flow=state.flow, round=state.round, state=encode_state(state)))
        row = PeopleRow(id=call_id, call=state.flow, audience=self.audience, expires=until, data=data)
        for _ in range(_TRIES):
            kept = await self.store.add(row)
            known = decode_call(kept.data)
            if known.flow != state.flow and kept.expires > self.clock():
                return known.flow
            if known.flow == state.flow and known.round >= state.round:
                return known.flow
            if await self.store.remove(call_id, kept.version):
                continue
        raise StoreUnavailable("a waiting call is changed by too many at once")

    async def waiting_call(self, call_id: str) -> CallState | None:
        """The state of the call that waits; None if there is none."""
        row = await self.store.load(call_id)
        if row is None or row.expires <= self.clock():
            return None
        return decode_state(decode_call(row.data).state)

    async def drop_call(self, call_id: str, flow: str, ended: int) -> None:
        """Forget a waiting call whose round `ended` was its last."""
        row = await self.store.load(call_id)
        if row is not None:
            known = decode_call(row.data)
            if known.flow == flow and known.round <= ended and await self.store.remove(call_id, row.version):
                for kept in (await self.of_call(flow)).values():
                    await self.change(kept.row.id, moves.withdraw)


_CALL: Final = "call-"


def call_id(*parts: bytes) -> str:
    """The id of a waiting call: whose it is, and what is called with which arguments."""
    return _CALL + hashlib.sha256(framed(*parts)).hexdigest()


def client_title(client_info: Mapping[str, Any] | None) -> str:
    """What the client calls itself."""
    info = client_info or {}
    name = info.get("title") or info.get("name")
    return name[:100] if isinstance(name, str) else ""


def _mark_told(inquiry: Inquiry, turn: int, told: float | None) -> bool:
    if inquiry.state != "open" or inquiry.turn != turn:
        return False
    inquiry.untold_until = told
    return True


def _mark_delivered(inquiry: Inquiry) -> bool:
    inquiry.delivered = True
    return True


def _new_secret() -> tuple[str, str]:
    secret = secrets.token_urlsafe(32)
    return secret, _hash(secret)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
