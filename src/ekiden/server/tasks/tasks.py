"""The tasks of one server: how a call becomes a task, who may see it, and how its changes are published.

Every task belongs to one principal and one server; for others it does not exist.
"""

import asyncio
import logging
import math
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import InvalidParams, MissingCapability, StoreUnavailable, UsageError
from ekiden.rounds.asks import declares
from ekiden.rounds.call_state import CallState
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.outcome import Outcome, Task
from ekiden.server.making import Making
from ekiden.server.middleware import Middleware
from ekiden.server.registration.registry import Registry
from ekiden.server.subscriptions import Change
from ekiden.server.tasks.handler import PRINCIPAL, ToolWork
from ekiden.server.tasks.input_required import carried, given_answers
from ekiden.server.tasks.quota import TaskQuota
from ekiden.server.tasks.with_people import TaskPeople
from ekiden.stories.recorder import Recorder
from ekiden.tasks.leases.standby import Standby
from ekiden.tasks.record import TaskRecord, encode_record
from ekiden.tasks.runner import Runner, TaskLimits
from ekiden.tasks.store import Glance, Held, Signal, TaskStore
from ekiden.tasks.view import created_view, view
from ekiden.telemetry.context import current_trace
from ekiden.telemetry.metrics import is_metered
from ekiden.telemetry.tasks import TaskMetrics
from ekiden.transports.server.shares import named_by
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, canonical, encode, is_object
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from ekiden.wire.modern import Request
from ekiden.wire.tasks import EXTENSION, NEEDED, NOTIFICATION, TaskView

__all__ = ["Listener", "Tasks", "wished_ttl"]

