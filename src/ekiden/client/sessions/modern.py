"""Sessions with servers of 2026-07-28: every request carries version, client and capabilities itself."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ekiden.client.sessions.session import ClientRequest, Era, Hooks, read_error
from ekiden.errors import HttpRefused, InvalidResult, TransportError
from ekiden.signals import EraChanged
from ekiden.transports.client.link import Link, Outgoing
from ekiden.wire import jsonrpc, versions
from ekiden.wire.headers import encode_value
from ekiden.wire.json import JsonObject, Raw, encode, is_array, is_object
from ekiden.wire.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    SERVER_INFO,
)

__all__ = ["MODERN_ERRORS", "ModernSession"]

MODERN_ERRORS: Final = frozenset({-32020, -32021, -32022})
"""Error codes that only a modern server sends."""

_OLD_ERRORS: Final = frozenset({-32000, -32001, -32600})
"""Codes with which servers of 2025 refuse a request without a session, or of a version they do not speak."""


class _Listener:
    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def on_notification(self, message: JsonObject) -> None:
        if message["method"] == "notifications/progress" and self._hooks.progress is not None:
            self._hooks.progress(message.get("params") or {})
        if self._hooks.notification is not None:
            self._hooks.notification(message)

    async def on_request(self, message: JsonObject) -> None:
        raise TransportError(
            f"A server of {versions.MODERN} must not send requests, but sent {message['method']}"
        )


class ModernSession:
    """Implements `ekiden.client.sessions.session.ClientSession`."""

    era: Era = "modern"

    def __init__(
        self,
        link: Link,
        capabilities: Mapping[str, Any],
        client_info: Mapping[str, Any],
        *,
        ids: Iterator[int],
        log_level: str | None = None,
    ) -> None:
        self._link = link
        self.version = versions.MODERN
        self._ids = ids
        self._meta: JsonObject = {
            PROTOCOL_VERSION: self.version,
            CLIENT_INFO: dict(client_info),
            CLIENT_CAPABILITIES: dict(capabilities),
        }
        if log_level is not None:
            self._meta[LOG_LEVEL] = log_level
        self._spelled = Raw(encode(self._meta))
        """`_meta` as JSON: it is the same in nearly every request."""
        self.server_info: JsonObject = {}
        self.capabilities: JsonObject = {}
        self.instructions: str | None = None
        self.offers_draft = False
        """Whether the server says that it speaks the draft as well."""

    async def discover(self) -> JsonObject:
        """Ask the server who it is and what it can do."""
        result = await self.request(ClientRequest("server/discover", {}))
        capabilities, instructions = result.get("capabilities"), result.get("instructions")
        self.capabilities = capabilities if is_object(capabilities) else {}
        self.instructions = instructions if isinstance(instructions, str) else None
        supported = result.get("supportedVersions")
        self.offers_draft = is_array(supported) and versions.DRAFT in supported
        return result

    async def request(self, request: ClientRequest) -> JsonObject:
        """Send a request; once more if the server refuses its version but supports it."""
        message = await self._send(request)
        if _wants_other_version(message):
            message = await self._send(request)
        if "error" in message:
            error = read_error(message)
            if message.get("status") in (400, 404) and error.code in _OLD_ERRORS:
                raise EraChanged(error)
            raise error
        result = message.get("result")
        if not is_object(result):
            raise InvalidResult("The server's result is not an object")
        answered = result.get("_meta")
        if is_object(answered) and is_object(info := answered.get(SERVER_INFO)):
            self.server_info = info
        return result

    async def _send(self, request: ClientRequest) -> JsonObject:
        request_id = next(self._ids)
        meta: Raw | JsonObject = self._spelled
        if request.hooks.progress is not None:
            given: JsonObject = request.params.get("_meta") or {}
            meta = {**given, **self._meta, **request.says, PROGRESS_TOKEN: request_id}
        elif request.says or "_meta" in request.params:
            meta = {**(request.params.get("_meta") or {}), **self._meta, **request.says}
        headers = {"MCP-Protocol-Version": self.version, "Mcp-Method": request.method, **request.headers}
        if request.name is not None:
            headers["Mcp-Name"] = encode_value(request.name)
        body = jsonrpc.request(request_id, request.method, {**request.params, "_meta": meta})
        try:
            return await self._link.request(
                Outgoing(request_id, request.method, body, headers, request.hooks.held),
                _Listener(request.hooks),
            )
        except HttpRefused as refused:
            if refused.status in (400, 404, 405):
                raise EraChanged(refused) from None
            raise

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        headers = {"MCP-Protocol-Version": self.version, "Mcp-Method": method}
        await self._link.send(jsonrpc.notification(method, params), headers)

    async def abandon(self) -> None:
        """Nothing to forget: there is no session."""

    async def close(self) -> None:
        """Nothing to end: there is no session."""


def _wants_other_version(message: Mapping[str, Any]) -> bool:
    error = message.get("error")
    if not is_object(error) or error.get("code") != -32022:
        return False
    data = error.get("data")
    supported = data.get("supported") if is_object(data) else None
    return is_array(supported) and versions.MODERN in supported
