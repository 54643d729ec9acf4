"""A task as a client sees it."""

import functools
from datetime import UTC, datetime

from ekiden.tasks.record import TaskRecord
from ekiden.wire.json import Raw
from ekiden.wire.tasks import TaskView

__all__ = ["created_view", "view"]


def view(record: TaskRecord) -> TaskView:
    """The whole of it: with its questions, its result or its error."""
    seen = created_view(record)
    if seen.status == "input_required":
        seen.input_requests = {key: asked.request for key, asked in record.open_questions().items()}
    elif record.result is not None:
        seen.result = Raw(record.result)
    elif record.error is not None:
        seen.error = Raw(record.error)
    return seen


def created_view(record: TaskRecord) -> TaskView:
    """What the answer to the request that became a task says: no payload."""
    return TaskView(
        task_id=record.id,
        status=record.status,
        status_message=record.message,
        created_at=_iso(record.created),
        last_updated_at=_iso(record.updated),
        ttl_ms=None if record.ttl is None else max(round(record.ttl * 1000), 1),
        poll_interval_ms=None if record.poll is None else max(round(record.poll * 1000), 1),
    )


@functools.lru_cache(4096)
def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
