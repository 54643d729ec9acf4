"""The tasks extension's spelling (SEP-2663, `io.modelcontextprotocol/tasks`)."""

from typing import Any, Final

import msgspec

from ekiden.wire.json import Raw, decode, encode

__all__ = [
    "DRAFT_METHOD",
    "EXTENSION",
    "LEGACY_METHODS",
    "LEGACY_NOTIFICATION",
    "LIST_METHOD",
    "METHODS",
    "NEEDED",
    "NOTIFICATION",
    "RELATED",
    "RESULT_TYPE",
    "TaskView",
    "as_dict",
    "as_params",
    "legacy_task",
]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
NEEDED: Final[dict[str, Any]] = {"extensions": {EXTENSION: {}}}
"""The capability as a client declares it."""

METHODS: Final = ("tasks/cancel", "tasks/get", "tasks/update")
NOTIFICATION: Final = "notifications/tasks"
RESULT_TYPE: Final = "task"
"""The type of the result of a call that has become a task."""

RELATED: Final = "io.modelcontextprotocol/related-task"
"""The key of `_meta` by which 2025-11-25 and the draft tell which task a message belongs to."""
LEGACY_NOTIFICATION: Final = "notifications/tasks/status"
LEGACY_METHODS: Final = ("tasks/cancel", "tasks/get", "tasks/result")
DRAFT_METHOD: Final = "tasks/input_response"
LIST_METHOD: Final = "tasks/list"


_read_members = msgspec.json.Decoder(dict[str, Raw]).decode


class TaskView(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`Task` and the shapes derived from it. A `ttlMs` of null means that it is never discarded."""

    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    result: Raw | None = None
    error: Raw | None = None


def as_dict(task: TaskView) -> dict[str, Any]:
    """A task as a value that its receiver may change."""
    spelled: dict[str, Any] = decode(encode(task))
    return spelled


def as_params(task: TaskView) -> dict[str, Any]:
    """A task as the parameters of a notification. Each is `Raw`: a result may be large."""
    return {name: Raw(bytes(value)) for name, value in _read_members(encode(task)).items()}


def legacy_task(task: TaskView, *, tool_failed: bool = False) -> dict[str, Any]:
    """A task as 2025-11-25 spells it: other names for the times, and nothing of its content.

    There a task has failed if its tool says that it has.
    """
    spelled: dict[str, Any] = {
        "taskId": task.task_id,
        "status": "failed" if tool_failed else task.status,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.last_updated_at,
        "ttl": task.ttl_ms,
    }
    if task.poll_interval_ms is not None:
        spelled["pollInterval"] = task.poll_interval_ms
    if task.status_message is not None:
        spelled["statusMessage"] = task.status_message
    return spelled
