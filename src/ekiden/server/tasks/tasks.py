"""Tasks as clients see them (SEP-2663): how a call becomes one, and the `tasks/` methods.

Every task belongs to its principal and to this server: for everybody else it does not exist.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import InvalidParams, MissingCapability, StoreUnavailable, UsageError
from ekiden.rounds.asks import declares
from ekiden.rounds.claims import Claims
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.outcome import Complete, Outcome, Task
from ekiden.server.middleware import Middleware
from ekiden.server.registration.registry import Registry
from ekiden.server.registration.results import Ending
from ekiden.server.registration.tools import Tool
from ekiden.server.subscriptions import Change, Filter, Subscription
from ekiden.server.tasks.handler import ToolWork
from ekiden.server.tasks.input_required import carried, given_answers
from ekiden.server.tasks.legacy import LegacyTasks, wished_ttl
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.runner import Runner, TaskLimits
from ekiden.tasks.store import Glance, Held, Signal, TaskStore
from ekiden.tasks.view import created_view, view
from ekiden.telemetry.spans import current_trace
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import canonical, encode, is_object
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from ekiden.wire.modern import Request
from ekiden.wire.tasks import NEEDED, NOTIFICATION, RELATED, as_dict

__all__ = ["Tasks"]

_log = logging.getLogger("ekiden.tasks")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""How the ids of tasks are spelled."""


class Listener(Protocol):
    """Whoever is told that a task has changed."""

    def offer(self, change: Change) -> None:
        """Take notice, from any thread."""
        ...


