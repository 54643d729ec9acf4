"""`Server`: the class that authors use. Creates the parts of a server, and connects it to transports."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, overload

from ekiden.bus.port import Bus
from ekiden.errors import UsageError
from ekiden.rounds.leg import Leg
from ekiden.server.auth.auth import Auth
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.extensions.extension import Extension
from ekiden.server.extensions.installing import install, offer
from ekiden.server.extensions.lifespans import around_extensions
from ekiden.server.legacy.sessions import SessionLimits, Sessions
from ekiden.server.middleware import Middleware
from ekiden.server.mounting.mounting import Mounting
from ekiden.server.operations.card import ServerCard
from ekiden.server.operations.custom_routes import CustomRoutes
from ekiden.server.operations.recording import CallRecording
from ekiden.server.outgoing import OutgoingMiddleware
from ekiden.server.people.minding import minded
from ekiden.server.people.people import People
from ekiden.server.people.port import PeoplePages
from ekiden.server.people.words import without_links
from ekiden.server.registration.catalog import CacheHint
from ekiden.server.registration.decorators import Authoring
from ekiden.server.registration.registry import Registry, unknown_cache_keys
from ekiden.server.registration.tools import CannotAskMode, described
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.sealing.key_source import Keys, KeySource
from ekiden.server.sealing.tokens import RoundLimits, Sealer
from ekiden.server.serving.serving import Serving
from ekiden.server.storage import Storage, once_in, people_store, release, shared_sessions
from ekiden.server.tasks.sources import TaskMap
from ekiden.server.tasks.tasks import Tasks
from ekiden.stores import Store
from ekiden.stores.memory import MemoryStore
from ekiden.stories.events import Recording
from ekiden.stories.recorder import Recorder
from ekiden.stories.store import StoryStore
from ekiden.tasks.runner import TaskLimits
from ekiden.wire import versions
from ekiden.wire.json import JsonObject
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES
from ekiden.wire.modern import Request

if TYPE_CHECKING:  # The official models take 0.3 s to import; code that passes one has imported them.
    from mcp_types import Icon


__all__ = ["Server"]


class Server(Authoring, Serving):
    """An MCP server.

    `lifespan` is a function from the server to an async context manager; what it yields is
    `ctx.state`. `cache` maps list methods (`"tools/list"`, `"server/discover"`, ...) to hints.
    `page_size` None sends each list whole.

    `keys` seal the state of calls that ask: raw secrets, base64 text, a file of them, a function that returns
    them, or an `ekiden.engine.TokenSealer`; without any, `EKIDEN_KEYS` or `EKIDEN_KEYS_FILE`. A file and a
    function are looked at again while the server runs. `store` remembers rounds beyond this process:
    `"sqlite:///path"` or a store object; without one, what `EKIDEN_STORE` names. A store that is given by
    name is closed when the server stops; close a store object yourself. With `seal_store=True`
    arguments, answers and results are sealed with the keys before they are stored. `audience`, by default
    the name, distinguishes servers that share keys. `auth` says who may send requests over HTTP; what belongs
    to one verified identity does not exist for another. `principal` is a function of your own that returns
    whose request it is, in place of that identity.

    Clients of 2025 have sessions, within the limits of `sessions`: in the store, or without one in this
    process. With `stateless_2025=True` they are served without sessions, and cannot be asked anything.
    `experimental_protocol_version="2026-06-XX"` speaks that draft to clients which ask for it.

    `cannot_ask` is for tools that ask what a client did not declare: `"error"` answers with error -32021,
    `"result"` with a result that tells the client's model in words. A tool may have its own. A result of more
    than `result_bytes` is not sent, nor kept for a task: an error says so instead. `extensions` add to the
    protocol; what they intercept runs inside the middleware of the server, in the order of the list. `card`
    is served below the endpoint's path, at `/server-card`. With `pages`, people answer in a browser what no
    client can ask; it needs a store. `record=True`, or a `Recording` with other bounds, does what the method
    `record` does.
    """

    stories: StoryStore | None = None
    """Where it is kept what happens to calls; None unless that is recorded."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        instructions: str | None = None,
        lifespan: Callable[["Server"], AbstractAsyncContextManager[object]] | None = None,
        cache: Mapping[str, CacheHint] | None = None,
        page_size: int | None = None,
        keys: Keys | None = None,
        store: Store | str | None = None,
        seal_store: bool = False,
        audience: str | None = None,
        auth: Auth | None = None,
        principal: Callable[[Request], str | None] | None = None,
        rounds: RoundLimits | None = None,
        sessions: SessionLimits | None = None,
        stateless_2025: bool = False,
        experimental_protocol_version: str | None = None,
        cannot_ask: CannotAskMode = "error",
        tasks: TaskLimits | None = None,
        extensions: Sequence[Extension] = (),
        card: ServerCard | None = None,
        pages: PeoplePages | None = None,
        result_bytes: int = MOST_RESULT_BYTES,
        record: Recording | bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_options(page_size, cache or {}, experimental_protocol_version)
        self.name, self.version, self._audience = name, version, audience or name
        self._auth, self._clock = auth, clock
        self._principal = principal or (None if auth is None else _verified)
        labels = {"title": title, "description": description, "website_url": website_url, "icons": icons}
        info = described({"name": name, "version": version}, **labels)
        registry = Registry(info, instructions, cache or {}, page_size, result_bytes)
        registry.speaks_draft = experimental_protocol_version is not None
        self._card = None if card is None else _card_page(card, info, auth)
        self._custom_routes = CustomRoutes()
        self._keys = KeySource(keys, warn=lambda: not self._has_one_client)
        self._storage = Storage(store, keys, self._keys, seals=seal_store)
        self._store = self._storage.store
        Mounting.__init__(self)
        super().__init__(
            registry,
            has_store=self._store is not None,
            has_tasks_store=self._storage.tasks is not None,
            cannot_ask=cannot_ask,
            has_auth=auth is not None,
        )
        if self._storage.bus is not None:
            self.share_changes(self._storage.bus)
        self._rounds = self._make_rounds(rounds or RoundLimits(), tasks or TaskLimits())
        people = None if pages is None else self._ask_people(pages, title or name)
        self._make_endpoint(lifespan, people, extensions, sessions or SessionLimits(), stateless_2025)
        if record:
            self.record(None if record is True else record)

    # The parts, in the order in which the constructor makes them

    def _make_rounds(self, limits: RoundLimits, tasks: TaskLimits) -> Rounds:
        registry, principal, clock = self._registry, self._principal, self._clock
        sealer = Sealer(self._audience, self._keys.sealer, self._store, principal, limits, clock)
        standby, most_bytes = self._storage.standby(limits, tasks), registry.dialect.most_bytes
        rounds = Rounds(sealer, once_in(self._store, limits, most_bytes, clock, standby), clock)
        if (kept := self._storage.tasks) is not None:
            making, audience = rounds.making, self._audience
            made = Tasks(kept, registry, audience, principal, tasks, clock, making, standby)
            rounds.offer_tasks(made, registry)
        return rounds

    def _ask_people(self, pages: PeoplePages, title: str) -> People:
        """Let people answer on pages what no client can be asked."""
        kept = people_store(self._store, pages, self._auth)
        keys, clock = self._keys.sealer, self._clock
        people = People(kept, pages, audience=self._audience, name=title, keys=keys, clock=clock)
        people.describe = self._registry.describe
        self._rounds.ask_people(people)
        self._custom_routes.add(pages.path, (), pages.application(people), is_secret=True)
        return people

    def _make_endpoint(
        self,
        lifespan: Callable[["Server"], AbstractAsyncContextManager[object]] | None,
        people: People | None,
        extensions: Sequence[Extension],
        limits: SessionLimits,
        stateless_2025: bool,
    ) -> None:
        registry = self._registry
        task_map = TaskMap(self._rounds.task_methods, registry)
        registry.extensions.add(task_map.extension)
        living = offer(extensions, registry, has_auth=self._auth is not None)
        own = None if lifespan is None else functools.partial(lifespan, self)
        enter = around_extensions(own, living, registry)
        self.endpoint = ServerEndpoint(
            registry,
            self._rounds,
            task_map,
            enter if people is None else minded(enter, people),
            functools.partial(
                Sessions,
                registry=registry,
                principal=self._principal,
                limits=limits,
                stateless=stateless_2025,
                draft=registry.speaks_draft,
                shared=shared_sessions(self._store, self._audience, limits, self._clock),
            ),
            release=functools.partial(release, self._auth, self._store if self._storage.is_own else None),
        )
        if self._auth is not None:
            self.endpoint.guard(self._auth)
        install(extensions, living, self.endpoint, self)

    # The store

    @property
    def store_name(self) -> str | None:
        """Such as `sqlite:///path`; None if the store was given as an object, or not at all."""
        return self._storage.name

    @property
    def shares_tasks(self) -> bool:
        """Whether workers in other processes see this server's tasks."""
        return self._storage.is_shared

    def record(self, recording: Recording | None = None) -> None:
        """Record what happens to calls and tasks from now on: for the pages of `ekiden dev` and `ekiden ui`.

        It is kept in the store, where other processes see it too; without one, in this process. It is written
        beside the calls, in batches, and is bounded by `recording`. Call it before the server starts.
        """
        kept: StoryStore | None = getattr(self._store, "stories", None)
        stories = self.stories = MemoryStore().stories if kept is None else kept
        recorder = Recorder(stories, recording or Recording(), self._audience, self._clock)
        if self._rounds.people is not None:
            recorder.hide = without_links
        self.endpoint.record(CallRecording(recorder, self._rounds.principal_of))

    # Around requests

    @overload
    def middleware(self, function: Middleware) -> Middleware: ...
    @overload
    def middleware(self, *, tasks: bool = False) -> Callable[[Middleware], Middleware]: ...
    def middleware(self, function: Middleware | None = None, *, tasks: bool = False) -> Any:
        """Register `async def f(request, call_next)`, called around every message of a client.

        `await call_next(request)` gives the outcome. The first registered is the outermost. `request.kind`
        tells requests from notifications, answers to pushed questions, and the GET and DELETE of sessions; of
        those, only a refusal counts. With `tasks=True` it is called around every leg of a task too:
        `request.task` is then its id.
        """
        if function is not None:
            self.endpoint.wrap(function, tasks=tasks)
            return function

        def register(decorated: Middleware) -> Middleware:
            self.endpoint.wrap(decorated, tasks=tasks)
            return decorated

        return register

    def outgoing(self, function: OutgoingMiddleware) -> OutgoingMiddleware:
        """Register `async def f(message, send)`, called with every message before it is sent.

        `await send(message)` passes it on, changed or not; without that it is dropped. The last registered
        sees it first.
        """
        self.endpoint.watch_outgoing(function)
        return function

    @property
    def extensions(self) -> tuple[str, ...]:
        """The identifiers of the extensions that it declares as of now, that of tasks among them."""
        return tuple(self._registry.extensions.capabilities())

    def share_changes(self, bus: Bus) -> None:
        """Tell other processes of changes over `bus`, unless the store has one. Call it before the start."""
        self._registry.hub.connect(bus, self._audience)

    def observe(self, tool: str, watch: Callable[[Leg], None]) -> None:
        """For `ekiden.testing`: call `watch` with every leg before it runs. `tool` must be registered."""
        if self._registry.tools.get(tool) is None:
            raise UsageError(f"there is no tool {tool!r} to observe")
        self._rounds.watch = watch


def _check_options(page_size: int | None, cache: Mapping[str, CacheHint], experimental: str | None) -> None:
    if page_size is not None and page_size < 1:
        raise UsageError("page_size must be at least 1, or None to send each list whole")
    if unknown := unknown_cache_keys(cache):
        raise UsageError(f"cache= has keys that are not cacheable lists: {', '.join(sorted(unknown))}")
    if experimental not in (None, versions.DRAFT):
        raise UsageError(f"the only experimental protocol version is {versions.DRAFT!r}")


def _card_page(card: ServerCard, info: JsonObject, auth: Auth | None) -> JsonObject:
    known = (*versions.SUPPORTED, *versions.LEGACY)
    return card.document(info, known, None if auth is None else auth.resource)


def _verified(request: Request) -> str | None:
    """Whose request it is, by its access token."""
    return None if request.principal is None else request.principal.id
