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
from ekiden.gateway.connector import Connector, unavailable
from ekiden.gateway.outgoing import askable, request_of, takes_tasks
from ekiden.gateway.relay import Relay
from ekiden.gateway.task_ids import TaskIds
from ekiden.gateway.upstream import why_unavailable
from ekiden.rounds.asks import declares, not_asked
from ekiden.rounds.outcome import Task
from ekiden.server.context import Context
from ekiden.server.mounting.mount import unsigned
from ekiden.server.questions.input_required import InputRequired, capabilities_for
from ekiden.wire.json import JsonObject, encode, is_object
from ekiden.wire.modern import Request
from ekiden.wire.tasks import RELATED

__all__ = ["Forwarder"]

_NOT_ASKED_ON: Final = frozenset({"_meta", "elicitationId", "task"})
"""Parameters of a question that concern only the upstream and its client."""
_MOST_ASKED: Final = 64 * 1024 * 1024
"""Bytes of the questions of one upstream of 2025 that wait for their answers, in all calls together."""

_Question: TypeAlias = tuple[str, JsonObject, "asyncio.Future[JsonObject]"]


class Asked(InputRequired):
    """The questions of an upstream. It remembers the answers of earlier rounds itself."""

    keeps_answers = False


class Forwarder:
    """Sends calls to one upstream."""

    def __init__(self, connector: Connector, tools: KnownTools, ids: TaskIds, limits: ClientLimits) -> None:
        self._connector = connector
        self._tools = tools
        self._ids = ids
        self._limits = limits
        self._name = connector.upstream.name
        self._seconds = connector.upstream.timeout
        self._asked = 0
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
                async with self._connector.turnstile.call(_refuse, relay.log):
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
        asked: asyncio.Queue[_Question] = asyncio.Queue()

        async def question(key: str, message: JsonObject) -> JsonObject | LeftOut:
            answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
            with self._room_for(key, message):
                asked.put_nowait((key, message, answer))
                return await answer

        relay = Relay(ctx)
        call = asyncio.ensure_future(self._at_2025(ctx, relay, question))
        try:
            while (next_asked := await self._next(asked, call)) is not None:
                await _answer(ctx, *next_asked)
            await relay.flush()
            return unsigned(call.result())
        finally:
            relay.stop()
            call.cancel()
            await asyncio.wait({call})

    @contextmanager
    def _room_for(self, key: str, message: JsonObject) -> Generator[None, None, None]:
        """Count a question as long as it waits. One for which there is no room is refused."""
        size = len(encode(message))
        if self._asked + size > _MOST_ASKED:
            raise CannotAnswer({key: "so much at once"})
        self._asked += size
        try:
            yield
        finally:
            self._asked -= size

    async def _at_2025(self, ctx: Context[Any], relay: Relay, question: Any) -> JsonObject:
        connection = await self._connector.reach()
        sent = self._request(ctx, _params(ctx.request), relay, connection)
        sent.hooks.question = question
        async with self._connector.turnstile.call(question, relay.log):
            if ctx.request.method == "tools/call" and self._is_task(connection, ctx.request.name or ""):
                return await self._task_of_2025(connection, sent)
            return await self.exchange(connection, sent, limited=False)

    def _is_task(self, connection: ServerConnection, name: str) -> bool:
        """Whether a tool of 2025-11-25 can only be called as a task."""
        return offers_tasks(connection.session) and wants_task(self._tools, name, optional=False)

    async def _task_of_2025(self, connection: ServerConnection, sent: ClientRequest) -> JsonObject:
        """Call a tool as a task, and wait for its end: to the client it is a call like others.

        The task may outlive the upstream's process, so that an upstream which is away is waited for a while.
        """

        async def request(about: ClientRequest) -> JsonObject:
            about.hooks.question = sent.hooks.question
            try:
                return await (await self._reached()).exchange(about)
            except TransportError:
                self._connector.suspect()
                raise

        sent.params = {**sent.params, "task": {}}
        result = await self.exchange(connection, sent, limited=False)
        if not is_object(task := result.get("task")) or "content" in result:
            return result
        client = TaskClient(request, Answerer(), _not_used, self._limits, connection.watchers)
        try:
            handle = LegacyTaskHandle(client, read_legacy_snapshot(task).task_id, sent.name)
            return _without_task(await handle.drive(None))
        except (CallCancelled, InvalidResult, TransportError) as error:
            raise unavailable(self._name, why_unavailable(error)) from error

    async def _reached(self) -> ServerConnection:
        """The connection; `TransportError` if there is none, as where one breaks off."""
        try:
            return await self._connector.reach()
        except InternalError as error:
            raise TransportError(error.message) from error

    async def _next(
        self, asked: "asyncio.Queue[_Question]", call: "asyncio.Future[JsonObject]"
    ) -> _Question | None:
        """The next question; None if the call has ended."""
        getting = asyncio.ensure_future(asked.get())
        try:
            first: set[asyncio.Future[Any]] = {getting, call}
            await asyncio.wait(first, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            if not call.done():
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
        if request.method == "tools/call":
            sent.headers = {**sent.headers, **self._tools.headers(request.name or "", params["arguments"])}
        if request.meta.progress_token is not None:
            sent.hooks.progress = relay.progress
        sent.hooks.notification = _heard(connection, relay)
        return sent

    async def exchange(
        self, connection: ServerConnection, sent: ClientRequest, *, limited: bool = True
    ) -> JsonObject:
        """Send a request to the upstream. Its errors pass; that it cannot be reached is an error of ours."""
        try:
            async with within(self._seconds if limited else None, sent.method):
                return await connection.exchange(sent)
        except (TransportError, InvalidResult) as error:
            if not isinstance(error, HttpRefused | CallTimeout | InvalidResult):
                self._connector.suspect()
            raise unavailable(self._name, why_unavailable(error)) from error

    async def pass_on(self, request: Request, params: JsonObject) -> JsonObject:
        """The result of a request that is not a call: a completion, or something about a task."""
        connection = await self._connector.reach()
        sent = request_of(request, self._connector.upstream, params, _named(request.method, params))
        return unsigned(await self.exchange(connection, sent))


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
