"""The pages Calls and Tasks: lists, stories, what may be done to a task, and the audit log."""

import functools
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeAlias, cast

import msgspec

from ekiden.errors import StatusError, StoreRefused, StoreUnavailable
from ekiden.pages.desk.access import Access, Viewer
from ekiden.pages.desk.actions import Actions
from ekiden.pages.desk.copying import as_test
from ekiden.pages.desk.feed import Feed
from ekiden.pages.desk.lists import (
    CALL_BADGES,
    CALL_FILTERS,
    TASK_BADGES,
    TASK_FILTERS,
    calls_page,
    task_line,
    tasks_page,
)
from ekiden.pages.desk.masking import masked
from ekiden.pages.desk.reading import first_and_last
from ekiden.pages.desk.story import StoryView, assembled
from ekiden.pages.desk.tasks import TaskPages, row_of
from ekiden.pages.web import Fragment, Site, WebRequest, WebResponse, event_stream
from ekiden.stories.events import CallRow
from ekiden.stories.store import StoryStore
from ekiden.tasks.store import TaskStore

__all__ = ["Desk"]

_MOST_STREAMS: Final = 50
"""Live pages that one viewer may have open at this process; each has a watcher in the store."""
_LOOK_AGAIN_SECONDS: Final = 5.0
"""How long a stream goes on before it is asked again whether its viewer may look."""
_DOUBT_SECONDS: Final = 60.0
"""How long it goes on while that cannot be found out."""

Shown: TypeAlias = Callable[[WebRequest, Viewer], Awaitable[WebResponse]]


