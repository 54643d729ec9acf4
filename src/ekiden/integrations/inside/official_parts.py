"""The private parts of the official SDK that are used, all of them in this file.

`missing_parts` names those that are gone, so that a release which moved one is told as that.
"""
# ruff: noqa: SLF001

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, cast

from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer
from mcp.server.request_state import RequestStateBoundary
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ekiden.engine import Kind
from ekiden.errors import CannotAsk

__all__ = [
    "CarriedSession",
    "Outbound",
    "bus_of",
    "connection_of",
    "extensions_of",
    "has_own",
    "lifespan_of",
    "low_level",
    "missing_carried_parts",
    "missing_parts",
    "notify",
    "protections_of",
    "push",
    "routes_of",
    "templates_of",
    "tools_of",
    "verifying",
    "with_notify",
]

_OF_SESSIONS: Final = ("_request_outbound", "_connection")
_OF_CARRIED_SESSIONS: Final = ("_allowed_log_levels", "_log_is_request_scoped")
_OF_CARRIED: Final = (
    "_auth_server_provider",
    "_custom_starlette_routes",
    "_subscriptions",
    "_token_verifier",
)
_OF_MCPSERVER: Final = (
    "_extensions",
    "_lowlevel_server",
    "_prompt_manager",
    "_resource_manager",
    "_tool_manager",
)
_OF_LOW_LEVEL: Final = (
    "add_request_handler",
    "extensions",
    "get_request_handler",
    "lifespan",
    "middleware",
)


def missing_parts(server: MCPServer[Any] | None, low: Any) -> list[str]:
    """The parts that are used and not there any more, by name."""
    gone = [f"MCPServer.{name}" for name in _OF_MCPSERVER if server is not None and not hasattr(server, name)]
    gone += [f"Server.{name}" for name in _OF_LOW_LEVEL if low is not None and not hasattr(low, name)]
    kept_by_sessions = ServerSession.__init__.__code__.co_names
    gone += [f"ServerSession.{name}" for name in _OF_SESSIONS if name not in kept_by_sessions]
    middleware = getattr(low, "middleware", ())
    if not any(isinstance(each, RequestStateBoundary) for each in middleware):
        gone.append("RequestStateBoundary in Server.middleware")
    return gone


def missing_carried_parts(server: MCPServer[Any] | None, low: Any) -> list[str]:
    """The same, for a server that ekiden serves itself."""
    gone = missing_parts(server, low)
    gone += [f"MCPServer.{name}" for name in _OF_CARRIED if server is not None and not hasattr(server, name)]
    kept_by_sessions = ServerSession.__init__.__code__.co_names
    return gone + [f"ServerSession.{name}" for name in _OF_CARRIED_SESSIONS if name not in kept_by_sessions]


# The server


def low_level(server: MCPServer[Any]) -> LowLevelServer[Any]:
    """The server under an `MCPServer`."""
    return server._lowlevel_server  # pyright: ignore[reportPrivateUsage]


def extensions_of(server: MCPServer[Any]) -> list[Any]:
    """The extensions of an `MCPServer`, whose interceptors see every call of a tool."""
    return list(server._extensions)  # pyright: ignore[reportPrivateUsage]


def tools_of(server: MCPServer[Any]) -> dict[str, Any]:
    """The tools of an `MCPServer` as it holds them, by name."""
    return {tool.name: tool for tool in server._tool_manager.list_tools()}  # pyright: ignore[reportPrivateUsage]


def templates_of(server: MCPServer[Any]) -> dict[str, Any]:
    """The resource templates of an `MCPServer` as it holds them, by template."""
    templates = server._resource_manager.list_templates()  # pyright: ignore[reportPrivateUsage]
    return {template.uri_template: template for template in templates}


def bus_of(server: MCPServer[Any]) -> SubscriptionBus:
    """Where an `MCPServer` tells of changes."""
    return server._subscriptions  # pyright: ignore[reportPrivateUsage]


def routes_of(server: MCPServer[Any]) -> list[Any]:
    """The HTTP routes beside the endpoint of an `MCPServer`."""
    return list(server._custom_starlette_routes)  # pyright: ignore[reportPrivateUsage]


def protections_of(server: MCPServer[Any]) -> list[object]:
    """What decides who may call an `MCPServer`."""
    provider, verifier = server._auth_server_provider, server._token_verifier  # pyright: ignore[reportPrivateUsage]
    return [each for each in (provider or verifier,) if each is not None]


