"""What messages look like, checked by hand. Every message a test receives comes through `check`."""

import re
from typing import Any

__all__ = ["CODES", "VERSION", "check", "is_error", "key_is_well_formed"]

VERSION = "2026-07-28"

# The codes of JSON-RPC, and the three that the specification defines.
CODES = frozenset({-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022})

_LABEL = r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")

_SENT = {
    "notifications/progress",
    "notifications/message",
    "notifications/cancelled",
    "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
}


def key_is_well_formed(key: str) -> bool:
    """Whether a `_meta` key has the form that keys have."""
    return _KEY.fullmatch(key) is not None


def is_error(message: dict[str, Any]) -> bool:
    """Whether a response is a refusal, of the protocol or of the tool."""
    return "error" in message or message["result"].get("isError") is True


def check(message: Any) -> dict[str, Any]:
    """Assert that this is something a server may send. Returns it."""
    assert isinstance(message, dict), message
    assert message.get("jsonrpc") == "2.0", message
    if "method" in message:
        _check_notification(message)
    elif "error" in message:
        _check_error(message)
    else:
        _check_result(message)
    return message


def _check_notification(message: dict[str, Any]) -> None:
    assert "id" not in message, f"a server sends no requests: {message}"
    assert set(message) <= {"jsonrpc", "method", "params"}, message
    assert message["method"] in _SENT, message
    params = message.get("params", {})
    assert isinstance(params, dict), message
    _check_meta(params)
    if message["method"] == "notifications/progress":
        assert _is_id(params["progressToken"]), message
        assert _is_number(params["progress"]), message
    elif message["method"] == "notifications/message":
        assert isinstance(params["level"], str), message
        assert "data" in params, message


def _check_error(message: dict[str, Any]) -> None:
    assert set(message) <= {"jsonrpc", "id", "error"}, message
    assert "id" not in message or _is_id(message["id"]), message
    error = message["error"]
    assert type(error["code"]) is int, message
    assert isinstance(error["message"], str), message
    assert set(error) <= {"code", "message", "data"}, message


def _check_result(message: dict[str, Any]) -> None:
    assert set(message) == {"jsonrpc", "id", "result"}, message
    assert _is_id(message["id"]), message
    result = message["result"]
    assert isinstance(result, dict), message
    assert result["resultType"] in {"complete", "input_required"}, message
    _check_meta(result)
    if "ttlMs" in result:
        assert type(result["ttlMs"]) is int, message
        assert result["ttlMs"] >= 0, message
        assert result["cacheScope"] in {"public", "private"}, message
    for block in result.get("content", []):
        assert isinstance(block["type"], str), message


def _check_meta(holder: dict[str, Any]) -> None:
    meta = holder.get("_meta", {})
    assert isinstance(meta, dict), holder
    for key in meta:
        assert key_is_well_formed(key), key


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
