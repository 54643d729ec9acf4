"""`Proxy`: one upstream as a server of ours, which can be served, or mounted in another."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from ekiden.client.connection import ServerConnection
from ekiden.client.listening import changes
from ekiden.client.lists import read_list
from ekiden.client.target import ClientLimits, Target, is_url
from ekiden.client.tools import KnownTools
from ekiden.errors import EkidenError, MethodNotFound, ServerError
from ekiden.gateway.connector import Connector
from ekiden.gateway.entries import (
    ForwardedPrompt,
    ForwardedResource,
    ForwardedTool,
    Forwarding,
    Unlisted,
    definitions,
)
from ekiden.gateway.forwarding import Forwarder
from ekiden.gateway.outgoing import with_extension
from ekiden.gateway.sessions import want_log
from ekiden.gateway.task_ids import TaskIds
from ekiden.gateway.tasks import SealedTasks
from ekiden.gateway.upstream import Upstream
from ekiden.gateway.watched import chosen
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.middleware import Run
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.server.sealing.tokens import RoundLimits
from ekiden.server.server import Server
from ekiden.server.subscriptions import RESOURCE_UPDATED
from ekiden.transports.client.complaints import Complaints
from ekiden.transports.server.port import Stream
from ekiden.wire.extensions.names import UI
from ekiden.wire.headers import find_mirrored_params
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.modern import Request

__all__ = ["Proxy", "proxy"]

_log = logging.getLogger(__name__)

_LISTS: Final = (
    ("tools", "tools/list", "tools"),
    ("prompts", "prompts/list", "prompts"),
    ("resources", "resources/list", "resources"),
    ("resourceTemplates", "resources/templates/list", "resources"),
)
"""What is listed, by which method, and the capability that says that there is any."""
_REFRESH_SECONDS: Final = 60.0
"""How often lists are read again although no change was told: not every server tells."""
_CALM_SECONDS: Final = 0.05
"""How long to wait after a change: others often follow it."""
_REST: Final = 10
"""How many times as long as the lists took to read, they are not read again. So an upstream that tells of
changes all the time takes a tenth of the gateway's at most."""
_LONGEST_REST: Final = 60.0
_LIMITS: Final = ClientLimits(state_bytes=256 * 1024, arriving_bytes=256 * 1024 * 1024, values=250_000)
"""An upstream's state travels inside ours, which is a third longer, and with every round. And how many calls
wait for one upstream is for clients to say, while others need the memory too. And while a message is decoded,
the calls of all other upstreams wait."""
_ROUNDS: Final = RoundLimits(state_bytes=512 * 1024)


