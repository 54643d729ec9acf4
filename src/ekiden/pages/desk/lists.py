"""The lists of calls and tasks: filters, search and pages, and one row of each as it is shown."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ekiden.pages.web import WebRequest
from ekiden.stories.events import CallRow, CallStatus
from ekiden.stories.store import CallQuery, StoryStore
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.states import State
from ekiden.tasks.store import TaskQuery, TaskStore

__all__ = [
    "CALL_BADGES",
    "CALL_FILTERS",
    "TASK_BADGES",
    "TASK_FILTERS",
    "Page",
    "TaskLine",
    "calls_page",
    "task_line",
    "tasks_page",
]

T = TypeVar("T")

CALL_FILTERS: Final[dict[str, tuple[CallStatus, ...]]] = {
    "all": (),
    "running": ("running",),
    "waiting": ("waiting",),
    "completed": ("completed",),
    "failed": ("failed", "tool_failed"),
    "became a task": ("task",),
}
TASK_FILTERS: Final[dict[str, tuple[State, ...]]] = {
    "all": (),
    "working": ("queued", "running", "stopping"),
    "waiting": ("waiting",),
    "completed": ("completed",),
    "failed": ("failed", "failing"),
    "cancelled": ("cancelled", "tidying"),
}
CALL_BADGES: Final[dict[str, tuple[str, str]]] = {
    "running": ("working", "running"),
    "waiting": ("waiting", "waits for an answer"),
    "completed": ("done", "completed"),
    "tool_failed": ("failed", "the tool failed"),
    "failed": ("failed", "failed"),
    "task": ("run", "became a task"),
}
"""The look and the words of each state."""
TASK_BADGES: Final[dict[str, tuple[str, str]]] = {
    "queued": ("working", "queued"),
    "running": ("working", "running"),
    "waiting": ("waiting", "waiting"),
    "stopping": ("retried", "is being cancelled"),
    "tidying": ("cancelled", "cancelled, cleaning up"),
    "failing": ("failed", "failed, cleaning up"),
    "completed": ("done", "completed"),
    "failed": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
}
_LIMIT: Final = 50
_LONGEST_ASKED: Final = 500
"""Letters of a question in the list. A tool may put its arguments into it, which may have megabytes."""


class Page(msgspec.Struct, kw_only=True):
    """One page of a list."""

    rows: Sequence[Any]
    chosen: str
    """The filter."""
    text: str
    """What was searched for."""
    older: str = ""
    """The query of the next page; empty if there is none."""
    found: str = ""
    """The id of the only one that was searched for."""


class TaskLine(msgspec.Struct, kw_only=True):
    """A task as the list shows it."""

    record: TaskRecord
    badge: tuple[str, str]
    waits_for: str
    asks: str
    """What is asked, if the viewer may see it."""
    legs: int
    lost: int
    """Workers that were lost in a row."""
    deadline: float | None


def task_line(record: TaskRecord, now: float, *, values: bool) -> TaskLine:
    """One row of the list."""
    badge = TASK_BADGES[record.state]
    if record.tool_failed:
        badge = ("failed", "completed, the tool failed")
    return TaskLine(
        record=record,
        badge=badge,
        waits_for=_waits_for(record, now),
        asks=_asks(record) if values else "",
        legs=record.fence,
        # While it is cleaned up, the count has another use.
        lost=0 if record.expired or record.state in ("cancelled", "tidying") else max(record.losses, 0),
        deadline=None if record.final else record.expires,
    )


def _whom(question: Question) -> str:
    """Whose answer a question waits for."""
    person = question.person
    if person is None:
        return "the caller's user, on a page" if question.paged else "the client"
    names = [person.name, *person.escalate]
    return ", then ".join(names) if person.deadline is not None else person.name


def _asks(record: TaskRecord) -> str:
    first = next(iter(_unanswered(record)), None)
    asked: dict[str, Any] = {} if first is None else first.request.get("params") or {}
    return str(asked.get("message", ""))[:_LONGEST_ASKED]


def _unanswered(record: TaskRecord) -> list[Question]:
    """What it asks, of its client and of people on pages."""
    return [] if record.final else [each for each in record.questions.values() if not each.answered]


def _waits_for(record: TaskRecord, now: float) -> str:
    if record.final:
        return ""
    if asked := _unanswered(record):
        return "an answer of " + " and of ".join(dict.fromkeys(map(_whom, asked)))
    if record.state == "running" or record.state == "stopping":
        return "its worker"
    if record.due is None:
        return "nothing"
    return "a free worker" if record.due <= now else "a time"


async def calls_page(stories: StoryStore, request: WebRequest) -> Page:
    """The page of calls that a request is for."""
    chosen, text = _chosen(request, CALL_FILTERS), request.first("q").strip()
    query = CallQuery(states=CALL_FILTERS[chosen], after=_place(request.first("after")), limit=_LIMIT + 1)
    if text:
        if (row := await stories.load(text)) is not None:
            return Page(rows=[row], chosen=chosen, text=text, found=row.id)
        targets = tuple(name for name in await stories.targets() if text.lower() in name.lower())
        query = msgspec.structs.replace(query, targets=targets or (text,))
    rows: Sequence[CallRow] = await stories.listing(query)
    return _page(rows, chosen, text, lambda row: f"{row.started!r}_{row.id}")


async def tasks_page(tasks: TaskStore, request: WebRequest) -> Page:
    """The page of tasks that a request is for. A text is an id, a part of a tool's name, or a principal."""
    chosen, text = _chosen(request, TASK_FILTERS), request.first("q").strip()
    query = TaskQuery(states=TASK_FILTERS[chosen], after=_place(request.first("after")), limit=_LIMIT + 1)
    if text:
        if (record := await tasks.load(text)) is not None:
            return Page(rows=[record], chosen=chosen, text=text, found=record.id)
        tools = tuple(name for name in await tasks.tools() if text.lower() in name.lower())
        found = {"tools": tools} if tools else {"principal": text}
        query = msgspec.structs.replace(query, **found)
    rows: Sequence[TaskRecord] = await tasks.search(query)
    return _page(rows, chosen, text, lambda row: f"{row.created!r}_{row.id}")


def _page(rows: Sequence[T], chosen: str, text: str, place: Callable[[T], str]) -> Page:
    older = place(rows[_LIMIT - 1]) if len(rows) > _LIMIT else ""
    return Page(rows=rows[:_LIMIT], chosen=chosen, text=text, older=older)


def _chosen(request: WebRequest, filters: dict[str, Any]) -> str:
    wanted = request.first("state", "all")
    return wanted if wanted in filters else "all"


def _place(text: str) -> tuple[float, str] | None:
    at, _, name = text.partition("_")
    try:
        return (float(at), name) if text else None
    except ValueError:
        return None
