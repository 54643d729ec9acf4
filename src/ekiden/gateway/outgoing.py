"""What passes on both ways: a client's request as an upstream gets it, and its questions as a client does."""

from collections.abc import Mapping
from typing import Any, Final

from ekiden.client.sessions.session import ClientRequest
from ekiden.errors import InvalidParams
from ekiden.gateway.upstream import Upstream
from ekiden.rounds.asks import SAMPLE, declares
from ekiden.wire import versions
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
from ekiden.wire.tasks import EXTENSION, NEEDED, RELATED

__all__ = ["askable", "request_of", "takes_tasks", "with_extension"]

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
        for header in upstream.replaced_headers:
            if header not in sent.headers:  # Else the call would be made in the name of the gateway itself.
                raise InvalidParams(f"The server behind {upstream.name!r} needs the header {header} of yours")
    return sent


def _says(meta: RequestMeta) -> JsonObject:
    """What the client said of itself, as far as it concerns what may be sent back through the gateway."""
    declared = meta.capabilities
    passed: JsonObject = {name: declared[name] for name in _QUESTIONS if is_object(declared.get(name))}
    if "context" in passed.get("sampling", ()):
        passed["sampling"] = {name: value for name, value in passed["sampling"].items() if name != "context"}
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


def takes_tasks(request: Request) -> bool:
    """Whether the client of a call takes a task of 2026 in place of a result."""
    return request.meta.protocol_version == versions.MODERN and declares(request.meta.capabilities, NEEDED)


def askable(question: JsonObject) -> JsonObject:
    """A question as the client gets it.

    A model is given no context of "this server": to the client that is the gateway, with all its upstreams.
    """
    params = question.get("params")
    if question["method"] != SAMPLE or not is_object(params) or "includeContext" not in params:
        return question
    return {**question, "params": {name: value for name, value in params.items() if name != "includeContext"}}