_log = logging.getLogger(__name__)

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""How the ids of tasks are spelled."""


class Listener(Protocol):
    """Gets the changes of a task."""

    def offer(self, change: Change) -> None:
        """Queue a change. Called from any thread."""
        ...


class Tasks:
    """The tasks of one server."""

    def __init__(
        self,
        store: TaskStore,
        registry: Registry,
        audience: str,
        principal: Callable[[Request], str | None] | None,
        limits: TaskLimits,
        clock: Callable[[], float],
        making: Making,
        standby: Standby | None = None,
    ) -> None:
        self.store = store
        self.limits = limits
        self._metrics = TaskMetrics()
        self.runner = Runner(
            store,
            self._find,
            tools=self._tools,
            audience=audience,
            clock=clock,
            limits=limits,
            observer=self._metrics,
            result_bytes=registry.dialect.most_bytes,
            standby=standby,
        )
        self._registry = registry
        self.audience = audience
        self._principal = principal
        self._clock = clock
        self._making = making
        self._quota = TaskQuota(limits, clock)
        self.layers: list[Middleware] = []
        """The middleware around every leg."""
        self.people: TaskPeople | None = None
        """Puts questions to people on pages; None if the server has none."""
        self.recorder: Recorder | None = None
        """Where it is kept what happens in each leg, if anywhere."""
        self._state: object = None
        self._started = False
        self._listeners: dict[str, set[Listener]] = {}
        self._unwatch: Callable[[], None] | None = None

    # Starting and stopping

    def limit(self, **changes: float) -> None:
        """Change the limits. Call it before the start."""
        self.limits = self.runner.limits = msgspec.structs.replace(self.limits, **changes)

    async def start(self, state: object) -> None:
        """Start running tasks, if a tool can become one. `state` is what the lifespan yielded."""
        self._state = state
        if self._started or not self._registry.has_tasks:
            return
        self._started = True
        try:
            await self.store.check()
        except StoreUnavailable as problem:
            _log.warning("Tasks wait for their store: %s", problem)
        except UsageError:
            self._started = False
            raise
        await self.runner.start()

    def forget(self) -> None:
        """Begin anew: the event loop in which tasks ran is closed."""
        if self._started:
            self._started = False
            self.runner.forget()
            self._quota = TaskQuota(self.limits, self._clock)

    async def stop(self) -> None:
        """Stop running tasks, and leave them to other workers."""
        if self._started:
            self._started = False
            await self.runner.stop()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _find(self, record: TaskRecord) -> ToolWork | None:
        tool = self._registry.tools.get(record.tool)
        if tool is None or tool.handler.task == "never":
            return None
        return ToolWork(tool, record, self._state, self._making, self.layers, self.people, self.recorder)

    def _tools(self) -> list[str]:
        """The tools whose tasks run here. Tasks of tools that this version lacks are left to others."""
        return [tool.key for tool in self._registry.tools if tool.handler.task != "never"]

    def tell_apart(self, principal: Callable[[Request], str | None]) -> None:
        """Distinguish principals from now on."""
        self._principal = principal

    # Becoming a task

    def wanted_by(self, request: Request) -> bool:
        """Whether the client accepts a task: by what it declares, in the draft by `task` in its call."""
        if request.meta.protocol_version == versions.DRAFT:
            return request.params.get("task") is not None
        return declares(request.meta.capabilities, NEEDED)

    async def from_start(self, request: Request, state: CallState, *, required: bool) -> Outcome | None:
        """Create a task at the start of a call; None if the client has no tasks and none is required."""
        if not self.wanted_by(request):
            if required:
                text = (
                    f"Tool {request.name!r} runs as a task only: declare the extension {EXTENSION} to call it"
                )
                raise MissingCapability(NEEDED, text)
            return None
        return await self.create(request, state, {})

    async def create(
        self,
        request: Request,
        state: CallState,
        journal: Mapping[str, Entry],
        wishes: tuple[float | None, float | None] = (None, None),
    ) -> Task:
        """Turn a call into a task, which is stored before this returns. One call becomes at most one task."""
        ttl, poll = wishes
        if ttl is None and request.meta.protocol_version != versions.MODERN:
            ttl = wished_ttl(request, self.limits.ttl_seconds)
        now = self._clock()
        journal = {**carried(request, state), **journal}
        record = TaskRecord(
            id=secrets.token_hex(16),  # Letters and digits: to a shell, a dash would begin an option.
            flow=state.flow,
            answers=_answers(journal),
            audience=self.audience,
            tool=request.name or "",
            principal=state.principal,
            arguments=request.params.get("arguments", {}),
            meta=_meta(request),
            started=state.started,
            created=now,
            updated=now,
            ttl=self.limits.ttl_seconds if ttl is None else ttl,
            poll=self.limits.poll_seconds if poll is None else poll,
            due=now,
            trace=current_trace(),
        )
        size = len(encode_record(record))
        quota = self._quota
        await quota.take(self.store, self.audience, record.principal, size, named_by(request.address))
        # Shielded: if the client disconnects now, the task is stored and run nevertheless.
        kept = await asyncio.shield(self._keep(record, journal, quota, size))
        if kept.answers != record.answers:
            raise InvalidParams("This call has become a task before, with other answers")
        if kept.id == record.id:
            self._metrics.created(record.tool)
        return Task(created_view(kept))

    async def _keep(
        self, record: TaskRecord, journal: Mapping[str, Entry], quota: TaskQuota, size: int
    ) -> TaskRecord:
        try:
            return await self._insert(record, journal)
        finally:
            quota.give_back(record.principal, size)

    async def _insert(self, record: TaskRecord, journal: Mapping[str, Entry]) -> TaskRecord:
        await self.start(self._state)
        asked = self.runner.reserve()
        if asked is None:
            return await self.store.insert(record, journal)
        # Stored as claimed already: that saves a transaction.
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

    # One task

    async def answer_record(self, record: TaskRecord, responses: Mapping[str, object]) -> None:
        """Store answers to a task's questions. Others need not be written: the row may be large."""
        if record.questions.keys().isdisjoint(responses):
            return
        await self.store.answer(record.id, responses, now=self._clock())

    async def cancel_record(self, record: TaskRecord) -> None:
        """Request that a task be cancelled, unless it has ended."""
        if record.final:
            return
        # Whether there is a clean-up is for the worker to say: its version of the server may be another one.
        cancelled = await self.store.cancel(record.id, now=self._clock(), tidy=True)
        if cancelled and is_metered() and (now := await self.store.load(record.id)) is not None:
            self._metrics.moved(now.tool, now.state)

    def now(self) -> float:
        """The time."""
        return self._clock()

    async def visible(self, task_id: str, principal: str) -> Glance | None:
        """A task, if it belongs to that principal."""
        if not _ID.fullmatch(task_id):
            return None  # Not an id of ours, and perhaps not even text that a store accepts.
        seen = await self.store.glance(task_id)
        if seen is None or seen.record.principal != principal or seen.record.audience != self.audience:
            return None
        return seen

    def scopes_of(self, record: TaskRecord) -> frozenset[str]:
        """The scopes that whoever looks at a task needs: those of its tool."""
        tool = self._registry.tools.get(record.tool)
        return frozenset() if tool is None else tool.handler.scopes

    def principal_of(self, request: Request) -> str:
        """The principal of a request; empty if the server does not distinguish them."""
        return "" if self._principal is None else self._principal(request) or ""

    async def shown(self, record: TaskRecord, *, in_words: bool = False) -> TaskView:
        """A task as its client sees it. `in_words`: it cannot be sent to a page."""
        seen = view(record)
        return seen if self.people is None else await self.people.shown(record, seen, in_words=in_words)

    # Publishing changes

    def add_listener(self, task_id: str, listener: Listener) -> None:
        """Offer every change of a task to a listener, until `remove_listener`."""
        if self._unwatch is None:
            self._unwatch = self.store.watch(self._on_signal)
        self._listeners.setdefault(task_id, set()).add(listener)

    def remove_listener(self, task_id: str, listener: Listener) -> None:
        """Offer the changes of a task to a listener no longer."""
        listeners = self._listeners.get(task_id, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(task_id, None)

    def _on_signal(self, signal: Signal) -> None:
        for listener in tuple(self._listeners.get(signal.task_id, ())):
            listener.offer(Change(NOTIFICATION, signal.task_id))


def wished_ttl(request: Request, most: float | None) -> float | None:
    """For how many seconds the client wants its task to be kept, at most `most`; None if it does not say."""
    wish = request.params.get("task")
    ttl: Any = wish.get("ttl") if is_object(wish) else ""
    if ttl is None:
        return None
    if type(ttl) not in (int, float) or not 0 < ttl < math.inf:
        raise InvalidParams("Invalid params: `task` is an object whose `ttl` is a positive number")
    return float(ttl / 1000 if most is None else min(ttl / 1000, most))


def _meta(request: Request) -> JsonObject:
    """The `_meta` of the request, completed by what is known about its client and who sent it."""
    meta = request.meta
    said = {PROTOCOL_VERSION: meta.protocol_version, CLIENT_CAPABILITIES: meta.capabilities}
    known = {**meta.fields, **said, CLIENT_INFO: meta.client_info}
    known.pop(PRINCIPAL, None)  # Only what was verified counts, not what a client writes there.
    if request.principal is not None:
        known[PRINCIPAL] = msgspec.to_builtins(request.principal, enc_hook=str)
    return known


def _answers(journal: Mapping[str, Entry]) -> str:
    """A fingerprint of the answers that were given before the call became a task."""
    given = {key: entry.value for key, entry in journal.items() if entry.kind == "answer"}
    given.update({key: given_answers(entry) for key, entry in journal.items() if entry.kind == "manual"})
    return fingerprint(canonical(given)) if given else fingerprint(encode(None))
