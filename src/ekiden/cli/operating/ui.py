"""The pages of a store on a port of their own.

Without `--server` whoever has the link that is printed may look; with it, whoever has an access token that
the server's `auth=` accepts and that grants the scope to look. Values are masked and nothing can be changed,
unless that is allowed.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from ekiden.cli.keys import has_keys, use_keys_file
from ekiden.cli.run import listen
from ekiden.cli.serving.job import set_up_logging
from ekiden.cli.serving.site import bounded_site, site_config
from ekiden.cli.stored_tasks import existing
from ekiden.cli.terminal.screen import say
from ekiden.errors import UsageError
from ekiden.server.serving.loop import new_event_loop
from ekiden.signals import VerifierUnavailable
from ekiden.wire.incoming import Incoming

if TYPE_CHECKING:
    from ekiden.pages.desk import Access
    from ekiden.pages.web import Door, Site
    from ekiden.server.auth.auth import Auth
    from ekiden.stores.store import Store

__all__ = ["UiOptions", "serve_ui"]


class UiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden ui` was told."""

    store: str
    server: str | None
    call: str
    """The id of the call whose link is printed; empty for that of the list."""
    host: str
    port: int
    acts: bool
    values: bool
    scopes: dict[str, str]
    hosts: list[str]
    https: bool
    sealed: bool
    keys_file: Path | None
    log_level: str


def serve_ui(options: UiOptions) -> None:
    """Serve until interrupted."""
    use_keys_file(options.keys_file)
    set_up_logging(options.log_level)
    if options.store == "memory:":
        raise UsageError("a store in memory belongs to one process: name sqlite:///FILE or postgresql://...")
    auth = None if options.server is None else _auth_of(options.server, options.store)
    listener = listen(options.host, options.port, 1)[0]
    with listener, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(options, auth, listener))


def _auth_of(spec: str, store: str) -> "Auth":
    from ekiden.cli.loading import load_server

    os.environ["EKIDEN_STORE"] = store
    server = load_server(spec)
    if server.auth is None:
        raise UsageError(f"{server.name} has no auth=: leave --server out, and use the link")
    return server.auth


async def _serve(options: UiOptions, auth: "Auth | None", listener: socket.socket) -> None:
    store = _opened(options.store, sealed=options.sealed)
    try:
        site, door = _site(options, store, auth, listener)
        origin = f"http{'s' if options.https else ''}://{_hosts(options, listener)[0]}"
        path = f"/calls/{options.call}" if options.call else "/calls"
        link = f"{origin}{path}" if door is None else door.link(origin, path)
        say(f"calls and tasks of the store: {link}")
        await uvicorn.Server(site_config(bounded_site(site, "ekiden ui"))).serve([listener])
    finally:
        await store.close()


def _opened(url: str, *, sealed: bool) -> "Store":
    """The store. What is written into one that is not sealed must not be: its server would not open it."""
    store = existing(url)
    if not sealed:
        return store
    if not has_keys():
        raise UsageError("--sealed needs the keys of the server: set EKIDEN_KEYS, or give --keys-file")
    from ekiden.server.sealing.keys import find_keys
    from ekiden.server.sealing.store import SealedStore

    ring = find_keys(None)
    return SealedStore(store, lambda: ring)


def _hosts(options: UiOptions, listener: socket.socket) -> list[str]:
    port = listener.getsockname()[1]
    here = [f"127.0.0.1:{port}", f"localhost:{port}"]
    return [*options.hosts, *here, f"{options.host}:{port}"]


def _site(
    options: UiOptions, store: "Store", auth: "Auth | None", listener: socket.socket
) -> "tuple[Site, Door | None]":
    """The site, and its door if there is no other way to tell who comes in."""
    from ekiden.pages.desk import Desk, Everybody, Viewer
    from ekiden.pages.desk.access import ByScope
    from ekiden.pages.web import Door, Site

    site = Site(secure=options.https, hosts=_hosts(options, listener), shared={"site_name": "ekiden ui"})
    door: Door | None = None
    access: Access
    if auth is None:
        access = Everybody(Viewer("operator", values=options.values, acts=options.acts))
        door = Door(secure=options.https)
        site.before = door.check
    else:
        access = ByScope(Verifying(auth), options.scopes, secure=options.https, acts=options.acts)
    stories = getattr(store, "stories", None)
    if stories is None:
        raise UsageError("this store keeps no stories")
    desk = Desk(stories=stories, tasks=store.tasks, access=access)
    desk.install(site)
    site.shared["tabs"] = desk.tabs
    return site, door


class Verifying:
    """Verifies access tokens as the server does."""

    def __init__(self, auth: "Auth") -> None:
        self._auth = auth

    async def __call__(self, token: str, address: str | None) -> tuple[str, Any] | None:
        """Who has the token, and its scopes; None if it is not good."""
        try:
            header = b"Bearer " + token.encode("ascii")
        except UnicodeError:
            return None
        incoming = Incoming("GET", "/", {b"authorization": header}, None, b"", address=address)
        refused = self._auth.admit(incoming)
        if refused is not None and not isinstance(refused, tuple):
            refused = await refused
        if refused is not None and refused.status == 503:
            raise VerifierUnavailable(refused.reason)
        if refused is not None or incoming.principal is None:
            return None
        return incoming.principal.subject, incoming.principal.scopes
