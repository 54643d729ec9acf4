"""The site of `ekiden dev`, on a port of its own of this machine."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import uvicorn

from ekiden.cli.serving.site import site_config
from ekiden.cli.targets import http_client
from ekiden.client.client import Client
from ekiden.pages.desk.access import Everybody
from ekiden.pages.desk.desk import Desk
from ekiden.pages.trying.kinds import ClientKind
from ekiden.pages.trying.page import TryPages
from ekiden.pages.trying.run import Run
from ekiden.pages.trying.status import ServerStatus
from ekiden.pages.web import Door, Site
from ekiden.stores import Store
from ekiden.stories.events import decode_facts
from ekiden.stories.store import CallQuery, StoryStore

__all__ = ["DevSite"]

_LOOKS: Final = 10
_BETWEEN_LOOKS: Final = 0.2
"""Seconds. A server tells its stories in batches, a little later."""


class _PageServer(uvicorn.Server):
    """uvicorn without handlers for signals: whoever supervises the workers has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class DevSite:
    """The pages about one server. `headers` are sent with every call of it."""

    def __init__(self, listener: socket.socket, status: ServerStatus, headers: Mapping[str, str]) -> None:
        self._listener = listener
        self._status = status
        self._headers = headers
        port = listener.getsockname()[1]
        self._origin = f"http://127.0.0.1:{port}"
        self._door = Door()
        self.site = Site(
            secure=False,
            hosts=[f"127.0.0.1:{port}", f"localhost:{port}"],
            form_bytes=4_000_000,
            shared={"site_name": "ekiden dev", "tabs": (("/", "Try"),)},
        )
        self.site.before = self._door.check
        self._trying = TryPages(self.site, status, self._open, folder=Path.cwd().as_uri())

    @property
    def link(self) -> str:
        """The link that opens the page. It has a token: only who has it can call the server from here."""
        return self._door.link(self._origin)

    def show_calls(self, store: Store) -> None:
        """Add the pages Calls and Tasks, of what is recorded in this store."""
        stories: StoryStore | None = getattr(store, "stories", None)
        if stories is None:
            return
        desk = Desk(stories=stories, tasks=store.tasks, access=Everybody())
        desk.install(self.site)
        self._trying.find_story = functools.partial(_find_story, stories)
        # Whoever develops knows what was done here: the audit log is for others.
        tabs = [(path, label) for path, label in desk.tabs if path != "/actions"]
        self.site.shared["tabs"] = (("/", "Try"), *tabs)

    @contextlib.asynccontextmanager
    async def _open(self, kind: ClientKind, **callbacks: Any) -> AsyncGenerator[Client]:
        """A client of the server, of this kind. A call has no time limit: a person cancels it."""
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(http_client(self._headers)) if self._headers else None
            client = Client(
                self._status.where,
                mode=kind.era,
                name="ekiden-dev",
                timeout=None,
                log_level="debug",
                http_client=http,
                **callbacks,
            )
            yield await stack.enter_async_context(client)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve the pages while the block runs."""
        server = _PageServer(site_config(self.site))
        running = asyncio.create_task(server.serve([self._listener]))
        try:
            yield
        finally:
            await self._trying.close()
            server.should_exit = True
            await running


async def _find_story(stories: StoryStore, run: Run) -> str | None:
    """The page about a call from the page Try, by the trace id that it was sent with."""
    for _ in range(_LOOKS):
        for row in await stories.listing(CallQuery(targets=(run.name,))):
            if row.facts and run.trace in decode_facts(row.facts).trace:
                return f"/calls/{row.id}"
        await asyncio.sleep(_BETWEEN_LOOKS)
    return None
