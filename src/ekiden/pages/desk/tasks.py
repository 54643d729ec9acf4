"""The page of one task: its story, its journal, its open questions, and what may be done to it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import ParseError, StatusError
from ekiden.pages.desk.access import Viewer
from ekiden.pages.desk.actions import Actions
from ekiden.pages.desk.copying import as_test
from ekiden.pages.desk.feed import Feed
from ekiden.pages.desk.lists import task_line
from ekiden.pages.desk.story import StoryView, label_of
from ekiden.pages.web import Csrf, Fragment, Reload, Site, WebRequest, WebResponse, event_stream, redirect
from ekiden.pages.web.filling import Form, FormView, asked_schema
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.stories.events import CallRow
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import TaskStore
from ekiden.wire.json import decode, is_object

__all__ = ["TaskPages", "row_of"]

Found: TypeAlias = tuple[TaskRecord, StoryView, dict[str, Entry]] | None
_AGAIN: Final = ("s:", "a:", "z:")
"""Entries from which a task can be run again: steps, answers and sleeps."""


class JournalLine(msgspec.Struct):
    """An entry of the journal as the page shows it."""

    key: str
    label: str
    kind: str
    branch: int
    value: str
    size: int
    from_here: bool
    """Whether the task can be run again from it."""


class Open(msgspec.Struct):
    """An open question with its form."""

    question: Question
    words: str
    form: FormView | None
    """None if it is not a form: its answer is typed as JSON."""


class TaskPages:
    """What is served below `/tasks/{id}`."""

    def __init__(
        self,
        site: Site,
        tasks: TaskStore,
        actions: Actions,
        feed: Feed,
        find: Callable[[str, Viewer], Awaitable[Found]],
        clock: Callable[[], float],
    ) -> None:
        self._site = site
        self._tasks = tasks
        self._actions = actions
        self._feed = feed
        self._find = find
        self._clock = clock
        self._csrf = Csrf(secure=site.secure)

    async def show(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        """The page."""
        return await self._page(request, viewer)

    async def _page(
        self, request: WebRequest, viewer: Viewer, *, status: int = 200, filled: Mapping[str, FormView] = {}
    ) -> WebResponse:
        found = await self._find(request.params["id"], viewer)
        if found is None:
            raise StatusError(404, "There is no such task, or it was forgotten after its time was over.")
        code, cookies = self._csrf.issue(request, request.params["id"])
        values = self._values(found, viewer, filled)
        return self._site.page("desk/task.html", request, status=status, cookies=cookies, code=code, **values)

    def _values(self, found: Any, viewer: Viewer, filled: Mapping[str, FormView] = {}) -> dict[str, Any]:
        record, view, entries = found
        return {
            "line": task_line(record, self._clock(), values=viewer.values),
            "record": record,
            "story": view,
            "journal": [_line(key, entry, viewer) for key, entry in entries.items()],
            "open": [_open(each, viewer, filled) for each in record.open_questions().values()],
            "viewer": viewer,
            "test": as_test(view) if viewer.values else None,
            "now": self._clock(),
            "wakes": record.state == "waiting" and record.due is not None,
            "seen": _possible(record),
        }

    async def live(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        """What changes on the page. Forms stay as they are until what can be done is something else."""
        found = await self._find(request.params["id"], viewer)
        if found is None:
            raise StatusError(404, "There is no such task.")
        flow, possible = found[0].flow, request.first("seen")

        async def changes() -> AsyncIterator[Fragment | Reload]:
            last = ""
            async for _ in self._feed.tasks(request.params["id"], flow):
                now = await self._find(request.params["id"], viewer)
                if now is None or _possible(now[0]) != possible:
                    yield Reload()
                    return
                values = self._values(now, viewer)
                html = "".join(
                    self._site.html(name, request, **values)
                    for name in ("desk/task_head.html", "desk/task_story.html")
                )
                if html != last:
                    last = html
                    yield Fragment(html)

        return event_stream(changes())

    def actions(self) -> dict[str, Callable[[WebRequest, Viewer], Awaitable[WebResponse]]]:
        """What can be posted, by name."""
        return {"cancel": self._cancel, "wake": self._wake, "answer": self._answer, "again": self._again}

    def _task(self, request: WebRequest) -> str:
        task_id = request.params["id"]
        self._csrf.check(request, task_id)
        return task_id

    async def _cancel(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        await self._actions.cancel(viewer, self._task(request))
        return self._back(request)

    async def _wake(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        await self._actions.wake(viewer, self._task(request))
        return self._back(request)

    async def _again(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        made, _ = await self._actions.run_again(viewer, self._task(request), request.first("key"))
        return redirect(f"{request.root}/tasks/{made or request.params['id']}")

    async def _answer(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        task_id, key = self._task(request), request.first("key")
        record = await self._tasks.load(task_id)
        question = None if record is None else record.open_questions().get(key)
        if question is None:
            raise StatusError(409, "This question is not open any more.")
        response, view = _response(question, request)
        if view is not None:
            return await self._page(request, viewer, status=422, filled={key: view})
        await self._actions.answer(viewer, task_id, key, response)
        return self._back(request)

    def _back(self, request: WebRequest) -> WebResponse:
        return redirect(f"{request.root}/tasks/{request.params['id']}")


def _possible(record: TaskRecord) -> str:
    """A fingerprint of what decides which actions the page offers."""
    wakes = record.due is not None and record.state == "waiting"
    return fingerprint(repr((record.final, wakes, list(record.open_questions()))).encode())


def _response(question: Question, request: WebRequest) -> tuple[dict[str, Any], FormView | None]:
    """The answer that a form means, or the form with what is wrong in it."""
    action = request.first("action", "accept")
    if action in ("decline", "cancel"):
        return {"action": action}, None
    schema = _schema(question)
    if schema is None:
        try:
            typed: Any = decode(request.first("json").encode())
        except ParseError:
            typed = None
        if not is_object(typed):
            raise StatusError(422, "The answer must be a JSON object.")
        return typed, None
    filled = Form(schema).read(request.form)
    if not filled.fits:
        return {}, filled.view
    return {"action": "accept", "content": filled.values}, None


def _schema(question: Question) -> Any:
    params: Any = question.request.get("params") or {}
    is_form = question.request.get("method") == "elicitation/create" and params.get("mode", "form") == "form"
    return asked_schema(params.get("requestedSchema")) if is_form else None


def _open(question: Question, viewer: Viewer, filled: Mapping[str, FormView]) -> Open:
    params: Any = question.request.get("params") or {}
    words = str(params.get("message") or question.request.get("method", ""))
    schema = _schema(question)
    form = filled.get(question.key) or (None if schema is None else Form(schema).blank())
    return Open(question, words if viewer.values or viewer.acts else "masked", form)


def _line(key: str, entry: Entry, viewer: Viewer) -> JournalLine:
    spelled = msgspec.json.encode(entry.value, enc_hook=repr)
    value = spelled.decode(errors="replace") if viewer.values and len(spelled) < 4000 else ""
    return JournalLine(
        key, label_of(key), entry.kind, entry.branch, value, len(spelled), key.startswith(_AGAIN)
    )


def row_of(record: TaskRecord) -> CallRow:
    """The row of a call of which nothing was recorded, made of its task."""
    return CallRow(
        id=record.flow,
        audience=record.audience,
        method="tools/call",
        target=record.tool,
        principal=record.principal,
        started=record.started,
        updated=record.updated,
        state="task",
        task=record.id,
    )
