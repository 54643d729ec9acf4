"""The routes of the page Try."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import msgspec

from ekiden.errors import StatusError
from ekiden.pages.trying.catalog import Catalog, Item, expanded, read_catalog
from ekiden.pages.trying.kinds import CAPABILITIES, ERAS, ClientKind, read_kind
from ekiden.pages.trying.results import blocks_of, find_media, pretty
from ekiden.pages.trying.run import OpenClient, Run, Target, TargetKind
from ekiden.pages.trying.status import ServerStatus
from ekiden.pages.trying.watching import gathered
from ekiden.pages.web import Csrf, Fragment, Reload, Site, WebRequest, WebResponse, event_stream, redirect
from ekiden.pages.web.events import LiveEvent
from ekiden.pages.web.filling import Form, FormView
from ekiden.wire.json import JsonObject

__all__ = ["TryPages"]

FindStory: TypeAlias = Callable[[Run], Awaitable[str | None]]

_PURPOSE: Final = "try"
_MOST_RUNS: Final = 30
"""Calls that are kept. The oldest that has ended is forgotten."""
_KINDS: Final[dict[TargetKind, str]] = {
    "tool": "Tools",
    "prompt": "Prompts",
    "resource": "Resources",
    "template": "Resource templates",
}
_AS_JSON: Final[JsonObject] = {"type": "object", "title": "Arguments", "anyOf": [{}]}
"""Any object: an `anyOf` makes it a field of JSON, where an object without properties would have no field."""
"""Any arguments at all: to see how the server answers those that do not fit."""


class _Shown(msgspec.Struct):
    """What one page shows."""

    item: Item | None
    as_json: bool
    view: FormView
    run: Run | None = None


class TryPages:
    """The page Try of one server.

    `open_client` opens a client of the given kind. `folder` is the URI that is offered as its root.
    """

    def __init__(self, site: Site, status: ServerStatus, open_client: OpenClient, *, folder: str) -> None:
        self.status = status
        self.kind = ClientKind()
        """The client of the last call: the next one is the same, unless it is changed."""
        self.find_story: FindStory | None = None
        """Finds what the server has told of a call: the path of its page. None if nothing is recorded."""
        self._site = site
        self._open = open_client
        self._folder = folder
        self._csrf = Csrf(secure=site.secure)
        self._runs: dict[str, Run] = {}
        site.get("/")(self.show)
        site.post("/try")(self.call)
        site.get("/try/events")(self.events)
        site.post("/try/runs/{run}/cancel")(self.cancel)
        site.post("/try/runs/{run}/questions/{number}")(self.answer)
        site.get("/try/runs/{run}/media/{number}")(self.media)
        site.get("/try/runs/{run}/story")(self.story)

    async def close(self) -> None:
        """End all calls that still run."""
        await asyncio.gather(*(run.cancel() for run in self._runs.values()))

    # The page

    async def show(self, request: WebRequest) -> WebResponse:
        """Everything that can be called, and the form of one of them."""
        catalog = await read_catalog(self._open, self.kind)
        run = self._runs.get(request.first("run"))
        item = self._chosen(request, catalog)
        as_json = request.first("as") == "json"
        form = _form_of(item, as_json=as_json)
        holds = run is not None and item is not None and run.target == item.target
        view = form.holding(run.arguments) if holds and run is not None else form.blank()
        return self._page(request, catalog, _Shown(item, as_json, view, run if holds else None))

    def _page(self, request: WebRequest, catalog: Catalog, shown: _Shown, status: int = 200) -> WebResponse:
        code, cookies = self._csrf.issue(request, _PURPOSE)
        live = {"form": "" if shown.item is None else shown.item.fingerprint}
        if shown.run is not None:
            live["run"] = shown.run.id
        if shown.item is not None:
            live |= {"kind": shown.item.target.kind, "name": shown.item.target.name}
        return self._site.page(
            "try.html",
            request,
            status=status,
            cookies=cookies,
            **self._values(catalog, shown.run, code),
            shown=shown,
            kind=self.kind,
            eras=ERAS,
            capabilities=CAPABILITIES,
            live=urlencode(live),
        )

    def _values(self, catalog: Catalog, run: Run | None, code: str) -> dict[str, Any]:
        """What the fragments need."""
        return {
            "catalog": catalog,
            "kinds": _KINDS,
            "served": self.status,
            "run": run,
            "earlier": list(reversed(self._runs.values())),
            "code": code,
            "blocks": blocks_of(run.result) if run is not None and run.result is not None else [],
            "pretty": pretty,
            "link": _link,
            "has_story": self.find_story is not None and run is not None and run.target.kind == "tool",
        }

    def _chosen(self, request: WebRequest, catalog: Catalog) -> Item | None:
        target = _target(request)
        return catalog.first if target is None else catalog.find(target)

    # Calls

    async def call(self, request: WebRequest) -> WebResponse:
        """Call what the form is for, or show the form again with what is wrong."""
        self._csrf.check(request, _PURPOSE)
        self.kind = read_kind(request.first("era"), request.form.get("able", ()))
        catalog = await read_catalog(self._open, self.kind)
        item = self._chosen(request, catalog)
        if item is None:
            raise StatusError(404, "The server does not have this any more. Open the page again.")
        as_json = request.first("as") == "json"
        filled = _form_of(item, as_json=as_json).read(request.form)
        if request.first("switch") and not (as_json and filled.view.errors):
            other = _form_of(item, as_json=not as_json).holding(filled.values)
            return self._page(request, catalog, _Shown(item, not as_json, other))
        if not filled.fits:
            return self._page(request, catalog, _Shown(item, as_json, filled.view), status=422)
        run = self._start(item, filled.values)
        return redirect(f"{request.root}/?{_link(item.target, run, as_json=as_json)}#run")

    def _start(self, item: Item, values: JsonObject) -> Run:
        target = item.target
        name = expanded(target.name, values) if target.kind == "template" else target.name
        run = Run(target, name, values, self.kind, root=self._folder)
        ended = [each for each in self._runs.values() if each.ended]
        for old in ended[: max(0, len(self._runs) - _MOST_RUNS + 1)]:
            del self._runs[old.id]
        self._runs[run.id] = run
        run.start(self._open)
        return run

    def _run(self, request: WebRequest) -> Run:
        run = self._runs.get(request.params["run"])
        if run is None:
            raise StatusError(404, "This call is not known any more. Open the page again.")
        return run

    async def cancel(self, request: WebRequest) -> WebResponse:
        """End a call early."""
        self._csrf.check(request, _PURPOSE)
        run = self._run(request)
        await run.cancel()
        return await self._after(request, run, {"state", "result", "log"})

    async def answer(self, request: WebRequest) -> WebResponse:
        """Answer a question of a call."""
        self._csrf.check(request, _PURPOSE)
        run = self._run(request)
        number = request.params["number"]
        run.answer(int(number) if number.isdecimal() else 0, request.first("answer"), request.form)
        return await self._after(request, run, {f"question-{number}", "state"})

    async def _after(self, request: WebRequest, run: Run, parts: set[str]) -> WebResponse:
        if request.wants_fragment:
            await asyncio.sleep(0)  # Whoever waits for the answer takes it first.
            return WebResponse(self._drawn(request, Catalog(), run, parts).encode())
        return redirect(f"{request.root}/?{_link(run.target, run)}#run")

    async def media(self, request: WebRequest) -> WebResponse:
        """A picture, a sound or a file of a result."""
        run, number = self._run(request), request.params["number"]
        found = find_media(run.result or {}, int(number)) if number.isdecimal() else None
        if found is None:
            raise StatusError(404, "There is no such file.")
        how = {} if found.shown else {"content-disposition": "attachment; filename=result.bin"}
        return WebResponse(found.content, kind=found.mime, headers=how)

    async def story(self, request: WebRequest) -> WebResponse:
        """Go to the page about a call, where every leg of it is shown."""
        found = None if self.find_story is None else await self.find_story(self._run(request))
        if found is None:
            raise StatusError(404, "Nothing is told of this call yet. Look again in a second.")
        return redirect(request.root + found)

    # Live updates

    async def events(self, request: WebRequest) -> WebResponse:
        """What changes while a page is open."""
        return event_stream(self._events(request))

    async def _events(self, request: WebRequest) -> AsyncIterator[LiveEvent]:
        run = self._runs.get(request.first("run"))
        queue: asyncio.Queue[str] = asyncio.Queue()
        queue.put_nowait("everything")  # The page may be older than this stream.
        with ExitStack() as stack:
            stack.enter_context(self.status.watching(queue))
            if run is not None:
                stack.enter_context(run.watching(queue))
            while True:
                parts = await gathered(queue)
                if "everything" in parts:
                    parts |= {"status", "state", "log", "result"}
                    parts |= (
                        {f"question-{each.number}" for each in run.questions} if run is not None else set()
                    )
                catalog = Catalog()
                if "status" in parts and self.status.state == "serving":
                    catalog = await read_catalog(self._open, self.kind)
                    fresh = self._chosen(request, catalog)
                    form = "" if fresh is None else fresh.fingerprint
                    if catalog.problem is None and form != request.first("form"):
                        yield Reload()  # The form is not that of the server any more.
                        return
                    parts.add("list")
                yield Fragment(self._drawn(request, catalog, run, parts))

    def _drawn(self, request: WebRequest, catalog: Catalog, run: Run | None, parts: set[str]) -> str:
        code, _ = self._csrf.issue(request, _PURPOSE)
        chosen = _target(request)
        values = self._values(catalog, run, code)
        return self._site.html("try_parts.html", request, **values, parts=parts, chosen=chosen)


def _form_of(item: Item | None, *, as_json: bool) -> Form:
    if item is None:
        return Form({})
    return Form(_AS_JSON if as_json else item.schema, prefix="argument")


def _target(request: WebRequest) -> Target | None:
    for kind in _KINDS:
        if request.first("kind") == kind:
            return Target(kind, request.first("name"))
    return None


def _link(target: Target, run: Run | None = None, *, as_json: bool = False) -> str:
    """The query that shows a target, with a call of it."""
    parts: JsonObject = {"kind": target.kind, "name": target.name}
    if as_json:
        parts["as"] = "json"
    if run is not None:
        parts["run"] = run.id
    return urlencode(parts)
