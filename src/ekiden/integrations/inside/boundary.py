"""The middleware in front of the host's boundary for `requestState`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.request_state import RequestStateBoundary
from pydantic import BaseModel

from ekiden.engine import Engine, Kind
from ekiden.integrations.inside import official_parts as parts
from ekiden.integrations.inside.calls import LEVEL, Calls, HostContext, Passage, passage
from ekiden.integrations.inside.listening import Listening

__all__ = ["Boundary", "boundary_before"]

_LISTS: Final[dict[str, Kind]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_WITH_ROUNDS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


class Boundary:
    """Carries our states around the host, and adds to what the host says about itself."""

    def __init__(self, calls: Calls, listening: Listening) -> None:
        self._calls = calls
        self._listening = listening

    async def __call__(self, ctx: HostContext, call_next: CallNext) -> HandlerResult:
        """Pass a message on to the host."""
        method = ctx.method
        if ctx.request_id is None:
            return await call_next(ctx)
        if method in _WITH_ROUNDS:
            return await self._around(ctx, call_next)
        if method == "subscriptions/listen" and self._listening.concerns(ctx):
            return await self._listening.listen(ctx, call_next)
        result = await call_next(ctx)
        if method in _LISTS:
            return self._visible(ctx, _LISTS[method], result)
        if method == "initialize":
            return self._declare(ctx, result)
        if method == "logging/setLevel":
            parts.connection_of(ctx).state[LEVEL] = (ctx.params or {}).get("level")
        return result

    async def _around(self, ctx: HostContext, call_next: CallNext) -> HandlerResult:
        params = dict(ctx.params or {})
        around = Passage(None)
        if Engine.is_token(params.get("requestState")):
            around.state = params.pop("requestState")
            ctx = dataclasses.replace(ctx, params=params)
        token = passage.set(around)
        try:
            result = await call_next(ctx)
        except Exception:
            if around.error is not None:
                raise around.error from None
            raise
        finally:
            passage.reset(token)
        if around.error is not None:
            raise around.error
        return _restored(around, result)

    def _visible(self, ctx: HostContext, kind: Kind, result: HandlerResult) -> HandlerResult:
        """A list without what its reader lacks the scopes for."""
        hidden = self._calls.engine.hidden(kind, self._calls.principal(ctx))
        if not hidden:
            return result
        said = _as_dict(result)
        return {**said, kind: [each for each in said.get(kind, ()) if hidden.isdisjoint(_names(each))]}

    def _declare(self, ctx: HostContext, result: HandlerResult) -> HandlerResult:
        """Declare tasks of 2025-11-25; those of 2026 are an extension, which the host declares."""
        said = _as_dict(result)
        version = said.get("protocolVersion")
        if not isinstance(version, str):
            return result
        has_principal = self._calls.principal(ctx) is not None
        more = self._calls.engine.task_capabilities(version, has_principal=has_principal)
        return {**said, "capabilities": {**said.get("capabilities", {}), **more}} if more else result


def _names(definition: dict[str, Any]) -> set[str]:
    """What a definition is known by."""
    return {definition[field] for field in ("uri", "uriTemplate") if field in definition} or {
        definition["name"]
    }


def _restored(around: Passage, result: HandlerResult) -> HandlerResult:
    """The result of the host, with what it could not carry."""
    if around.exact is None and around.next_state is None:
        return result
    said = _as_dict(result)
    if around.exact is not None:
        return {**around.exact, **({"_meta": said["_meta"]} if "_meta" in said else {})}
    if said.get("resultType") != "input_required":
        return result  # A middleware of the host has answered in another way.
    return {**said, "requestState": around.next_state}


def _as_dict(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(cast("Mapping[str, Any]", result or {}))


def boundary_before(low: LowLevelServer[Any], calls: Calls) -> None:
    """Put our boundary right before the host's own."""
    places = [place for place, each in enumerate(low.middleware) if isinstance(each, RequestStateBoundary)]
    low.middleware.insert(places[0], Boundary(calls, Listening(calls, low)))