def verifying(server: MCPServer[Any]) -> Callable[[str], Awaitable[AccessToken | None]] | None:
    """What verifies the access tokens of an `MCPServer`; None if it does not do that itself."""
    # A release without it cannot say: then subscriptions end with the expiry of their tokens only.
    verifier = getattr(server, "_token_verifier", None)
    return None if verifier is None else verifier.verify_token


def lifespan_of(server: MCPServer[Any]) -> AbstractAsyncContextManager[Any]:
    """The lifespan of an `MCPServer`."""
    low = low_level(server)
    return low.lifespan(low)


def has_own(server: MCPServer[Any], kind: Kind, key: str) -> bool:
    """Whether an `MCPServer` has a component of its own under this name."""
    if kind == "tools":
        return server._tool_manager.get_tool(key) is not None  # pyright: ignore[reportPrivateUsage]
    if kind == "prompts":
        return server._prompt_manager.get_prompt(key) is not None  # pyright: ignore[reportPrivateUsage]
    manager = server._resource_manager  # pyright: ignore[reportPrivateUsage]
    if kind == "resources":
        return any(str(each.uri) == key for each in manager.list_resources())
    return any(each.uri_template == key for each in manager.list_templates())


# A session


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection of a client: in 2025 it lasts as long as the session."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


async def notify(ctx: ServerRequestContext[Any, Any], method: str, params: dict[str, Any]) -> None:
    """Send a notification on the stream of a request."""
    await ctx.session._request_outbound.notify(method, params)  # pyright: ignore[reportPrivateUsage]


async def push(ctx: ServerRequestContext[Any, Any], method: str, params: dict[str, Any]) -> Any:
    """Send a request to a client of 2025, on the stream of its own request; the result."""
    try:
        outbound = ctx.session._request_outbound  # pyright: ignore[reportPrivateUsage]
        return await outbound.send_raw_request(method, params)
    except MCPError as error:
        raise CannotAsk(f"The client could not answer {method}: {error.message}") from error


class _Notifying:
    """The outgoing side of a request, whose notifications go through a function first."""

    def __init__(self, outbound: Any, tell: Any) -> None:
        self._outbound = outbound
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbound, name)

    async def notify(self, method: str, params: Mapping[str, Any] | None, *_: Any) -> None:
        """Hand a notification to the function."""
        await self._tell(method, dict(params or {}))


def with_notify(ctx: ServerRequestContext[Any, Any], tell: Any) -> ServerRequestContext[Any, Any]:
    """The same request, whose notifications are handed to `tell(method, params)`."""
    outbound = _Notifying(ctx.session._request_outbound, tell)  # pyright: ignore[reportPrivateUsage]
    session = ServerSession(cast("Any", outbound), connection_of(ctx), request_meta=ctx.meta)
    return dataclasses.replace(ctx, session=session)


# A session that ekiden answers for


class Outbound(Protocol):
    """The way to a client, as the sessions of the SDK know it."""

    can_send_request: bool

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, *_: Any
    ) -> dict[str, Any]:
        """Ask the client something."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None, *_: Any) -> None:
        """Tell the client something."""
        ...

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is."""
        ...


class CarriedSession(ServerSession):
    """The session of one call that ekiden serves. Its parts are made when a handler looks at them."""

    def __init__(  # pyright: ignore[reportMissingSuperCall]  the one above makes all parts at once
        self,
        outbound: Outbound,
        version: str,
        client: tuple[Any, Any],
        session_id: str | None,
        meta: Mapping[str, Any],
    ) -> None:
        self._request_outbound = cast("Any", outbound)
        self._version = version
        self._client = client
        self._session_id = session_id
        self._request_meta = meta

    @functools.cached_property
    def _connection(self) -> Connection:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        info, capabilities = self._client
        connection = Connection.from_envelope(
            self._version, info, capabilities, outbound=self._request_outbound
        )
        connection.session_id = self._session_id
        return connection

    @functools.cached_property
    def _log_is_request_scoped(self) -> bool:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._version in MODERN_PROTOCOL_VERSIONS

    @functools.cached_property
    def _allowed_log_levels(self) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        return allowed_log_levels(self._version, self._request_meta)
