"""The `tasks/` methods of both eras, as a host of the official SDK registers them."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, RequestParams
from pydantic import ConfigDict

from ekiden import RegistrationError
from ekiden.integrations.inside.calls import Calls, HostContext

__all__ = ["TASKS_EXTENSION", "TASK_METHODS", "TaskParams", "answer_tasks", "own_tasks"]

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list")


class TaskParams(RequestParams):
    """The parameters of a `tasks/` method: the engine checks them."""

    model_config = ConfigDict(extra="allow")


def answer_tasks(calls: Calls) -> Callable[[HostContext, Any], Awaitable[dict[str, Any]]]:
    """The handler of all `tasks/` methods."""

    async def answer(ctx: HostContext, _: Any) -> dict[str, Any]:
        # Without principals it would list everybody's tasks.
        hidden = ctx.method == "tasks/list" and calls.principal(ctx) is None
        if hidden or ctx.method not in calls.engine.task_methods(ctx.protocol_version):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await calls.answer(ctx, calls.request(ctx, ctx.method, ctx.params or {}))

    return answer


def own_tasks(whose: str) -> RegistrationError:
    """The error for a host that has tasks of its own."""
    return RegistrationError(
        f"{whose} serves {TASKS_EXTENSION} already, and a client cannot tell two kinds of tasks apart: leave "
        "task= out of durable tools, or take the other one out"
    )
