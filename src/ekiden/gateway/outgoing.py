"""A client's request as it is sent on to an upstream: what is kept of it, and what is said instead."""

from collections.abc import Mapping
from typing import Any, Final

from ekiden.client.sessions.session import ClientRequest
from ekiden.gateway.upstream import Upstream
from ekiden.wire.extensions.names import UI
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    RequestMeta,
)
from ekiden.wire.modern import Request
from ekiden.wire.tasks import EXTENSION, RELATED

__all__ = ["request_of", "with_extension"]

_OURS: Final = frozenset(
    {CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION, RELATED}
)
"""Keys of `_meta` that every client says for itself."""
_QUESTIONS: Final = ("elicitation", "sampling", "roots")
_EXTENSIONS: Final = (EXTENSION, UI)
"""The extensions that pass through a gateway."""


def request_of(request: Request, upstream: Upstream, params: JsonObject, name: str | None) -> ClientRequest:
    """The request to the upstream, with these parameters, on behalf of the client that sent `request`."""
    sent = ClientRequest(request.method, params, name)
    if kept := {key: value for key, value in request.meta.fields.items() if key not in _OURS}:
        sent.params = {**params, "_meta": kept}
    sent.says = _says(request.meta)
    if upstream.forward_headers:
        given = ((header, request.header(header)) for header in upstream.forward_headers)
        sent.headers = {header: value for header, value in given if value is not None}
    return sent


def _says(meta: RequestMeta) -> JsonObject:
    """What the client said of itself, as far as it concerns what may be sent back through the gateway."""
    declared = meta.capabilities
    passed: JsonObject = {name: declared[name] for name in _QUESTIONS if is_object(declared.get(name))}
    extensions = declared.get("extensions")
    known: JsonObject = extensions if is_object(extensions) else {}
    if kept := {name: known[name] for name in _EXTENSIONS if name in known}:
        passed["extensions"] = kept
    said: JsonObject = {CLIENT_CAPABILITIES: passed}
    if meta.log_level is not None:
        said[LOG_LEVEL] = meta.log_level
    return said


def with_extension(capabilities: Mapping[str, Any], identifier: str = EXTENSION) -> bool:
    """Whether an upstream declares an extension; without an identifier, tasks of 2026."""
    extensions = capabilities.get("extensions")
    return is_object(extensions) and identifier in extensions
