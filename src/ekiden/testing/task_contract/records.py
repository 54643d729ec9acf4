"""Records, entries and questions that the tests of the contract are made of."""

from typing import Any, Final

from ekiden.rounds.journal import Entry
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import Held, TaskStore

__all__ = ["TOOLS", "claimed", "due_ids", "new_record", "question", "step"]

TOOLS: Final = ("tool",)
"""The tool of every record of `new_record`."""


def new_record(task_id: str = "task", **fields: Any) -> TaskRecord:
    """A task that was made at the time 1000 and is due at once."""
    usual: dict[str, Any] = {
        "flow": f"flow of {task_id}",
        "answers": "",
        "audience": "server",
        "tool": "tool",
        "principal": "",
        "arguments": {"amount": 5, "name": "\u00e4\u6f22", "deep": [{"x": None}]},
        "meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        "started": 999.5,
        "created": 1000.0,
        "updated": 1000.0,
        "ttl": 60.0,
        "poll": 1.0,
        "due": 1000.0,
    }
    return TaskRecord(id=task_id, **{**usual, **fields})


async def due_ids(store: TaskStore, now: float, limit: int) -> list[str]:
    """The ids of what is due, in order."""
    return [found.id for found in await store.due("server", TOOLS, now=now, limit=limit)]


def step(value: Any) -> Entry:
    """The entry of a step."""
    return Entry("step", "digest", value)


def question(name: str, attempt: int = 1) -> Question:
    """A question to the client."""
    return Question(name, attempt, "digest", {"method": "roots/list"})


async def claimed(store: TaskStore, record: TaskRecord, now: float = 1000.0) -> Held:
    """Insert a task and claim it for 10 seconds."""
    await store.insert(record, {})
    held = await store.claim(record.id, now=now, lease=10.0)
    assert held is not None
    return held
