"""One request of a host, answered by the engine.

The host has a boundary that seals the `requestState` of its own tools. Ours is sealed already, by keys that
several workers share. So it travels around the boundary, in a `Passage`: `boundary` takes it from the request
before the host sees it, and puts it into the result after the host has.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ekiden import Principal, ProtocolError, Request, StoreUnavailable
from ekiden.engine import Engine, HostStream, Lasting
from ekiden.integrations.inside import official_parts as parts
from ekiden.integrations.inside.identity import Verify

__all__ = ["MARK", "Calls", "HostContext", "Identify", "Passage", "apart", "as_mcp_error", "passage"]

T = TypeVar("T")

HostContext: TypeAlias = ServerRequestContext[Any, Any]

Identify: TypeAlias = Callable[["ServerRequestContext[Any, Any]"], Principal | str | None]
"""Says whose request it is; a text is the subject of a principal."""

MARK: Final = "ekiden"
"""The `requestState` that the host sees in place of ours."""
LEVEL: Final = "ekiden.log_level"
"""Where the log level of a client of 2025 is kept in the state of its connection."""
_FIRST_LEVEL: Final = "info"
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_TASKS: Final = "io.modelcontextprotocol/tasks"


class Passage:
    """What one request carries around the host's boundary."""

    def __init__(self, state: str | None) -> None:
        self.state = state
        """The `requestState` that the client sent."""
        self.clear()

    def clear(self) -> None:
        """Forget how an earlier attempt ended: a middleware of the host may try again."""
        self.next_state: str | None = None
        """The `requestState` of an interim result."""
        self.exact: dict[str, Any] | None = None
        """A result that the host has no words for: the call has become a task."""
        self.error: MCPError | None = None
        """An error that the host would turn into something else."""


passage: ContextVar[Passage | None] = ContextVar("ekiden_passage", default=None)


class Calls:
    """Answers requests of a host."""

    def __init__(self, engine: Engine, principal: Identify, verify: Callable[[], Verify | None]) -> None:
        self.engine = engine
        self.principal = principal
        self.verify = verify
        """What verifies the tokens of the host, if it does that itself."""
        self._following: set[asyncio.Task[None]] = set()

    def request(
        self, ctx: HostContext, method: str, params: Mapping[str, Any], lasting: Lasting | None = None
    ) -> Request:
        """The request of a client as the engine has it; raises an `MCPError` if it cannot be one."""
        connection = parts.connection_of(ctx)
        client, declared = ctx.session.client_params, ctx.session.client_capabilities
        try:
            return self.engine.request(
                method,
                params,
                request_id=ctx.request_id,
                version=ctx.protocol_version,
                capabilities=_dumped(declared),
                client_info=_dumped(None if client is None else client.client_info),
                log_level=connection.state.get(LEVEL, _FIRST_LEVEL),
                headers=None if ctx.request is None else dict(ctx.request.headers.raw),
                session=connection.session_id,
                principal=self.principal(ctx),
                lasting=lasting,
            )
        except ProtocolError as error:
            raise as_mcp_error(error) from None

    async def answer(self, ctx: HostContext, request: Request) -> dict[str, Any]:
        """The result of a request; raises an `MCPError`."""

        async def notify(method: str, params: dict[str, Any]) -> None:
            await parts.notify(ctx, method, params)

        async def push(method: str, params: dict[str, Any]) -> Any:
            return await parts.push(ctx, method, params)

        stream = HostStream(request, notify, push if ctx.session.can_send_request else None)
        try:
            outcome = await apart(self.engine.answer(request, stream))
            return self.engine.result(request, outcome)
        except ProtocolError as error:
            raise as_mcp_error(error) from None
        finally:
            stream.open = False

    async def perform(self, ctx: HostContext, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a tool, prompt or resource as the host may see it; the rest is in the passage."""
        around = passage.get()
        if around is None:
            # The host of a mounted server has another boundary, which has opened the state. It has no words
            # for a task, which would run although its client is told that it cannot.
            return await self.answer(ctx, self.request(ctx, method, _without_tasks(params)))
        around.clear()
        if around.state is not None:
            params = {**params, "requestState": around.state}
        try:
            result = await self.answer(ctx, self.request(ctx, method, params))
        except MCPError as error:
            around.error = error
            raise
        if (task := _task_id(result)) is not None:
            around.exact = result
            self._follow(ctx, task)
            words = {"type": "text", "text": f"The call goes on as task {task}."}
            return {"resultType": "complete", "content": [words]}
        if "requestState" in result:
            around.next_state, result["requestState"] = result["requestState"], MARK
        return result

    def _follow(self, ctx: HostContext, task_id: str) -> None:
        """Tell the session of a client of 2025-11-25 how its task is doing, as long as it lasts."""
        if "tasks/result" not in self.engine.task_methods(ctx.protocol_version):
            return
        connection = parts.connection_of(ctx)

        async def tell() -> None:
            with contextlib.suppress(StoreUnavailable):  # The client polls as well.
                async for state in self.engine.task_changes(task_id, ctx.protocol_version):
                    await connection.notify("notifications/tasks/status", state)

        telling = asyncio.get_running_loop().create_task(tell())
        self._following.add(telling)
        telling.add_done_callback(self._following.discard)
        connection.exit_stack.callback(telling.cancel)


def _without_tasks(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request whose client takes no tasks."""
    kept = {name: value for name, value in params.items() if name != "task"}
    meta = _copied(kept.get("_meta"))
    declared = _copied(meta.get(_CAPABILITIES))
    extensions = _copied(declared.get("extensions"))
    if extensions.pop(_TASKS, None) is not None:
        kept["_meta"] = {**meta, _CAPABILITIES: {**declared, "extensions": extensions}}
    return kept


def _copied(value: Any) -> dict[str, Any]:
    return {**value} if isinstance(value, dict) else {}


def _task_id(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a call has become; None if the result is another one."""
    if result.get("resultType") == "task":
        return str(result["taskId"])
    return str(result["task"]["taskId"]) if set(result) == {"task"} else None


def as_mcp_error(error: ProtocolError) -> MCPError:
    """An error as the host raises it."""
    return MCPError(error.code, error.message, error.data)


def _dumped(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = (
        {} if model is None else model.model_dump(by_alias=True, mode="json", exclude_none=True)
    )
    return dumped


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run something in a task of its own, which is cancelled once if we are.

    The scopes of the host cancel at every `await`, so that no clean-up in them could wait for anything.
    """
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise
