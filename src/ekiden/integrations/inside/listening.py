"""Subscriptions to tasks: `subscriptions/listen` with `taskIds`, beside what the host itself tells of."""

import asyncio
from typing import Any, Final

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server as LowLevelServer

from ekiden import Request
from ekiden.integrations.inside import official_parts as parts
from ekiden.integrations.inside.calls import Calls, HostContext
from ekiden.integrations.inside.identity import lasting_of

__all__ = ["Listening"]

_METHOD: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


class Listening:
    """Answers subscriptions that name tasks."""

    def __init__(self, calls: Calls, low: LowLevelServer[Any]) -> None:
        self._calls = calls
        self._low = low

    def concerns(self, ctx: HostContext) -> bool:
        """Whether a subscription names tasks."""
        return self._calls.engine.has_tasks and bool(_filter(ctx).get("taskIds"))

    async def listen(self, ctx: HostContext, call_next: CallNext) -> HandlerResult:
        """Answer a subscription: its tasks here, and everything else, if it wants that, by the host."""
        params = {**(ctx.params or {}), "notifications": {"taskIds": _filter(ctx)["taskIds"]}}
        request = self._calls.request(ctx, _METHOD, params, lasting_of(ctx, self._calls.verify()))
        if self._low.get_request_handler(_METHOD) is None:
            return await self._calls.answer(ctx, request)
        return await self._both(ctx, request, call_next)

    async def _both(self, ctx: HostContext, request: Request, call_next: CallNext) -> HandlerResult:
        joined = _Joined(ctx)
        own = asyncio.get_running_loop().create_task(
            self._calls.answer(parts.with_notify(ctx, joined.from_tasks), request)
        )
        try:
            await asyncio.wait([own, joined.half], return_when=asyncio.FIRST_COMPLETED)
            if own.done():
                return own.result()
            with anyio.CancelScope() as scope:
                own.add_done_callback(lambda _: scope.cancel())
                return await call_next(parts.with_notify(ctx, joined.from_host))
            return await own
        finally:
            own.cancel()
            joined.half.cancel()


class _Joined:
    """Two subscriptions on one stream, with one acknowledgement of both."""

    def __init__(self, ctx: HostContext) -> None:
        self._ctx = ctx
        loop = asyncio.get_running_loop()
        self.half: asyncio.Future[dict[str, Any]] = loop.create_future()
        """Done when the tasks are granted; the rest is acknowledged with them."""
        self._acknowledged = asyncio.Event()

    async def from_tasks(self, method: str, params: dict[str, Any]) -> None:
        """A notification about the tasks, or their half of the acknowledgement."""
        if method == _ACKNOWLEDGED and not self.half.done():
            self.half.set_result(params)
            return
        await self._acknowledged.wait()
        await parts.notify(self._ctx, method, params)

    async def from_host(self, method: str, params: dict[str, Any]) -> None:
        """A notification of the host. The first one acknowledges, and goes out for both."""
        if method == _ACKNOWLEDGED:
            granted = {**params.get("notifications", {}), **self.half.result()["notifications"]}
            await parts.notify(self._ctx, method, {**params, "notifications": granted})
            self._acknowledged.set()
            return
        await parts.notify(self._ctx, method, params)


def _filter(ctx: HostContext) -> dict[str, Any]:
    wanted: Any = (ctx.params or {}).get("notifications")
    return {**wanted} if isinstance(wanted, dict) else {}