class Desk:
    """The pages of one store. `install` adds them to a site, at `/calls`, `/tasks` and `/actions`.

    `stories` is `server.stories`, or that of a store; `tasks` that of a store, None if it keeps none.
    """

    def __init__(
        self,
        *,
        stories: StoryStore,
        tasks: TaskStore | None,
        access: Access,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stories = stories
        self._tasks = tasks
        self._access = access
        self._clock = clock
        self._feed = Feed(stories, tasks)
        self._site: Site | None = None
        self._streams: Counter[str] = Counter()
        """How many live pages each viewer has open, by name."""

    @property
    def tabs(self) -> tuple[tuple[str, str], ...]:
        """The pages that it has, for the navigation of the site."""
        tasks = () if self._tasks is None else (("/tasks", "Tasks"),)
        return (("/calls", "Calls"), *tasks, ("/actions", "Audit log"))

    def install(self, site: Site) -> None:
        """Serve the pages at this site. Its `tabs` are the caller's to set."""
        self._site = site
        self._access.install(site)
        site.shared.update(call_badges=CALL_BADGES, task_badges=TASK_BADGES)
        site.get("/calls")(self._let_in(self._calls))
        site.get("/live/calls")(self._let_in(self._calls_live))
        site.get("/calls/{id}")(self._let_in(self._call))
        site.get("/live/calls/{id}")(self._let_in(self._call_live))
        site.get("/actions")(self._let_in(self._audit))
        if self._tasks is not None:
            site.get("/tasks")(self._let_in(self._task_list))
            site.get("/live/tasks")(self._let_in(self._tasks_live))
            pages = TaskPages(
                site,
                self._tasks,
                Actions(self._tasks, self._stories, self._clock),
                self._feed,
                functools.partial(self._story_of_task, self._tasks),
                self._clock,
            )
            site.get("/tasks/{id}")(self._let_in(pages.show))
            site.get("/live/tasks/{id}")(self._let_in(pages.live))
            for name, handler in pages.actions().items():
                site.post(f"/tasks/{{id}}/{name}")(self._let_in(handler))

    @property
    def site(self) -> Site:
        """Where they are served."""
        assert self._site is not None
        return self._site

    def _let_in(self, handler: Shown) -> Callable[[WebRequest], Awaitable[WebResponse]]:
        """A handler that knows who looks, and says in words that the store is away."""

        async def checked(request: WebRequest) -> WebResponse:
            viewer = await self._access.viewer(request)
            if isinstance(viewer, WebResponse):
                return viewer
            try:
                response = await handler(request, viewer)
                if not isinstance(response.body, bytes):
                    if self._streams[viewer.name] >= _MOST_STREAMS:
                        raise StatusError(429, "You have too many of these pages open. Close some of them.")
                    response.body = self._while_let_in(request, viewer, response.body)
                return response
            except StoreUnavailable as problem:
                raise StatusError(503, f"The store cannot be reached: {problem}") from problem
            except StoreRefused as problem:
                raise StatusError(409, f"The store cannot show this: {problem}") from problem

        return checked

    async def _while_let_in(
        self, request: WebRequest, viewer: Viewer, body: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """A stream that ends when its viewer may not look any more: an access token expires meanwhile."""
        looked = certain = self._clock()
        async with aclosing(cast("AsyncGenerator[bytes, None]", body)) as pieces:
            with self._counted(viewer.name) as open_now:
                if open_now > _MOST_STREAMS:
                    return  # It came at the same time as others, before any of them was counted.
                async for piece in pieces:
                    if self._clock() - looked >= _LOOK_AGAIN_SECONDS:
                        looked = self._clock()
                        is_still = await self._is_still(request, viewer)
                        certain = looked if is_still else certain
                        if is_still is False or looked - certain >= _DOUBT_SECONDS:
                            return
                    yield piece

    @contextmanager
    def _counted(self, name: str) -> Generator[int, None, None]:
        self._streams[name] += 1
        try:
            yield self._streams[name]
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]

    async def _is_still(self, request: WebRequest, viewer: Viewer) -> bool | None:
        """Whether somebody may still look; None if that cannot be found out right now."""
        try:
            return await self._access.viewer(request) == viewer
        except StatusError as problem:
            return None if problem.status == 503 else False

    # Calls

    async def _calls(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        page = await calls_page(self._stories, request)
        values: dict[str, Any] = {
            "page": page,
            "viewer": viewer,
            "filters": CALL_FILTERS,
            "now": self._clock(),
        }
        if request.wants_fragment:
            return WebResponse(self.site.html("desk/calls_rows.html", request, **values).encode())
        return self.site.page("desk/calls.html", request, **values)

    async def _calls_live(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        async def draw() -> str:
            page = await calls_page(self._stories, request)
            return self.site.html(
                "desk/calls_rows.html", request, page=page, viewer=viewer, now=self._clock()
            )

        return event_stream(fragments(self._feed.calls(), draw))

    async def _story(self, call_id: str, viewer: Viewer) -> StoryView | None:
        row = await self._stories.load(call_id)
        if row is None:
            return None
        view = await self._told(row)
        return view if viewer.values else masked(view)

    async def _told(self, row: CallRow) -> StoryView:
        batches = await self._stories.events(row.id)
        try:
            events, is_cut = first_and_last(batches)
            return msgspec.structs.replace(assembled(row, events), is_cut=is_cut)
        except msgspec.MsgspecError:
            bare = msgspec.structs.replace(row, facts=b"")
            return msgspec.structs.replace(assembled(bare, ()), sealed=True)

    async def _call(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        view = await self._story(request.params["id"], viewer)
        if view is None:
            raise StatusError(404, "This call is not known, or it was forgotten: only the newest are kept.")
        return self.site.page("desk/call.html", request, **self._call_values(view, viewer))

    def _call_values(self, view: StoryView, viewer: Viewer) -> dict[str, Any]:
        test = as_test(view) if viewer.values else None
        return {"story": view, "viewer": viewer, "test": test, "now": self._clock()}

    async def _call_live(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        async def draw() -> str:
            view = await self._story(request.params["id"], viewer)
            if view is None:
                return ""
            return self.site.html("desk/call_story.html", request, **self._call_values(view, viewer))

        return event_stream(fragments(self._feed.calls(request.params["id"]), draw))

    # Tasks

    async def _task_list(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        values = await self._task_rows(request, viewer)
        if request.wants_fragment:
            return WebResponse(self.site.html("desk/tasks_rows.html", request, **values).encode())
        return self.site.page("desk/tasks.html", request, filters=TASK_FILTERS, **values)

    async def _task_rows(self, request: WebRequest, viewer: Viewer) -> dict[str, Any]:
        assert self._tasks is not None
        page, now = await tasks_page(self._tasks, request), self._clock()
        page.rows = [task_line(record, now, values=viewer.values) for record in page.rows]
        return {"page": page, "viewer": viewer, "now": now}

    async def _tasks_live(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        async def draw() -> str:
            return self.site.html("desk/tasks_rows.html", request, **await self._task_rows(request, viewer))

        return event_stream(fragments(self._feed.tasks(), draw))

    async def _story_of_task(self, tasks: TaskStore, task_id: str, viewer: Viewer) -> Any:
        """The row of a task, its story and its journal; None if there is no such task."""
        record = await tasks.load(task_id)
        if record is None:
            return None
        row = await self._stories.load(record.flow)
        view = await self._told(row or row_of(record))
        entries = await tasks.entries(task_id)
        return record, (view if viewer.values else masked(view)), entries

    # The audit log

    async def _audit(self, request: WebRequest, viewer: Viewer) -> WebResponse:
        before = request.first("before")
        found = await self._stories.actions(before=float(before) if _is_number(before) else None, limit=51)
        older = repr(found[49].at) if len(found) > 50 else ""
        return self.site.page("desk/actions.html", request, actions=found[:50], older=older, viewer=viewer)


async def fragments(
    turns: AsyncGenerator[None, None], draw: Callable[[], Awaitable[str]]
) -> AsyncIterator[Fragment]:
    """A fragment each time that something has changed, unless it looks as before."""
    last = ""
    try:
        async for _ in turns:
            html = await draw()
            if html and html != last:
                last = html
                yield Fragment(html)
    finally:
        await turns.aclose()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
