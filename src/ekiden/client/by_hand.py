"""Calls whose rounds their user makes: started, handed on while they wait for answers, and resumed.

The same for tools, prompts and resources. Each round returns the final result, or a `PendingCall`; only tools
can become tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ekiden.client.answering import Answerer
from ekiden.client.calls import (
    CallDriver,
    ClientCall,
    Progress,
    prompt_call,
    resource_call,
    tool_call,
    within,
)
from ekiden.client.checking import check_responses
from ekiden.client.pending import PendingCall, respond
from ekiden.client.results import typed
from ekiden.client.tasks.handle import TaskHandle
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

__all__ = ["ByHand"]

_RESUMED_BY = {"tools/call": "resume", "prompts/get": "resume_prompt", "resources/read": "resume_resource"}


class ByHand:
    """The part of a client that makes one round at a time."""

    _driver: CallDriver
    _answerer: Answerer
    _max_rounds: int
    _timeout: float | None

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult | PendingCall | TaskHandle:
        """Call a tool for one round: its result, a call that waits for answers, or a task.

        With servers of 2025-11-25 the caller decides: where the tool can be a task, it becomes one.
        """
        from mcp_types import CallToolResult

        call = tool_call(name, arguments, meta, progress)
        ended = await self._round(call, None, {}, timeout, as_task=True)
        return ended if isinstance(ended, PendingCall | TaskHandle) else typed(CallToolResult, ended)

    async def start_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> GetPromptResult | PendingCall:
        """Get a prompt for one round: the prompt, or a call that waits for answers."""
        from mcp_types import GetPromptResult

        ended = await self._round(prompt_call(name, arguments), None, {}, timeout)
        return ended if isinstance(ended, PendingCall) else typed(GetPromptResult, ended)

    async def start_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReadResourceResult | PendingCall:
        """Read a resource for one round: its content, or a call that waits for answers."""
        from mcp_types import ReadResourceResult

        ended = await self._round(resource_call(uri), None, {}, timeout)
        return ended if isinstance(ended, PendingCall) else typed(ReadResourceResult, ended)

    async def resume(
        self,
        pending: PendingCall,
        responses: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CallToolResult | PendingCall | TaskHandle:
        """One more round of a pending call of a tool, with the given responses, or those of the callbacks.

        There must be a response for every question, or `LeftOut()` for one that is not to be answered. Each
        is checked before it is sent (`WrongAnswer`). `max_rounds` and `timeout` hold here too; the time that
        callbacks take does not count.
        """
        from mcp_types import CallToolResult

        ended = await self._resume("tools/call", pending, responses, progress, max_rounds, timeout)
        return ended if isinstance(ended, PendingCall | TaskHandle) else typed(CallToolResult, ended)

    async def resume_prompt(
        self,
        pending: PendingCall,
        responses: Mapping[str, Any] | None = None,
        *,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> GetPromptResult | PendingCall:
        """One more round of a pending prompt, like `resume`."""
        from mcp_types import GetPromptResult

        ended = await self._resume("prompts/get", pending, responses, None, max_rounds, timeout)
        return ended if isinstance(ended, PendingCall) else typed(GetPromptResult, ended)

    async def resume_resource(
        self,
        pending: PendingCall,
        responses: Mapping[str, Any] | None = None,
        *,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReadResourceResult | PendingCall:
        """One more round of a pending resource, like `resume`."""
        from mcp_types import ReadResourceResult

        ended = await self._resume("resources/read", pending, responses, None, max_rounds, timeout)
        return ended if isinstance(ended, PendingCall) else typed(ReadResourceResult, ended)

    async def _resume(
        self,
        method: str,
        pending: PendingCall,
        responses: Mapping[str, Any] | None,
        progress: Progress | None,
        max_rounds: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> JsonObject | PendingCall | TaskHandle:
        if pending.method != method:
            raise UsageError(f"this pending call is a {pending.method}: {_advice(pending.method)}")
        if responses is None:
            most = self._max_rounds if max_rounds is None else max_rounds
            responses = await respond(pending, self._answerer, most)
        else:
            responses = check_responses(pending.requests, responses)
        call = ClientCall(method, pending.name, pending.params, progress)
        return await self._round(call, pending, responses, timeout)

    async def _round(
        self,
        call: ClientCall,
        before: PendingCall | None,
        responses: Mapping[str, Any],
        timeout: float | None,  # noqa: ASYNC109
        *,
        as_task: bool = False,
    ) -> JsonObject | PendingCall | TaskHandle:
        async with within(self._timeout if timeout is None else timeout, f"{call.method} {call.name!r}"):
            return await self._driver.round(call, before, responses, as_task=as_task)


def _advice(method: str) -> str:
    name = _RESUMED_BY.get(method)
    return "it cannot be resumed" if name is None else f"resume it with {name}()"
