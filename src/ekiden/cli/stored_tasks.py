"""`ekiden tasks --store` and `ekiden store`: list, show and cancel tasks in a store; create its tables."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

import msgspec

from ekiden.cli.terminal.results import rows_table
from ekiden.cli.terminal.screen import Screen, harmless, say
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from ekiden.stores.store import Store
    from ekiden.tasks.record import TaskRecord
    from ekiden.tasks.states import State
    from ekiden.tasks.store import TaskStore

__all__ = ["StoreOptions", "existing", "manage_stored", "migrate"]

_WIDE: Final = 100
"""Columns of a terminal that has room for all that is listed, beside whole ids."""


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden tasks --store` was told."""

    store: str
    state: str | None
    limit: int
    json: bool


def manage_stored(options: StoreOptions, words: Sequence[str]) -> None:
    """Do what `ekiden tasks --store` was told."""
    asyncio.run(_in_store(options, words, Screen()))


async def _in_store(options: StoreOptions, words: Sequence[str], screen: Screen) -> None:
    store = existing(options.store)
    try:
        tasks = _tasks_of(store)
        match words:
            case ["list"]:
                state = _state(options.state)
                _show(await tasks.listing(state=state, limit=options.limit), screen, as_json=options.json)
            case ["get", task_id]:
                screen.json(_spelled(await _found(tasks, task_id)))
            case ["cancel", task_id]:
                say(await _cancel(tasks, task_id))
            case ["wait" | "answer", _]:
                raise UsageError(f"a store cannot {words[0]}: say TARGET {words[0]} ID, without --store")
            case _:
                raise UsageError("with --store say list, get ID or cancel ID")
    finally:
        await store.close()


async def _cancel(tasks: "TaskStore", task_id: str) -> str:
    """Cancel a task; what that came to."""
    before = await _found(tasks, task_id)
    if before.final:
        return f"task {task_id} had ended already: {_state_text(before)}; nothing was cancelled"
    await tasks.cancel(task_id, now=time.time(), tidy=True, message="Cancelled by the operator.")
    after = await _found(tasks, task_id)
    if after.state == "stopping":
        return f"task {task_id} was told to stop, and its worker has not stopped it yet"
    if after.state == "tidying":
        return f"task {task_id} was cancelled; the next worker runs its clean-up"
    return f"task {task_id} ended before it could be cancelled: {_state_text(after)}"


def _tasks_of(store: "Store") -> "TaskStore":
    if store.tasks is None:
        raise UsageError("this store keeps no tasks")
    return store.tasks


def existing(url: str) -> "Store":
    """Open a store that exists: a mistyped name must not create one."""
    from ekiden.stores import open_store

    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.exists():
        raise UsageError(f"there is no store at {path}")
    return open_store(url)


def _state(word: str | None) -> "State | None":
    from ekiden.tasks.states import State

    if word is not None and word not in get_args(State):
        raise UsageError(f"a task is never {word!r}; its state is one of {', '.join(get_args(State))}")
    return cast("State | None", word)


async def _found(tasks: "TaskStore", task_id: str) -> "TaskRecord":
    record = await tasks.load(task_id)
    if record is None:
        raise UsageError(f"there is no task {task_id!r} in this store")
    return record


def _show(records: "Sequence[TaskRecord]", screen: Screen, *, as_json: bool) -> None:
    if as_json:
        screen.json([_spelled(record) for record in records])
        return
    if not records:
        screen.note("no tasks")
        return
    rows = [_row(record) for record in records]
    columns = [column for column in rows[0] if column != "Made" or screen.out.width >= _WIDE]
    cells = [[row[column] for column in columns] for row in rows]
    screen.out.print(rows_table(columns, cells, whole=("Task",)))


def _row(record: "TaskRecord") -> dict[str, str]:
    return {
        "Task": record.id,
        "Tool": record.tool,
        "State": _state_text(record),
        "Since": _when(record.updated),
        "Made": _when(record.created),
        "Message": record.message or "",
    }


def _state_text(record: "TaskRecord") -> str:
    """The state; of a completed task also whether its tool failed."""
    return f"{record.state}, but the tool failed" if record.tool_failed else record.state


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _spelled(record: "TaskRecord") -> JsonObject:
    """What an operator may see: the state of a task, not its arguments or results."""
    return {
        "taskId": record.id,
        "tool": record.tool,
        "server": record.audience,
        "state": record.state,
        "status": record.status,
        "toolFailed": record.tool_failed,
        "statusMessage": harmless(record.message) if record.message is not None else None,
        "createdAt": _when(record.created),
        "lastUpdatedAt": _when(record.updated),
        "due": None if record.due is None else _when(record.due),
        "ttlSeconds": record.ttl,
        "losses": record.losses,
        "openQuestions": len(record.open_questions()),
    }


def migrate(url: str) -> None:
    """Bring a store's tables up to date."""
    asyncio.run(_migrate(url))
    say("the store is up to date")


async def _migrate(url: str) -> None:
    from ekiden.stores import open_store

    if url == "memory:":
        raise UsageError("a store in memory has no tables: name sqlite:///FILE or postgresql://...")
    store = open_store(url)
    try:
        await store.migrate()
    finally:
        await store.close()
