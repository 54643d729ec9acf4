"""Serves a file with reload, and the page about it."""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec

from ekiden.cli.developing.inspector import check_inspector, inspecting
from ekiden.cli.developing.page import DevSite
from ekiden.cli.keys import check_keys, provide_key, use_keys_file
from ekiden.cli.run import listen
from ekiden.cli.serving.job import Job, set_up_logging
from ekiden.cli.serving.supervisor import Report, Supervisor
from ekiden.cli.terminal.screen import say
from ekiden.errors import UsageError
from ekiden.pages.trying.status import ServerStatus
from ekiden.stores import Store, open_store

__all__ = ["DevOptions", "dev"]

_HOST: Final = "127.0.0.1"
"""Nobody else may reach it: it has no protection beyond this machine."""
_USUAL_PAGE_PORT: Final = 8001
_UNSEEN: Final = (
    "The server's store is an object of its own process, so Calls and Tasks cannot be shown here. "
    "Name the store instead, such as store='sqlite:///dev.db', or leave it out."
)


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden dev` was told."""

    job: Job
    port: int
    page_port: int | None
    """The port of the page. None takes the usual one, or any if that is taken."""
    store: str | None
    keys_file: Path | None
    headers: dict[str, str]
    opens: bool | None
    """Whether a browser is opened. None: if there is a display."""
    inspector: bool


def dev(options: DevOptions) -> None:
    """Serve until interrupted."""
    if sys.platform == "win32":
        raise UsageError("ekiden dev does not work on Windows: use `ekiden run`")
    if options.inspector:
        check_inspector()
    use_keys_file(options.keys_file)
    check_keys()
    provide_key()
    set_up_logging(options.job.log_level)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stored(options.store))
        listeners = [stack.enter_context(each) for each in listen(_HOST, options.port, 1)]
        page = stack.enter_context(_page_listener(options.page_port))
        url = f"http://{_HOST}:{listeners[0].getsockname()[1]}{options.job.path}"
        developing = _Developing(options, url, listeners, page)
        with asyncio.Runner() as runner:
            runner.run(developing.run())
    developing.supervisor.end()


@contextlib.contextmanager
def _stored(store: str | None) -> Generator[None, None, None]:
    """The store for a server that names none: the given one, or a file that ends with this command."""
    with contextlib.ExitStack() as stack:
        if store is not None:
            open_store(store)
            os.environ["EKIDEN_STORE"] = store
        elif not os.environ.get("EKIDEN_STORE"):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ekiden-dev-"))
            os.environ["EKIDEN_STORE"] = f"sqlite:///{folder}/dev.db"
        yield


def _page_listener(port: int | None) -> socket.socket:
    if port is not None:
        return listen(_HOST, port, 1)[0]
    try:
        return listen(_HOST, _USUAL_PAGE_PORT, 1)[0]
    except UsageError:
        return listen(_HOST, 0, 1)[0]


class _Developing:
    """One run of `ekiden dev`."""

    def __init__(
        self, options: DevOptions, url: str, listeners: list[socket.socket], page: socket.socket
    ) -> None:
        self._options = options
        self._status = ServerStatus(url)
        self._site = DevSite(page, self._status, options.headers)
        self._told = False
        self._store: Store | None = None
        self._store_name: str | None = None
        self.supervisor = Supervisor(
            options.job,
            listeners,
            1,
            reload=True,
            on_ready=self._ready,
            on_change=self._status.changing,
            on_failure=self._status.failed,
        )

    async def run(self) -> None:
        """Serve until a signal."""
        opens = _has_display() if self._options.opens is None else self._options.opens
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._site.serving())
            if self._options.inspector:
                inspector = inspecting(self._status.where, self._options.headers, opens=opens)
                await stack.enter_async_context(inspector)
            say(f"the page is at {self._site.link}")
            if opens:
                await _open(self._site.link)
            stack.push_async_callback(self._close)
            await self.supervisor.supervise()

    async def _close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def _look_into(self, name: str | None) -> None:
        """Show what is recorded in the server's store, as soon as its name is known."""
        self._status.unseen = ""
        if name is None:
            self._status.unseen = _UNSEEN
            say(f"calls and tasks are not shown: {_UNSEEN}")
        elif self._store is None:
            self._store, self._store_name = open_store(name), name
            self._site.show_calls(self._store)
        elif name != self._store_name:
            self._status.unseen = (
                "The server has another store now: start `ekiden dev` again to see its calls."
            )
            say(self._status.unseen)

    def _ready(self, report: Report) -> None:
        for line in report.lines:
            say(line)
        self._look_into(report.store)
        said = "served again" if self._told else f"served at {self._status.where}"
        say(f"{report.name} is {said}")
        self._told = True
        self._status.serving()


def _has_display() -> bool:
    """Whether a browser can be seen here."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def _open(link: str) -> None:
    import webbrowser

    if not await asyncio.to_thread(webbrowser.open, link):
        say("there is no browser here: open the link yourself")
