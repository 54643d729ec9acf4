"""Requests that no transport of ours has received: they are built out of what a host knows."""

from collections.abc import Container, Mapping
from typing import Any

from ekiden.wire import versions
from ekiden.wire.handshake import request_meta, usable_capabilities
from ekiden.wire.headers import Headers
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.modern import Request, accept, target_of
from ekiden.wire.principal import Principal

__all__ = ["after_handshake", "identity", "modern", "principal_of", "with_id"]


def principal_of(request: Request) -> str | None:
    """Whose request it is: for `Server(principal=...)`, where a host has verified that."""
    return None if request.principal is None else request.principal.id


def identity(principal: Principal | str | None) -> Principal | None:
    """A principal; a text is the subject of one."""
    return Principal(principal) if isinstance(principal, str) else principal


def modern(
    message: Message,
    methods: Container[str],
    headers: Headers | None,
    session: str | None,
    principal: Principal | None,
) -> Request:
    """A request of 2026-07-28, which says in its `_meta` who the client is and what it can do."""
    # The host has compared its headers with the body.
    request = accept(message, None, methods)
    request.headers, request.session, request.principal = headers, session, principal
    return request


def after_handshake(
    message: Message,
    version: str,
    client: tuple[Mapping[str, Any], Mapping[str, Any]],
    log_level: str,
    headers: Headers | None,
    session: str | None,
    principal: Principal | None,
) -> Request:
    """A request of a client of 2025. `client` is what it declared in its handshake, and who it is."""
    assert message.id is not None
    declared, info = client
    usable = usable_capabilities(version, dict(declared))
    meta = request_meta(message.params, version, usable, dict(info), log_level)
    name = target_of(message.method, message.params) if version in versions.LEGACY else None
    return Request(
        message.id, message.method, message.params, meta, name, headers, None, session, principal=principal
    )


def with_id(request_id: RequestId | None, method: str, params: Mapping[str, Any] | None) -> Message:
    """The message of a request."""
    return Message("" if request_id is None else request_id, method, dict(params or {}))
