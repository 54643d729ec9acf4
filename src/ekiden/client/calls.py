"""Calls of several rounds: sent, answered, sent again, until they end or a limit is reached.

Every call goes through `CallDriver.round`, whether the client makes all rounds or its user each one by hand:
arguments that the server wants mirrored become headers, and the result must fit the tool's output schema.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from ekiden.client.answering import Answerer
from ekiden.client.connection import ServerConnection
from ekiden.client.extensions.enabled import EnabledExtensions
from ekiden.client.extensions.extension import Interrupted
from ekiden.client.pending import PendingCall, read_pending, respond
from ekiden.client.results import typed
from ekiden.client.sessions.session import ClientRequest, Hooks
from ekiden.client.target import ClientLimits
from ekiden.client.tasks.draft import DraftTaskHandle
from ekiden.client.tasks.handle import TaskClient, TaskHandle, read_snapshot
from ekiden.client.tasks.legacy import LegacyTaskHandle, offers_tasks, read_legacy_snapshot, wants_task
from ekiden.client.tools import KnownTools
from ekiden.errors import CallTimeout, HeaderMismatch, MethodNotFound, ServerError
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.tasks import RESULT_TYPE

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["CallDriver", "ClientCall", "Progress", "prompt_call", "resource_call", "tool_call", "within"]

Progress: TypeAlias = Callable[[float, float | None, str | None], None]

_WAITING: Final = frozenset({"tasks/result", "subscriptions/listen"})
"""Requests about a task that are answered when something has happened."""


class ClientCall(msgspec.Struct):
    """A call before its first round."""

    method: str
    name: str
    """What it addresses: a tool, a prompt, a URI."""
    params: JsonObject
    progress: Progress | None = None
    trace: str | None = None
    """The `traceparent` that its newest request was sent with, if this process traces."""


def tool_call(
    name: str,
    arguments: Mapping[str, Any] | None,
    meta: Mapping[str, Any] | None,
    progress: Progress | None,
) -> ClientCall:
    """A call of a tool."""
    params: JsonObject = {"name": name, "arguments": dict(arguments or {})}
    if meta is not None:
        params["_meta"] = dict(meta)
    return ClientCall("tools/call", name, params, progress)


def prompt_call(name: str, arguments: Mapping[str, str] | None) -> ClientCall:
    """A call of a prompt."""
    return ClientCall("prompts/get", name, {"name": name, "arguments": dict(arguments or {})})


def resource_call(uri: str) -> ClientCall:
    """A call of a resource."""
    return ClientCall("resources/read", uri, {"uri": uri})


class CallDriver:
    """Makes the rounds of calls over one connection."""

    def __init__(
        self,
        connection: ServerConnection,
        answerer: Answerer,
        tools: KnownTools,
        *,
        learn_tools: Callable[[], Awaitable[object]],
        limits: ClientLimits,
        timeout: float | None,
        extensions: EnabledExtensions,
    ) -> None:
        self._connection = connection
        self._extensions = extensions
        self._timeout = timeout
        self._answerer = answerer
        self._tools = tools
        self._learn_tools = learn_tools
        self._most_state = limits.state_bytes
        self._looked_for: set[str] = set()
        """Unknown tools for which the list was fetched already, to learn whether they can be tasks."""
        self._client = TaskClient(self._request_of_task, answerer, self.finish, limits, connection.watchers)

    def handle(self, task_id: str, tool: str | None) -> TaskHandle:
        """A handle for a task of the server, of the server's era."""
        session = self._connection.session
        if session.version == versions.DRAFT:
            return DraftTaskHandle(self._client, task_id, tool)
        if session.era == "legacy":
            return LegacyTaskHandle(self._client, task_id, tool)
        return TaskHandle(self._client, task_id, tool)

    async def _request_of_task(self, request: ClientRequest) -> JsonObject:
        """Send a request about a task. Those that wait for something have the time limit of who waits."""
        async with within(None if request.method in _WAITING else self._timeout, request.method):
            return await self._connection.request(request)

    async def _ask(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Send a request for an extension that finishes a call; the call's own time limit holds."""
        return await self._connection.request(ClientRequest(method, dict(params)))

    async def drive(self, call: ClientCall, max_rounds: int) -> JsonObject | TaskHandle:
        """The final result, or the task that will give it. The callbacks answer what is asked."""
        ended = await self.round(call, None, {})
        while isinstance(ended, PendingCall):
            responses = await respond(ended, self._answerer, max_rounds)
            ended = await self.round(call, ended, responses)
        return ended

    async def round(
        self,
        call: ClientCall,
        before: PendingCall | None,
        responses: Mapping[str, Any],
        *,
        as_task: bool = False,
    ) -> JsonObject | PendingCall | TaskHandle:
        """One round: the checked final result, a call that waits for answers, or the task it has become.

        `as_task` asks for a task where the client may decide that.
        """
        params = call.params if before is None else before.retry(responses)
        original: JsonObject = call.params
        may_be_task = call.method == "tools/call" and self._extensions.tasks
        if may_be_task and offers_tasks(self._connection.session):
            result, sent_as_task = await self._send_maybe_as_task(call, params, optional=as_task)
            if sent_as_task:
                original = {**original, "task": {}}  # The draft may ask first: the next round says it again.
            if is_object(task := result.get("task")) and "content" not in result:
                return self.handle(read_legacy_snapshot(task).task_id, call.name)
        else:
            result = await self._send(call, params)
        kind = result.get("resultType")
        if kind == "input_required":
            pending = read_pending(call.method, original, result, before, self._most_state)
            pending.trace = call.trace if before is None else before.trace
            return pending
        if kind == RESULT_TYPE:
            return self.handle(read_snapshot(result).task_id, call.name)
        if kind is not None and kind != "complete":
            result = await self._extensions.finish(Interrupted(call.method, call.name, result, self._ask))
        if call.method == "tools/call":
            self._tools.check(call.name, result)
        return result

    def finish(self, name: str | None, result: JsonObject) -> "CallToolResult":
        """The result of a task, checked like that of a call."""
        from mcp_types import CallToolResult

        if name is not None:
            self._tools.check(name, result)
        return typed(CallToolResult, result)

    async def _send_maybe_as_task(
        self, call: ClientCall, params: JsonObject, *, optional: bool
    ) -> tuple[JsonObject, bool]:
        """Send a call to a server of 2025 that has tasks: as a task if the tool requires it, or if wanted.

        The result, and whether it was sent as a task.
        """
        optional = optional or "task" in params
        plain = {name: value for name, value in params.items() if name != "task"}
        if not self._tools.knows(call.name) and call.name not in self._looked_for:
            self._looked_for.add(call.name)
            await self._learn_tools()
        wanted = wants_task(self._tools, call.name, optional=optional)
        try:
            return await self._send(call, {**plain, "task": {}} if wanted else plain), wanted
        except ServerError as error:
            if error.code != MethodNotFound.default_code:
                raise
            # The tool's `taskSupport` has changed: list the tools again, and try once more.
            await self._learn_tools()
            if wants_task(self._tools, call.name, optional=optional) == wanted:
                raise
        return await self._send(call, plain if wanted else {**plain, "task": {}}), not wanted

    async def _send(self, call: ClientCall, params: JsonObject) -> JsonObject:
        progress = call.progress
        hooks = Hooks(progress=None if progress is None else _progress_hook(progress))
        if call.method != "tools/call":
            return await self._request(call, params, {}, hooks)
        headers = self._tools.headers(call.name, params["arguments"])
        try:
            return await self._request(call, params, headers, hooks)
        except ServerError as error:
            if error.code != HeaderMismatch.default_code:
                raise
        # The server wants headers that we did not know of: list the tools again, and try once more.
        await self._learn_tools()
        return await self._request(call, params, self._tools.headers(call.name, params["arguments"]), hooks)

    async def _request(
        self, call: ClientCall, params: JsonObject, headers: Mapping[str, str], hooks: Hooks
    ) -> JsonObject:
        request = ClientRequest(call.method, params, call.name, headers, hooks)
        result = await self._connection.request(request)
        call.trace = request.trace
        return result


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncGenerator[asyncio.Timeout, None]:
    """Cancel the body after so many seconds, at the server too, and raise a `CallTimeout` that names `what`.

    The body gets the `asyncio.Timeout`, and may reschedule it.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield deadline
    except TimeoutError:
        if not deadline.expired():
            raise
        raise CallTimeout(f"{what} did not end within {seconds:g} seconds") from None


def _progress_hook(progress: Progress) -> Callable[[JsonObject], None]:
    def report(params: JsonObject) -> None:
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(done, int | float):  # Anything else is malformed, and dropped.
            progress(
                done,
                total if isinstance(total, int | float) else None,
                message if isinstance(message, str) else None,
            )

    return report
