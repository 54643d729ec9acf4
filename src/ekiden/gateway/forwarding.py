"""Calls that an upstream answers.

An upstream of 2026 answers round by round: what it asks goes to the client as it is, and its `requestState`
is sealed into ours, so that nothing stays here and any gateway goes on with the call. An upstream of 2025
asks in the middle of a call, which waits for the answer here: the handler is parked.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from ekiden.client.answering import Answerer, check_count
from ekiden.client.calls import within
from ekiden.client.checking import LeftOut, read_question
from ekiden.client.connection import ServerConnection
from ekiden.client.results import read_questions
from ekiden.client.sessions.session import ClientRequest
from ekiden.client.target import ClientLimits
from ekiden.client.tasks.handle import TaskClient
from ekiden.client.tasks.legacy import LegacyTaskHandle, offers_tasks, read_legacy_snapshot, wants_task
from ekiden.client.tools import KnownTools
from ekiden.errors import (
    CallCancelled,
    CallTimeout,
    CannotAnswer,
    CannotAsk,
    HttpRefused,
    InternalError,
    InvalidResult,
    TransportError,
)
from ekiden.gateway.connector import Connector
from ekiden.gateway.outgoing import askable, request_of, takes_tasks
from ekiden.gateway.relay import Relay
from ekiden.gateway.sessions import Way
from ekiden.gateway.task_ids import TaskIds
from ekiden.gateway.upstream import unavailable, why_unavailable
from ekiden.rounds.asks import declares, not_asked
from ekiden.rounds.outcome import Task
from ekiden.server.context import Context
from ekiden.server.mounting.mount import unsigned
from ekiden.server.questions.input_required import InputRequired, capabilities_for
from ekiden.transports.shares import Shares
from ekiden.transports.turns import weight_of
from ekiden.wire.json import JsonObject, encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.tasks import RELATED

__all__ = ["Forwarder"]

_NOT_ASKED_ON: Final = frozenset({"_meta", "elicitationId", "task"})
"""Parameters of a question that concern only the upstream and its client."""
_MOST_ASKED: Final = 64 * 1024 * 1024
"""Bytes of the questions of one upstream of 2025 that wait for their answers, in all calls together. There
are a quarter more for callers with almost none."""

_Question: TypeAlias = tuple[str, JsonObject, "asyncio.Future[JsonObject]"]


class Asked(InputRequired):
    """The questions of an upstream. It remembers the answers of earlier rounds itself."""

    keeps_answers = False


class Forwarder:
    """Sends calls to one upstream."""

    def __init__(
        self,
        connector: Connector,
        tools: KnownTools,
        ids: TaskIds,
        limits: ClientLimits,
        owner_of: Callable[[Request], str],
    ) -> None:
        self._connector = connector
        self._tools = tools
        self._ids = ids
        self._limits = limits
        self._owner_of = owner_of
        self._name = connector.upstream.name
        self._seconds = connector.upstream.timeout
        self._asked = Shares(_MOST_ASKED)
        """Bytes of the questions that wait."""

    # Upstreams of 2026

    async def by_rounds(self, ctx: Context[Any]) -> JsonObject | Task:
        """One round: the final result, a task, or `Asked`."""
        params = _params(ctx.request)
        responses, state = ctx.raw_responses(), ctx.request_state
        if responses or "inputResponses" in ctx.request.params:
            params["inputResponses"] = responses
        if state is not None:
            params["requestState"] = state
        relay = Relay(ctx)
        try:
            connection = await self._connector.reach()
            sent = self._request(ctx, params, relay, connection)
            if connection.shares_channel:
                owner = self._owner_of(ctx.request)
                async with self._connector.turnstile.call(_refuse, relay.log, owner):
                    result = await self.exchange(connection, sent)
            else:
                result = await self.exchange(connection, sent)
            await relay.flush()
        finally:
            relay.stop()
        try:
            return self._read(ctx.request, result)
        except InvalidResult as error:
            raise unavailable(self._name, why_unavailable(error)) from error

    def _read(self, request: Request, result: JsonObject) -> JsonObject | Task:
        kind = result.get("resultType")
        if kind == "task":
            if not takes_tasks(request):
                raise InvalidResult("The server made a task for a client that has not declared tasks")
            return self._ids.become(request, result)
        if kind != "input_required":
            return unsigned(result)
        requests, state = read_questions(result, self._limits.state_bytes, "interim result")
        check_count(requests)
        for key, question in requests.items():
            read_question(key, question)
        if not requests and state is None:
            raise InvalidResult("The server's interim result has neither questions nor state")
        raise Asked({key: askable(question) for key, question in requests.items()}, state)

    # Upstreams of 2025

    async def parked(self, ctx: Context[Any]) -> JsonObject:
        """A whole call. What the upstream asks is asked of the client, and the answer sent back."""
        async with self._connector.way(self._ids.principal_of(ctx.request)) as way:
            return await self._parked(ctx, way)

    async def _parked(self, ctx: Context[Any], way: Way) -> JsonObject:
        asked: asyncio.Queue[_Question] = asyncio.Queue()
        owner = self._owner_of(ctx.request)

        async def question(key: str, message: JsonObject) -> JsonObject | LeftOut:
            answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
            with self._room_for(owner, key, message):
                asked.put_nowait((key, message, answer))
                return await answer

        relay = Relay(ctx)
        call = asyncio.ensure_future(self._at_2025(ctx, way, relay, question))
        try:
            while (next_asked := await self._next(asked, call, way)) is not None:
                await _answer(ctx, *next_asked)
            await relay.flush()
            return unsigned(call.result())
        finally:
            relay.stop()
            call.cancel()
            await asyncio.wait({call})

    @contextmanager
    def _room_for(self, owner: str, key: str, message: JsonObject) -> Generator[None, None, None]:
        """Count a question as long as it waits. One for which there is no room is refused."""
        size = weight_of(encode(message))
        if not self._asked.take(owner, size):
            raise CannotAnswer({key: "so much at once"})
        try:
            yield
        finally:
            self._asked.give_back(owner, size)

    async def _at_2025(self, ctx: Context[Any], way: Way, relay: Relay, question: Any) -> JsonObject:
        connection = await way.reach()
        sent = self._request(ctx, _params(ctx.request), relay, connection)
        sent.hooks.question = question
        async with way.turnstile.call(question, relay.log, self._owner_of(ctx.request)):
            if ctx.request.method == "tools/call" and self._is_task(connection, ctx.request.name or ""):
                return await self._task_of_2025(connection, sent, way)
            return await self.exchange(connection, sent, way, limited=False)

    def _is_task(self, connection: ServerConnection, name: str) -> bool:
        """Whether a tool of 2025-11-25 can only be called as a task."""
        return offers_tasks(connection.session) and wants_task(self._tools, name, optional=False)

    async def _task_of_2025(self, connection: ServerConnection, sent: ClientRequest, way: Way) -> JsonObject:
        """Call a tool as a task, and wait for its end: to the client it is a call like others.

        The task may outlive the upstream's process, so that an upstream which is away is waited for a while.
        """

        async def request(about: ClientRequest) -> JsonObject:
            about.hooks.question = sent.hooks.question
            try:
                return await (await _reached(way)).exchange(about)
            except TransportError:
                way.suspect()
                raise

        sent.params = {**sent.params, "task": {}}
        result = await self.exchange(connection, sent, way, limited=False)
        if not is_object(task := result.get("task")) or "content" in result:
            return result
        client = TaskClient(request, Answerer(), _not_used, self._limits, connection.watchers)
        try:
            handle = LegacyTaskHandle(client, read_legacy_snapshot(task).task_id, sent.name)
            return _without_task(await handle.drive(None))
        except (CallCancelled, InvalidResult, TransportError) as error:
            raise unavailable(self._name, why_unavailable(error)) from error

    async def _next(
        self, asked: "asyncio.Queue[_Question]", call: "asyncio.Future[JsonObject]", way: Way
    ) -> _Question | None:
        """The next question; None if the call has ended."""
        getting = asyncio.ensure_future(asked.get())
        try:
            first: set[asyncio.Future[Any]] = {getting, call}
            await asyncio.wait(first, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            if not call.done():
                way.suspect()
                raise unavailable(self._name, why_unavailable(TimeoutError()))
            return None
        finally:
            getting.cancel()

    # One request

    def _request(
        self, ctx: Context[Any], params: JsonObject, relay: Relay, connection: ServerConnection
    ) -> ClientRequest:
        request = ctx.request
        sent = request_of(request, self._connector.upstream, params, request.name)
        sent.hooks.held = relay.held
        if request.method == "tools/call":
            sent.headers = {**sent.headers, **self._tools.headers(request.name or "", params["arguments"])}
        if request.meta.progress_token is not None:
            sent.hooks.progress = relay.progress
        sent.hooks.notification = _heard(connection, relay)
        return sent

    async def exchange(
        self,
        connection: ServerConnection,
        sent: ClientRequest,
        way: Way | None = None,
        *,
        limited: bool = True,
    ) -> JsonObject:
        """Send a request to the upstream. Its errors pass; that it cannot be reached is an error of ours."""
        try:
            async with within(self._seconds if limited else None, sent.method):
                return await connection.exchange(sent)
        except (TransportError, InvalidResult) as error:
            if not isinstance(error, HttpRefused | CallTimeout | InvalidResult):
                (way or self._connector).suspect()
            raise unavailable(self._name, why_unavailable(error)) from error

    async def pass_on(self, request: Request, params: JsonObject) -> JsonObject:
        """The result of a request that is not a call: a completion, or something about a task."""
        sent = request_of(request, self._connector.upstream, params, _named(request.method, params))
        async with self._connector.way(self._ids.principal_of(request)) as way:
            return unsigned(await self.exchange(await way.reach(), sent, way))


async def _reached(way: Way) -> ServerConnection:
    """The connection; `TransportError` if there is none, as where one breaks off."""
    try:
        return await way.reach()
    except InternalError as error:
        raise TransportError(error.message) from error


def _params(request: Request) -> JsonObject:
    """The parameters of a call, without those of its rounds."""
    if request.method == "resources/read":
        return {"uri": request.name}
    return {"name": request.name, "arguments": request.params.get("arguments", {})}


def _named(method: str, params: JsonObject) -> str | None:
    return params["taskId"] if method.startswith("tasks/") else None


def _heard(connection: ServerConnection, relay: Relay) -> Callable[[JsonObject], None]:
    """Takes what comes with a call: its log messages go to the client, all else concerns the connection."""

    def heard(message: JsonObject) -> None:
        is_log = message.get("method") == "notifications/message"
        if is_log and not connection.shares_channel:
            params = message.get("params")
            relay.log(params if is_object(params) else {})
        else:
            connection.notified(message)  # On a shared channel, the turnstile knows whose message it is.

    return heard


def _without_task(result: JsonObject) -> JsonObject:
    """A result without the task that it belongs to, of which the client knows nothing."""
    if not is_object(meta := result.get("_meta")):
        return result
    return {**result, "_meta": {name: value for name, value in meta.items() if name != RELATED}}


def _not_used(_: str | None, __: JsonObject) -> Any:
    """For `TaskHandle.wait`, which is not called here."""


async def _refuse(key: str, _: JsonObject) -> JsonObject | LeftOut:
    raise CannotAnswer({key: "anything: a server of 2026 answers with its questions"})


async def _answer(
    ctx: Context[Any], key: str, message: JsonObject, answer: "asyncio.Future[JsonObject]"
) -> None:
    """Ask the client, and tell the upstream what it says, or why it cannot be asked."""
    try:
        method, params = read_question(key, message)
        kept = {name: value for name, value in params.items() if name not in _NOT_ASKED_ON}
        question = askable({"method": method, "params": kept} if kept else {"method": method})
        needed = capabilities_for(question)
        if not declares(ctx.meta.capabilities, needed):
            raise CannotAsk(not_asked(needed))
        said = await ctx.ask(question)
    except (CannotAsk, InvalidResult) as error:
        if not answer.done():
            answer.set_exception(CannotAnswer({key: str(error)}))
    else:
        if not answer.done():
            answer.set_result(said)