class Proxy(Server):
    """A server whose tools, prompts and resources are those of an upstream.

    `wait_seconds` is how long the start waits for the upstream. One that comes later is used from then on.
    All other options are those of `Server`.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        limits: ClientLimits | None = None,
        rounds: RoundLimits | None = None,
        wait_seconds: float = 10.0,
        **options: Any,
    ) -> None:
        audience = f"upstream:{upstream.name}"
        super().__init__(
            upstream.name,
            audience=audience,
            lifespan=lambda _: self._connected(),
            rounds=rounds or _ROUNDS,
            **options,
        )
        self._upstream = upstream
        self._limits = limits or _LIMITS
        self._wait_seconds = wait_seconds
        self._tools = KnownTools(mirrors=is_url(upstream.target))
        self._complain = Complaints(_log, about=upstream.name)
        self.connector = Connector(
            upstream,
            self._limits,
            on_open=self._opened,
            while_open=self._follow,
            on_change=self._availability,
        )
        ids = TaskIds(audience, self._keys.sealer, self._rounds.principal_of)
        forwarder = Forwarder(self.connector, self._tools, ids, self._limits, self._rounds.owner_of)
        self._forwarder = forwarder
        self._by_rounds = Forwarding(forwarder.by_rounds, parked=False, completes=self._complete)
        self._parked = Forwarding(forwarder.parked, parked=True, completes=self._complete)
        self._capabilities: Mapping[str, Any] = {}
        self._stale, self._rewatch = asyncio.Event(), asyncio.Event()
        registry = self._registry
        registry.completions.elsewhere.append(lambda: "completions" in self._capabilities)
        registry.tasks_elsewhere.append(lambda: with_extension(self._capabilities))
        registry.extensions.add(
            OfferedExtension(identifier=UI, is_offered=lambda: with_extension(self._capabilities, UI))
        )
        registry.declare_all()
        registry.unknown.append(self._find)
        registry.hub.on_watched.append(lambda: self._rewatch.set())
        self.endpoint.task_map.sources.append(SealedTasks(self.connector, forwarder, ids))

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[None, None]:
        """Keep the upstream connected while the server runs."""
        self._stale, self._rewatch = asyncio.Event(), asyncio.Event()
        self.connector.begin()
        running = asyncio.create_task(self.connector.run())
        try:
            if self._wait_seconds:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._wait_seconds):
                        await self.connector.first_attempt()
            yield
        finally:
            running.cancel()
            await asyncio.wait({running})

    def _availability(self, why: str | None) -> None:
        """Say in the lists whether the upstream can be reached."""
        unavailable = self._registry.unavailable
        if unavailable.get(self.name) != why:
            unavailable.pop(self.name, None)
            if why is not None:
                unavailable[self.name] = why
            self._registry.availability_changed()

    def _find(self, name: str) -> Run | None:
        """Who answers a call of an unknown name: if the upstream was not reached, it may have that."""
        return self._after_connecting if self.connector.connection is None else None

    async def _after_connecting(self, request: Request, stream: Stream) -> Outcome:
        await self.connector.reach()
        return await self.endpoint.answer(request, stream)

    # What is listed

    async def _opened(self, connection: ServerConnection) -> None:
        session = connection.session
        self._capabilities = session.capabilities
        self._registry.instructions = session.instructions
        await want_log(connection)
        await self._refresh(connection)

    async def _refresh(self, connection: ServerConnection) -> None:
        """Read all lists of the upstream."""
        forwarding = self._parked if connection.session.era == "legacy" else self._by_rounds
        listed = {what: await self._read(connection, what, *about) for what, *about in _LISTS}
        listed["tools"] = [tool for tool in self._tools.learn(listed["tools"]) if self._is_callable(tool)]
        registry = self._registry
        registry.unlisted[:] = [Unlisted(forwarding)]
        _exchange(registry.tools, [ForwardedTool(each, forwarding) for each in listed["tools"]])
        _exchange(registry.prompts, [ForwardedPrompt(each, forwarding) for each in listed["prompts"]])
        _exchange(registry.resources, [ForwardedResource(each, forwarding) for each in listed["resources"]])
        templates = [ForwardedResource(each, forwarding) for each in listed["resourceTemplates"]]
        _exchange(registry.templates, templates)
        registry.changed()

    async def _read(
        self, connection: ServerConnection, what: str, method: str, capability: str
    ) -> list[JsonObject]:
        if capability not in self._capabilities:
            return []
        try:
            items = await read_list(connection.exchange, method, what, self._limits)
        except ServerError as error:
            if error.code != MethodNotFound.default_code:
                raise
            items = []  # Many servers have resources, but no templates.
        return await definitions(what, items, self._complain)

    def _is_callable(self, tool: JsonObject) -> bool:
        """Whether a tool can be listed here: what its schema mirrors in headers must be well-formed."""
        try:
            find_mirrored_params(tool["inputSchema"])
        except (ValueError, RecursionError) as error:
            self._complain("its tool '%s' is left out: %s", tool["name"], error)
            return False
        return True

    # Changes

    async def _follow(self, connection: ServerConnection) -> None:
        """Hear of changes, and read the lists again after one."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(connection, self._told_of()))
            group.create_task(self._listen(connection))
            group.create_task(self._keep_fresh(connection))

    async def _keep_fresh(self, connection: ServerConnection) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await self._stale.wait()
            await asyncio.sleep(_CALM_SECONDS)
            self._stale.clear()
            begun = time.monotonic()
            try:
                async with asyncio.timeout(self._upstream.timeout):
                    await self._refresh(connection)
            except (EkidenError, TimeoutError) as error:
                self._complain("its lists could not be read again: %s", error)
                self.connector.suspect()
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _LONGEST_REST))

    async def _listen(self, connection: ServerConnection) -> None:
        """Keep a subscription to the resources that are watched here.

        That to lists is another one: whatever clients watch, all of them hear of changed lists.
        """
        while True:
            self._rewatch.clear()
            uris = self._watched()
            listening = asyncio.create_task(self._hear(connection, {}, uris))
            try:
                while self._watched() == uris:
                    await self._rewatch.wait()
                    await asyncio.sleep(_CALM_SECONDS)
                    self._rewatch.clear()
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    def _watched(self) -> tuple[str, ...]:
        return chosen(self._registry.hub.watched_by_each())

    def _told_of(self) -> dict[str, bool]:
        """The lists that the upstream has."""
        kinds = ("tools", "prompts", "resources")
        return {f"{name}ListChanged": is_object(self._capabilities.get(name)) for name in kinds}

    async def _hear(
        self, connection: ServerConnection, wanted: Mapping[str, bool], uris: tuple[str, ...] = ()
    ) -> None:
        if not uris and not wanted:
            return
        try:
            asked = changes(connection, wanted, uris, reconnect=True, is_lenient=True)
            async with aclosing(asked) as stream:
                async for change in stream:
                    params = change.get("params")
                    if change.get("method") != RESOURCE_UPDATED:
                        self._stale.set()
                    elif is_object(params) and isinstance(uri := params.get("uri"), str):
                        self.resource_updated(uri)
        except EkidenError as error:
            _log.debug("%s tells of no changes: %s", self.name, error)

    async def _complete(self, request: Request, stream: Stream) -> Outcome:
        return Complete(await self._forwarder.pass_on(request, _completion(request.params)))


def _completion(params: JsonObject) -> JsonObject:
    return {name: params[name] for name in ("ref", "argument", "context") if name in params}


def _exchange(catalog: Catalog[Any], entries: list[Any]) -> None:
    catalog.exchange([entry.key for entry in catalog], entries)


def proxy(
    target: Target,
    *,
    name: str = "upstream",
    headers: Mapping[str, str] | None = None,
    forward_headers: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float = 300.0,
    sessions: int | None = None,
    **options: Any,
) -> Proxy:
    """The server at `target` as a `Server`: to be served, or mounted in another.

    `target` is a URL, a command, a file, or a server in this process. `headers` are sent with every request
    to it, `forward_headers` are names of headers that are sent on from each client's request. `sessions` is
    how many principals may have a session with a server of 2025 at once. The other options are those of
    `Proxy`.
    """
    upstream = Upstream(
        name=name,
        target=target,
        headers=dict(headers or {}),
        forward_headers=forward_headers,
        env=dict(env or {}),
        cwd=cwd,
        timeout=timeout,
        sessions=sessions,
    )
    return Proxy(upstream, **options)
