"""How clients of 2025 begin and what they may send: the handshake, and three kinds of messages.

Implements basic/lifecycle of 2024-11-05 to 2025-11-25. Unlike a modern client, one of 2025 also sends
responses, because servers sent requests then; and one of 2025-03-26 may send several messages at once.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import EnvelopeError, InvalidParams
from ekiden.wire import jsonrpc, versions
from ekiden.wire.json import MAX_VALUES, decode, extract, is_array, is_object
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.meta import (
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    LOG_LEVELS,
    LONGEST_PROGRESS_TOKEN,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    RequestMeta,
)

__all__ = [
    "Hello",
    "Incoming",
    "Response",
    "is_modern",
    "negotiate",
    "read_hello",
    "read_incoming",
    "read_messages",
    "request_meta",
    "usable_capabilities",
]

_MOST_AT_ONCE: Final = 100
"""Messages in one batch."""
_MOST_CAPABILITIES: Final = 16 * 1024
_MOST_INFO: Final = 8 * 1024
"""Bytes that are remembered of what a client says about itself. Clients in use say some hundred; icons, which
may be whole pictures, do not have to be remembered."""


class Response(msgspec.Struct):
    """A client's answer to a request of ours."""

    id: RequestId
    result: Any
    error: dict[str, Any] | None


Incoming: TypeAlias = Message | Response | EnvelopeError
"""A message, or what is wrong with it: in a batch the others are served all the same."""


def read_incoming(data: bytes, version: str | None) -> tuple[list[Incoming], bool]:
    """The messages in a line, and whether they came as a batch; `ParseError` if it is not JSON."""
    return read_messages(decode(data, MAX_VALUES), version)


def read_messages(value: Any, version: str | None) -> tuple[list[Incoming], bool]:
    """The messages in a decoded value, and whether they came as a batch."""
    if not is_array(value) or version not in versions.WITH_BATCHES:
        return [_read(value)], False
    if not 0 < len(value) <= _MOST_AT_ONCE:
        return [EnvelopeError(f"Invalid request: a batch has 1 to {_MOST_AT_ONCE} messages", None)], False
    return [_read(item) for item in value], True


def _read(value: Any) -> Incoming:
    if is_object(value) and "method" not in value and ("result" in value or "error" in value):
        return _response(value)
    if is_object(value) and value.get("params", ...) is None:
        value = {name: field for name, field in value.items() if name != "params"}
    try:
        return jsonrpc.read(value)
    except EnvelopeError as error:
        return error


def _response(value: dict[str, Any]) -> Incoming:
    request_id, error = value.get("id"), value.get("error")
    if value.get("jsonrpc") != "2.0" or type(request_id) not in (int, str):
        return EnvelopeError("Invalid request: a response has `jsonrpc` and the `id` of a request", None)
    if "error" in value and not is_object(error):
        return EnvelopeError("Invalid request: the `error` of a response must be an object", None)
    return Response(request_id, value.get("result"), error)  # type: ignore[arg-type]


class Hello(msgspec.Struct):
    """What a client says in `initialize`, as far as it is remembered: it lives as long as the session."""

    version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


def read_hello(params: dict[str, Any]) -> Hello:
    """The parameters of `initialize`; a missing or malformed one is `InvalidParams`."""
    version = params.get("protocolVersion")
    if type(version) is not str:
        raise InvalidParams("Invalid params: `protocolVersion` is required and must be a string")
    capabilities, client_info = params.get("capabilities"), params.get("clientInfo")
    if not is_object(capabilities) or not is_object(client_info):
        raise InvalidParams("Invalid params: `capabilities` and `clientInfo` are required objects")
    return Hello(version, extract(capabilities, _MOST_CAPABILITIES), extract(client_info, _MOST_INFO))


def negotiate(requested: str, spoken: Sequence[str]) -> str:
    """The version of a session: what the client asked for, or the newest that we speak."""
    return requested if requested in spoken else versions.LEGACY[0]


def usable_capabilities(version: str, declared: dict[str, Any]) -> dict[str, Any]:
    """What a client can be asked for, in today's words.

    Before 2025-11-25 there were no modes and parts: elicitation was forms, and sampling included
    context. In 2025-03-26 and before there was no elicitation at all.
    """
    if version not in ("2025-06-18", "2025-03-26", "2024-11-05"):
        return declared
    usable = {name: value for name, value in declared.items() if name != "elicitation"}
    if is_object(usable.get("sampling")):
        usable["sampling"] = {"context": {}}
    if version == "2025-06-18" and is_object(declared.get("elicitation")):
        usable["elicitation"] = {"form": {}}
    return usable


def is_modern(params: dict[str, Any]) -> bool:
    """Whether a request names its protocol version in `_meta`, as requests do since 2026."""
    fields = params.get("_meta")
    return is_object(fields) and PROTOCOL_VERSION in fields


def request_meta(
    params: dict[str, Any],
    version: str,
    capabilities: dict[str, Any],
    client_info: dict[str, Any],
    log_level: str | None,
) -> RequestMeta:
    """The meta of a request in a session: that of the session, overridden by the request's own `_meta`."""
    fields: Any = params.get("_meta") or {}
    if not is_object(fields):
        raise InvalidParams("Invalid params: `_meta` must be an object")
    own = fields.get(CLIENT_CAPABILITIES)
    if is_object(own):
        capabilities = {**capabilities, **usable_capabilities(version, own)}
    level = fields.get(LOG_LEVEL)
    if isinstance(level, str) and level in LOG_LEVELS:
        log_level = level
    token = fields.get(PROGRESS_TOKEN)
    if token is not None and type(token) is not int and type(token) is not str:
        raise InvalidParams("Invalid params: `progressToken` must be a string or an integer")
    if isinstance(token, str) and len(token) > LONGEST_PROGRESS_TOKEN:
        raise InvalidParams(
            f"Invalid params: `progressToken` must have at most {LONGEST_PROGRESS_TOKEN:,} characters"
        )
    return RequestMeta(version, capabilities, client_info, log_level, token, fields)
