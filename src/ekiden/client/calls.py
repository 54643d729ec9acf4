"""Calls of several rounds: sent, answered, sent again, until they end or a cap is reached.

A call has one way here, whether the client drives it or its user does by hand: the arguments that
the server wants mirrored become headers, and a tool's result is held to the tool's own output schema.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ekiden.client.answering import Answerer
from ekiden.client.connection import ServerConnection
from ekiden.client.pending import PendingCall, read_pending, respond
from ekiden.client.results import typed
from ekiden.client.sessions.session import ClientRequest, Hooks
from ekiden.client.target import ClientLimits
from ekiden.client.tasks.handle import TaskClient, TaskHandle, read_snapshot
from ekiden.client.tasks.legacy import LegacyTaskHandle, offers_tasks, read_legacy_snapshot, wants_task
from ekiden.client.tools import KnownTools
from ekiden.errors import HeaderMismatch, MethodNotFound, ServerError
from ekiden.wire.json import JsonObject, is_object

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["CallDriver", "ClientCall", "Progress"]

Progress: TypeAlias = Callable[[float, float | None, str | None], None]


class ClientCall(msgspec.Struct):
    """A call before its first round."""

    method: str
    name: str
    """What it addresses: a tool, a prompt, a URI."""
    params: JsonObject
    progress: Progress | None = None


class CallDriver:
    """Drives calls over one connection."""

    def __init__(
        self,
        connection: ServerConnection,
        answerer: Answerer,
        tools: KnownTools,
        *,
        learn_tools: Callable[[], Awaitable[object]],
        limits: ClientLimits,
    ) -> None:
        self._connection = connection
        self._answerer = answerer
        self._tools = tools
        self._learn_tools = learn_tools
        self._most_state = limits.state_bytes
        self._looked_for: set[str] = set()
        """Tools that were looked for at a server of 2025 with tasks."""
        self._client = TaskClient(
            connection.request, answerer, self.finish, limits.stuck_seconds, connection.watchers
        )

    def handle(self, task_id: str, tool: str | None) -> TaskHandle:
        """A task of the server, as its era has them."""
        if self._connection.session.era == "legacy":
            return LegacyTaskHandle(self._client, task_id, tool)
        return TaskHandle(self._client, task_id, tool)

    async def drive(self, call: ClientCall, max_rounds: int) -> JsonObject | TaskHandle:
        """The final result, or the task that it will come from; what is asked is answered by callbacks."""
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
        """One round: the final result, checked, what the call waits for, or the task it has become.

        `as_task` asks for a task where that is the client's to decide.
        """
        params = call.params if before is None else before.retry(responses)
        if call.method == "tools/call" and offers_tasks(self._connection.session):
            result = await self._send_with_wish(call, params, optional=as_task)
            if is_object(task := result.get("task")) and "content" not in result:
                return self.handle(read_legacy_snapshot(task).task_id, call.name)
        else:
            result = await self._send(call, params)
        if result.get("resultType") == "input_required":
            return read_pending(call.method, call.params, result, before, self._most_state)
        if result.get("resultType") == "task":
            return self.handle(read_snapshot(result).task_id, call.name)
        if call.method == "tools/call":
            self._tools.check(call.name, result)
        return result

    def finish(self, name: str | None, result: JsonObject) -> "CallToolResult":
        """The result of a task, checked as that of a call."""
        from mcp_types import CallToolResult

        if name is not None:
            self._tools.check(name, result)
        return typed(CallToolResult, result)

    async def _send_with_wish(self, call: ClientCall, params: JsonObject, *, optional: bool) -> JsonObject:
        """Send a call to a server of 2025 with tasks: for tools that must be, or may be, as a task."""
        if not self._tools.knows(call.name) and call.name not in self._looked_for:
            self._looked_for.add(call.name)
            await self._learn_tools()
        wanted = wants_task(self._tools, call.name, optional=optional)
        try:
            return await self._send(call, {**params, "task": {}} if wanted else params)
        except ServerError as error:
            if error.code != MethodNotFound.default_code:
                raise
            # The tool has another opinion of tasks than it had: look, and try once more.
            await self._learn_tools()
            if wants_task(self._tools, call.name, optional=optional) == wanted:
                raise
        return await self._send(call, params if wanted else {**params, "task": {}})

    async def _send(self, call: ClientCall, params: JsonObject) -> JsonObject:
        progress = call.progress
        hooks = Hooks(progress=None if progress is None else _progress_hook(progress))
        if call.method != "tools/call":
            return await self._connection.request(ClientRequest(call.method, params, call.name, {}, hooks))
        headers = self._tools.headers(call.name, params["arguments"])
        try:
            return await self._connection.request(
                ClientRequest(call.method, params, call.name, headers, hooks)
            )
        except ServerError as error:
            if error.code != HeaderMismatch.default_code:
                raise
        # The server mirrors arguments that we did not know of: look at its tools, and try once more.
        await self._learn_tools()
        headers = self._tools.headers(call.name, params["arguments"])
        return await self._connection.request(ClientRequest(call.method, params, call.name, headers, hooks))


def _progress_hook(progress: Progress) -> Callable[[JsonObject], None]:
    def tell(params: JsonObject) -> None:
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(done, int | float):  # What a server may say beyond that is nobody's business.
            progress(
                done,
                total if isinstance(total, int | float) else None,
                message if isinstance(message, str) else None,
            )

    return tell
