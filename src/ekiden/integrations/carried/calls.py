"""One call of a carried handler: what its own `Context` talks to in place of a client."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from starlette.requests import Request as HttpRequest

from ekiden import Context, EkidenError, InputRequired, InvalidParams, ProtocolError
from ekiden.engine import answers_by_hand, ask
from ekiden.errors import CannotAsk
from ekiden.integrations.inside.official_parts import CarriedSession

__all__ = [
    "Told",
    "answers_to",
    "as_ours",
    "asked_by_hand",
    "by_hand",
    "dumped",
    "request_context",
    "require_arguments",
]

_log = logging.getLogger(__name__)

Told = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Called with a notification that concerns the server, not one call: something has changed."""

_SESSION: Final = b"mcp-session-id"
_CHANGES: Final = frozenset(
    {
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    }
)


class _ToClient:
    """Implements `Outbound`: questions and notifications go where those of ekiden's own handlers go."""

    can_send_request = True

    def __init__(self, ctx: Context[Any], told: Told) -> None:
        self._ctx = ctx
        self._told = told

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, *_: Any
    ) -> dict[str, Any]:
        """Ask the client: in rounds, or through its session."""
        if method == "ping":
            return {}
        return await _ask(self._ctx, method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, *_: Any) -> None:
        """Send what belongs to the call; hand on what belongs to the server."""
        said = params or {}
        if method == "notifications/message":
            await self._ctx.log(said["level"], said["data"], logger=said.get("logger"))
        elif method == "notifications/progress":
            await self.progress(said["progress"], said.get("total"), said.get("message"))
        elif method in _CHANGES:
            await self._told(method, said)
        else:
            _log.debug("%s is not sent: ekiden sends it itself where it is due", method)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is."""
        await self._ctx.progress(progress, total, message)


async def _ask(ctx: Context[Any], method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Ask; what goes wrong is raised as the SDK would, with the error of ekiden as its cause."""
    try:
        return await ask(ctx, method, params)
    except ProtocolError as error:
        raise MCPError(error.code, error.message, error.data) from error
    except CannotAsk as error:
        raise MCPError(types.INVALID_REQUEST, str(error)) from error


def request_context(ctx: Context[Any], told: Told) -> ServerRequestContext[Any, Any]:
    """The request as the official SDK has it."""
    request, meta = ctx.request, ctx.meta
    client = meta.client_info, meta.capabilities
    session = CarriedSession(
        _ToClient(ctx, told), meta.protocol_version, client, request.session, meta.fields
    )
    known: Any = {**meta.fields}
    if meta.progress_token is not None:
        known["progress_token"] = meta.progress_token
    return ServerRequestContext(
        session=session,
        lifespan_context=ctx.state,
        protocol_version=meta.protocol_version,
        method=request.method,
        params=request.params,
        request_id=request.id,
        meta=known,
        request=_http(ctx),
    )


def _http(ctx: Context[Any]) -> HttpRequest | None:
    """The HTTP request as handlers may look at it; its body is read already."""
    incoming = ctx.request.http
    if incoming is None:
        return None
    headers = incoming.repeating or list(incoming.headers.items())
    if ctx.request.session is None:
        # Nobody has looked whose session it names, and handlers find what sessions have kept by its name.
        headers = [pair for pair in headers if pair[0] != _SESSION]
    return HttpRequest(
        {
            "type": "http",
            "method": incoming.method,
            "path": incoming.path,
            "query_string": incoming.query,
            "headers": headers,
            "client": None if incoming.address is None else (incoming.address, 0),
        }
    )


# Questions that a handler returns


def by_hand(ctx: Context[Any]) -> dict[str, Any]:
    """The fields of a request that answer what its handler asked with an `InputRequiredResult`."""
    responses, state = answers_by_hand(ctx)
    return {"input_responses": _read(responses), "request_state": state}


def _read(responses: Mapping[str, Any]) -> types.InputResponses | None:
    if not responses:
        return None
    asked = {"inputResponses": dict(responses)}
    return types.InputResponseRequestParams.model_validate(asked).input_responses


def asked_by_hand(result: types.InputRequiredResult) -> InputRequired:
    """An `InputRequiredResult` as ekiden's: the state is sealed with ekiden's keys."""
    return InputRequired(dict(result.input_requests or {}), result.request_state)


async def answers_to(ctx: Context[Any], result: types.InputRequiredResult) -> dict[str, Any]:
    """Ask everything that a result asks, together; the fields of a request that bring the answers."""
    requests = result.input_requests or {}
    spelled = [dumped(request) for request in requests.values()]
    answers = await asyncio.gather(*(_ask(ctx, each["method"], each.get("params")) for each in spelled))
    return {
        "input_responses": _read(dict(zip(requests, answers, strict=True))),
        "request_state": result.request_state,
    }


# Results and errors


def dumped(model: Any) -> dict[str, Any]:
    """A model of the official types as the wire has it."""
    spelled: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return spelled


def as_ours(error: MCPError) -> EkidenError:
    """An error of the SDK as ekiden's. One that came from ekiden is the same again."""
    if isinstance(error.__cause__, EkidenError):
        return error.__cause__
    return ProtocolError(error.message, code=error.code, data=error.data)


def require_arguments(definition: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse a prompt without the arguments that it needs."""
    needed = {each["name"] for each in definition.get("arguments", ()) if each.get("required")}
    if missing := sorted(needed - arguments.keys()):
        raise InvalidParams(f"Missing required arguments: {', '.join(missing)}")
