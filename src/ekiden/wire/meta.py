"""`_meta`: the keys that the protocol reserves, and what a request says with them.

Implements basic: General fields, `_meta`, of 2026-07-28. The rest of `_meta` belongs to others
and passes through untouched.
"""

from typing import Any, Final

import msgspec

from ekiden.errors import InvalidParams

__all__ = [
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "LOG_LEVELS",
    "PROGRESS_TOKEN",
    "PROTOCOL_VERSION",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TRACE_LINK",
    "RequestMeta",
    "read_meta",
]

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
TRACE_LINK: Final = "io.modelcontextprotocol/tracelink"
"""The `traceparent` of a call's first round, in its later rounds."""
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105  the wire's name for it, no secret
LONGEST_PROGRESS_TOKEN: Final = 1000
"""Its characters. It is sent back with every notification."""

LOG_LEVELS: Final = {
    name: rank
    for rank, name in enumerate(
        ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    )
}
"""The eight syslog levels, ranked: a message is sent if it ranks at least as high as asked for."""


class RequestMeta(msgspec.Struct, gc=False):
    """What a modern request says about itself."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any] | None
    log_level: str | None
    progress_token: int | str | None
    fields: dict[str, Any]
    """The whole `_meta` object as sent, trace context and vendors' keys included."""


def read_meta(params: dict[str, Any]) -> RequestMeta:
    """Read the per-request protocol fields; a missing or malformed one is `InvalidParams`."""
    fields: Any = params.get("_meta")
    if fields.__class__ is not dict:
        raise InvalidParams("Invalid params: `_meta` is required on every request and must be an object")
    version = fields.get(PROTOCOL_VERSION)
    if type(version) is not str:
        raise _malformed(PROTOCOL_VERSION, "is required and must be a string")
    capabilities: Any = fields.get(CLIENT_CAPABILITIES)
    if capabilities.__class__ is not dict:
        raise _malformed(CLIENT_CAPABILITIES, "is required and must be an object")
    client_info: Any = fields.get(CLIENT_INFO)
    if client_info.__class__ is not dict and CLIENT_INFO in fields:
        raise _malformed(CLIENT_INFO, "must be an object")
    log_level = token = None
    if LOG_LEVEL in fields:
        log_level = fields[LOG_LEVEL]
        if type(log_level) is not str or log_level not in LOG_LEVELS:
            raise _malformed(LOG_LEVEL, f"must be one of {', '.join(LOG_LEVELS)}")
    if PROGRESS_TOKEN in fields:
        token = fields[PROGRESS_TOKEN]
        if type(token) is not int and type(token) is not str:
            raise _malformed(PROGRESS_TOKEN, "must be a string or an integer")
        if isinstance(token, str) and len(token) > LONGEST_PROGRESS_TOKEN:
            raise _malformed(PROGRESS_TOKEN, f"must have at most {LONGEST_PROGRESS_TOKEN:,} characters")
    return RequestMeta(version, capabilities, client_info, log_level, token, fields)


def _malformed(key: str, what: str) -> InvalidParams:
    return InvalidParams(f"Invalid params: `_meta` key {key!r} {what}")
