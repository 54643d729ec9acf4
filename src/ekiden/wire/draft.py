"""The dialect of the draft 2026-06-XX: the handshake of 2025, and the first spelling of interim results."""

from collections.abc import Mapping
from typing import Any

from ekiden.wire import versions
from ekiden.wire.json import encode
from ekiden.wire.jsonrpc import RequestId, result_response
from ekiden.wire.legacy import Legacy

__all__ = ["Draft", "is_incomplete"]


class Draft(Legacy):
    """Spells an interim result as `IncompleteResult`; all else as 2025-11-25."""

    pushes = False

    def __init__(self) -> None:
        super().__init__(versions.DRAFT)

    def input_required(self, request_id: RequestId, requests: Mapping[str, Any], state: str | None) -> bytes:
        """The response for an interim result: at least one of questions and state."""
        result: dict[str, Any] = {"result_type": "incomplete"}
        if requests:
            result["inputRequests"] = requests
        if state is not None:
            result["requestState"] = state
        return result_response(request_id, encode(result))


def is_incomplete(result: Mapping[str, Any]) -> bool:
    """Whether a result is an `IncompleteResult`."""
    return result.get("result_type") == "incomplete"