class Tasks:
    """The tasks of one server."""

    def __init__(
        self,
        store: TaskStore,
        registry: Registry,
        *,
        audience: str,
        principal: Callable[[Request], str | None] | None,
        limits: TaskLimits,
        clock: Callable[[], float],
    ) -> None:
        self.store = store
        self.limits = limits
        self.runner = Runner(
            store, self._find, tools=self._tools, audience=audience, clock=clock, limits=limits
        )
        self._registry = registry
        self.audience = audience
        self._principal = principal
        self._clock = clock
        self.layers: list[Middleware] = []
        """The middleware around every leg."""
        self._ending: Callable[[Tool], Ending] | None = None
        self._state: Any = None
        self._started = False
        self._listeners: dict[str, set[Listener]] = {}
        self._unwatch: Callable[[], None] | None = None
        self.legacy = LegacyTasks(self)
        """The same tasks, for clients with a handshake."""

    # Coming and going

    def use(self, ending: Callable[[Tool], Ending]) -> None:
        """How a tool's end becomes an outcome; the dispatcher knows."""
        self._ending = ending

    def limit(self, **changes: float) -> None:
        """Change the limits; before the start."""
        self.limits = self.runner.limits = msgspec.structs.replace(self.limits, **changes)

    async def start(self, state: Any) -> None:
        """Begin to run tasks, if there are tools for them. `state` is what the lifespan yielded."""
        self._state = state
        if self._started or not self._registry.has_tasks:
            return
        self._started = True
        try:
            await self.store.check()
        except StoreUnavailable as problem:
            _log.warning("Tasks have to wait for their store: %s", problem)
        except UsageError:
            self._started = False
            raise
        await self.runner.start()

    async def stop(self) -> None:
        """Hand over what runs here."""
        if self._started:
            self._started = False
            await self.runner.stop()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _find(self, record: TaskRecord) -> ToolWork | None:
        tool = self._registry.tools.get(record.tool)
        if tool is None or tool.handler.task == "never" or self._ending is None:
            return None
        return ToolWork(tool, record, self._state, self._ending(tool), self.layers)

    def _tools(self) -> list[str]:
        """The tools whose tasks are run here: an older version of the server leaves newer ones to others."""
        return [tool.key for tool in self._registry.tools if tool.handler.task != "never"]

    # Becoming a task

    def wanted_by(self, request: Request) -> bool:
        """Whether the client can be given a task: by what it declares, and in the draft, what it asks for."""
        if request.meta.protocol_version == versions.DRAFT:
            return request.params.get("task") is not None
        return declares(request.meta.capabilities, NEEDED)

    async def from_start(self, request: Request, claims: Claims, *, required: bool) -> Outcome | None:
        """The task that a whole call becomes; None if the client has none and it can do without."""
        if not self.wanted_by(request):
            if required:
                raise MissingCapability(NEEDED)
            return None
        return await self.create(request, claims, {})

    async def create(
        self,
        request: Request,
        claims: Claims,
        journal: Mapping[str, Entry],
        wishes: tuple[float | None, float | None] = (None, None),
    ) -> Task:
        """Make a call a task; it is kept before this returns. One call becomes at most one task."""
        ttl, poll = wishes
        if ttl is None and request.meta.protocol_version != versions.MODERN:
            ttl = wished_ttl(request, self.limits.ttl_seconds)
        now = self._clock()
        journal = {**carried(request, claims), **journal}
        record = TaskRecord(
            id=secrets.token_hex(16),  # Letters and digits: to a shell, a dash would begin an option.
            flow=claims.flow,
            answers=_answers(journal),
            audience=self.audience,
            tool=request.name or "",
            principal=claims.principal,
            arguments=request.params.get("arguments", {}),
            meta=_meta(request),
            started=claims.started,
            created=now,
            updated=now,
            ttl=self.limits.ttl_seconds if ttl is None else ttl,
            poll=self.limits.poll_seconds if poll is None else poll,
            due=now,
            trace=current_trace(),
        )
        # Shielded: a client that leaves now leaves a task behind that is kept and run.
        kept = await asyncio.shield(self._keep(record, journal))
        if kept.answers != record.answers:
            raise InvalidParams("This call has become a task with other answers before")
        return Task(created_view(kept))

    async def _keep(self, record: TaskRecord, journal: Mapping[str, Entry]) -> TaskRecord:
        await self.start(self._state)
        asked = self.runner.reserve()
        if asked is None:
            return await self.store.insert(record, journal)
        # Claimed as it is made: that saves a transaction.
        record.state, record.fence = "running", 1
        record.due = asked.wall + self.limits.lease_seconds
        held: Held | None = None
        try:
            kept = await self.store.insert(record, journal)
            if kept.id == record.id:
                held = Held(record, dict(journal))
        finally:
            self.runner.settle(held, asked)
        return kept

    # The methods

    async def get(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/get`."""
        seen = await self._mine(request)
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.get(seen.record)
        if seen.spelled is None:
            seen.spelled = self._registry.dialect.detailed_task(view(seen.record))
        return Complete(seen.spelled)

    async def update(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/update`; in the draft, `tasks/input_response`."""
        record = (await self._mine(request)).record
        responses = request.params.get("inputResponses")
        if not is_object(responses):
            raise InvalidParams("Invalid params: `inputResponses` is required and must be an object")
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.answer(record, responses)
        await self.answer_record(record, responses)
        return Complete({})

    async def answer_record(self, record: TaskRecord, responses: Mapping[str, Any]) -> None:
        """Keep answers to a task's questions."""
        await self.store.answer(record.id, responses, now=self._clock())

    async def cancel(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/cancel`."""
        record = (await self._mine(request)).record
        if request.meta.protocol_version != versions.MODERN:
            return await self.legacy.cancel(record)
        await self.cancel_record(record)
        return Complete({})

    async def cancel_record(self, record: TaskRecord) -> None:
        """Ask for a task to be cancelled."""
        tool = self._registry.tools.get(record.tool)
        tidy = tool is None or tool.on_cancel is not None
        await self.store.cancel(record.id, now=self._clock(), tidy=tidy)

    async def result(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/result`, for clients with a handshake."""
        record = (await self._mine(request)).record
        return await self.legacy.result(record, request, stream)

    async def list(self, request: Request, stream: Stream) -> Outcome:
        """`tasks/list`, for those of them that have a principal."""
        return await self.legacy.list(self._who(request), request.params.get("cursor"))

    def now(self) -> float:
        """The time."""
        return self._clock()

    async def _mine(self, request: Request) -> Glance:
        """The task that a request is about, if it is the requester's."""
        if request.meta.protocol_version == versions.MODERN and not self.wanted_by(request):
            raise MissingCapability(NEEDED)
        seen = await self.visible(_task_id(request), self._who(request))
        if seen is None:
            raise InvalidParams("Unknown task")
        return seen

    def _who(self, request: Request) -> str:
        return "" if self._principal is None else self._principal(request) or ""

    async def visible(self, task_id: str, principal: str) -> Glance | None:
        """A task, if it is that principal's."""
        if not _ID.fullmatch(task_id):
            return None  # None of ours, and perhaps nothing that a store can look up.
        seen = await self.store.glance(task_id)
        if seen is None or seen.record.principal != principal or seen.record.audience != self.audience:
            return None
        return seen

    # Listening

    async def grant(self, request: Request, wanted: Filter) -> tuple[str, ...]:
        """The tasks of a subscription that are the requester's."""
        if not wanted.tasks:
            return ()
        if not self.wanted_by(request):
            raise MissingCapability(NEEDED)
        who = self._who(request)
        return tuple([task_id for task_id in wanted.tasks if await self.visible(task_id, who) is not None])

    async def follow(
        self, subscription: Subscription, granted: Filter, stream: Stream, acknowledged: dict[str, Any]
    ) -> None:
        """Acknowledge a subscription, tell how its tasks are, and then whatever changes."""
        for task_id in granted.tasks:
            self.hear(task_id, subscription)
        tag = {"_meta": acknowledged["_meta"]}
        told: dict[str, dict[str, Any]] = {}
        try:
            await stream.notify("notifications/subscriptions/acknowledged", acknowledged)
            for task_id in granted.tasks:
                subscription.offer(Change(NOTIFICATION, task_id))
            async for change in subscription:
                if change.method != NOTIFICATION or change.uri is None:
                    await stream.notify(change.method, {**tag, **change.params()})
                elif (params := await self._news(change.uri, told)) is not None:
                    await stream.notify(NOTIFICATION, {**tag, **params})
        finally:
            for task_id in granted.tasks:
                self.unhear(task_id, subscription)

    def hear(self, task_id: str, listener: Listener) -> None:
        """Tell a listener whenever a task changes, until `unhear`."""
        if self._unwatch is None:
            self._unwatch = self.store.watch(self._on_signal)
        self._listeners.setdefault(task_id, set()).add(listener)

    def unhear(self, task_id: str, listener: Listener) -> None:
        """Tell it no more."""
        listeners = self._listeners.get(task_id, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(task_id, None)

    async def _news(self, task_id: str, told: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
        """A task as it is now; None if it is gone, or as the subscriber knows it."""
        record = await self.store.load(task_id)
        if record is None:
            return None
        params = as_dict(view(record))
        if params == told.get(task_id):
            return None
        told[task_id] = params
        return params

    def _on_signal(self, signal: Signal) -> None:
        for listener in tuple(self._listeners.get(signal.task_id, ())):
            listener.offer(Change(NOTIFICATION, signal.task_id))


def _meta(request: Request) -> dict[str, Any]:
    """What the request said about itself, or its session for it."""
    meta = request.meta
    said = {PROTOCOL_VERSION: meta.protocol_version, CLIENT_CAPABILITIES: meta.capabilities}
    return {**meta.fields, **said, CLIENT_INFO: meta.client_info}


def _task_id(request: Request) -> str:
    """The task that a request names: with a parameter, or, in the draft, in its `_meta`."""
    if request.name is not None:
        return request.name
    task_id = request.params.get("taskId")
    if task_id is None and is_object(related := request.meta.fields.get(RELATED)):
        task_id = related.get("taskId")
    if type(task_id) is not str:
        raise InvalidParams("Invalid params: `taskId` is required and must be a string")
    return task_id


def _answers(journal: Mapping[str, Entry]) -> str:
    """What was answered on the way to becoming a task."""
    given = {key: entry.value for key, entry in journal.items() if entry.kind == "answer"}
    given.update({key: given_answers(entry) for key, entry in journal.items() if entry.kind == "manual"})
    return fingerprint(canonical(given)) if given else fingerprint(encode(None))
