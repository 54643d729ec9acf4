"""`ekiden tasks` and `ekiden store`: list, show and cancel tasks; create the tables of a store."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from ekiden.cli.targets import TargetOptions, open_client
from ekiden.cli.terminal.results import rows_table
from ekiden.cli.terminal.screen import Screen, harmless, say
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from ekiden.stores.store import Store
    from ekiden.tasks.record import TaskRecord
    from ekiden.tasks.states import State
    from ekiden.tasks.store import TaskStore

__all__ = ["TaskOptions", "manage_tasks", "migrate"]


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden tasks` was told."""

    store: str | None
    words: Sequence[str]
    state: str | None
    limit: int
    json: bool


def manage_tasks(options: TaskOptions, connection: Callable[[str], TargetOptions]) -> None:
    """Do what `ekiden tasks` was told."""
    screen = Screen()
    if options.store is not None:
        asyncio.run(_in_store(options, screen))
        return
    match options.words:
        case [target, "get", task_id]:
            asyncio.run(_get(connection(target), task_id, screen))
        case [target, "cancel", task_id]:
            asyncio.run(_cancel(connection(target), task_id))
        case _:
            raise UsageError("say TARGET get ID, TARGET cancel ID, or --store URL list")


async def _get(connection: TargetOptions, task_id: str, screen: Screen) -> None:
    async with open_client(connection) as client:
        screen.json(msgspec.to_builtins(await client.task(task_id).status()))


async def _cancel(connection: TargetOptions, task_id: str) -> None:
    async with open_client(connection) as client:
        await client.task(task_id).cancel()
        status = (await client.task(task_id).status()).status
    say(f"task {task_id} is {status.replace('_', ' ')}")


# In the store itself


async def _in_store(options: TaskOptions, screen: Screen) -> None:
    store = _existing(options.store or "")
    try:
        tasks = _tasks_of(store)
        match options.words:
            case ["list"]:
                state = _state(options.state)
                _show(await tasks.listing(state=state, limit=options.limit), screen, as_json=options.json)
            case ["get", task_id]:
                screen.json(_spelled(await _found(tasks, task_id)))
            case ["cancel", task_id]:
                await _found(tasks, task_id)
                message = "Cancelled by the operator."
                await tasks.cancel(task_id, now=time.time(), tidy=True, message=message)
                say(f"task {task_id} is {(await _found(tasks, task_id)).state}")
            case _:
                raise UsageError("with --store say list, get ID or cancel ID")
    finally:
        await store.close()


def _tasks_of(store: "Store") -> "TaskStore":
    if store.tasks is None:
        raise UsageError("this store keeps no tasks")
    return store.tasks


def _existing(url: str) -> "Store":
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
    columns = ["Task", "Tool", "State", "Since", "Made", "Message"]
    rows = [
        [
            record.id,
            record.tool,
            record.state,
            _when(record.updated),
            _when(record.created),
            record.message or "",
        ]
        for record in records
    ]
    screen.out.print(rows_table(columns, rows)) if rows else screen.note("no tasks")


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
