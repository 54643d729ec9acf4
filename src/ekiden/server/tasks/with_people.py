"""Tasks that wait for people: their questions go to pages, and the answers come back into the task's row.

The row of the task has the question, so that it waits; whoever looks at the task is told whom it waits for.
The question to the person is kept before the row says that it was asked, and under the same key: a worker
that dies between the two is followed by one that asks the same again, and nobody is told twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import StoreUnavailable
from ekiden.people import moves
from ekiden.people.record import Inquiry
from ekiden.rounds.asks import ELICIT, Ask, declares
from ekiden.server.people.people import People, ToAsk, client_title
from ekiden.server.people.words import Waiting, status_words
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import TaskStore
from ekiden.wire.json import is_object
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO
from ekiden.wire.tasks import TaskView

__all__ = ["TaskPeople", "is_for_a_page"]

_URL_MODE: Final[Mapping[str, Any]] = {"elicitation": {"url": {}}}
_BY_CLIENT: Final = "the client's user"


def is_for_a_page(declared: Mapping[str, Any], ask: Ask) -> bool:
    """Whether a question is answered on a page: it is for somebody else, or the client cannot show it."""
    return ask.method == ELICIT and (ask.person is not None or not declares(declared, ask.needs))


class TaskPeople:
    """The questions to people of the tasks of one server."""

    def __init__(self, people: People, store: TaskStore) -> None:
        self.askable = people.askable
        self._people = people
        self._store = store
        people.deliver, people.is_wanted = self._deliver, self._is_wanted

    async def put(self, record: TaskRecord, asked: Sequence[Question], withdrawn: Sequence[str]) -> None:
        """Put those questions of a leg that are for people; take back what is not waited for any more."""
        about = ToAsk(
            flow=record.flow,
            method="tools/call",
            target=record.tool,
            principal=record.principal,
            client=client_title(record.meta.get(CLIENT_INFO)),
            task=record.id,
        )
        for question in asked:
            if question.paged:
                params = question.request.get("params")
                ask = Ask(ELICIT, params, {}, _unread, question.digest, person=question.person)
                await self._people.put(ask, question.key, about, wire_key=question.key)
        if withdrawn:
            for key, kept in (await self._people.of_call(record.flow)).items():
                if key in withdrawn:
                    await self._people.change(kept.row.id, moves.withdraw)

    async def _is_wanted(self, inquiry: Inquiry) -> bool:
        """Whether a task still waits for an answer, or has not come to its question yet."""
        record = None if inquiry.task is None else await self._store.load(inquiry.task)
        return record is not None and not record.final

    async def _deliver(self, inquiry: Inquiry) -> None:
        """Tell a task its answer. Harmless if it has it."""
        assert inquiry.task is not None
        record = await self._store.load(inquiry.task)
        if record is None or record.final:
            return
        name, _, attempt = inquiry.wire_key.rpartition(".")
        if inquiry.wire_key not in record.questions:
            if record.asked.get(name, 0) < int(attempt):
                raise StoreUnavailable("the task has not come to its question yet")
            return
        answers = {inquiry.wire_key: inquiry.answer}
        await self._store.answer(record.id, answers, now=self._people.clock())

    async def shown(self, record: TaskRecord, seen: TaskView, *, in_words: bool) -> TaskView:
        """A task that waits for people, as its client sees it: with words, or with a page to open."""
        paged = record.paged_questions()
        if not paged:
            return seen
        can_open = not in_words and declares(record.meta.get(CLIENT_CAPABILITIES, {}), _URL_MODE)
        waiting: list[Waiting] = []
        pages: dict[str, Any] = {}
        for key, kept in (await self._people.of_call(record.flow)).items():
            if key not in paged or kept.inquiry.state != "open":
                continue
            link = None if kept.inquiry.persons else await self._people.link(kept)
            if link is not None and can_open:
                message = kept.inquiry.params.get("message", "")
                pages[key] = {"method": ELICIT, "params": {"mode": "url", "message": message, "url": link}}
            else:
                waiting.append(Waiting(kept.inquiry, link))
        changes: dict[str, Any] = {}
        if waiting:
            changes["status_message"] = status_words(waiting)
        if pages:
            changes["status"] = "input_required"
            changes["input_requests"] = {**(seen.input_requests or {}), **pages}
        return msgspec.structs.replace(seen, **changes)

    async def without_pages(self, record: TaskRecord, responses: Mapping[str, object]) -> dict[str, object]:
        """The answers of a client that count: what people answer on a page, it cannot. It can say no.

        Only to what the row asks as it was read: what is asked meanwhile may be for somebody else.
        """
        paged = record.paged_questions()
        own = {key: responses[key] for key in record.questions if key in responses and key not in paged}
        for key, kept in (await self._people.of_call(record.flow)).items() if paged else ():
            response = responses.get(key)
            action = response.get("action") if is_object(response) else None
            if key in paged and action in ("decline", "cancel") and not kept.inquiry.persons:
                await self._people.answer(kept.row.id, {"action": action}, by=_BY_CLIENT)
        return own


def _unread(raw: Any) -> Any:
    return raw
