"""The dialect of the draft 2026-06-XX: the handshake of 2025, and the first spelling of interim results."""

from collections.abc import Mapping
from typing import Any, Final

from ekiden.wire import versions
from ekiden.wire.json import encode, is_object
from ekiden.wire.jsonrpc import RequestId, result_response
from ekiden.wire.legacy import Legacy

__all__ = ["Draft", "incomplete", "is_incomplete", "is_incomplete_unsaid"]

_OF_FINAL: Final = ("content", "contents", "messages", "structuredContent", "task")
"""The fields of final results: an incomplete one has none of them."""


class Draft(Legacy):
    """Spells an interim result as `IncompleteResult`; all else as 2025-11-25."""

    pushes = False

    def __init__(self) -> None:
        super().__init__(versions.DRAFT)

    def input_required(self, request_id: RequestId, requests: Mapping[str, Any], state: str | None) -> bytes:
        """The response for an interim result: at least one of questions and state."""
        return result_response(request_id, encode(incomplete(requests, state)))


def incomplete(requests: Mapping[str, Any], state: str | None = None) -> dict[str, Any]:
    """An `IncompleteResult`."""
    result: dict[str, Any] = {"result_type": "incomplete"}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


def is_incomplete(result: Mapping[str, Any]) -> bool:
    """Whether a result is an `IncompleteResult`, and says so."""
    return result.get("result_type") == "incomplete"


def is_incomplete_unsaid(result: Mapping[str, Any]) -> bool:
    """Whether it is one that does not say so: the first texts of the draft had no `result_type`."""
    if "result_type" in result or any(field in result for field in _OF_FINAL):
        return False
    return is_object(result.get("inputRequests")) or isinstance(result.get("requestState"), str)
