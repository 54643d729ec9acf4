"""What tasks in a SQLite file promise beside the contract: they stay quick when there are many."""

import asyncio
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ekiden.rounds.journal import Entry
from ekiden.stores import columns
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite import due as sqlite_due
from ekiden.stores.sqlite import schema as sqlite_schema
from ekiden.stores.sqlite import statements as sqlite_task_statements
from ekiden.stores.sqlite import tasks as sqlite_tasks
from ekiden.tasks.record import TaskRecord, encode_record
from ekiden.testing.task_contract import new_record


def old_row(record: TaskRecord, attempts: int) -> tuple[Any, ...]:
    """A row as schema 3 had it."""
    fields = msgspec.msgpack.decode(encode_record(record))
    del fields["losses"], fields["version"]
    data = msgspec.msgpack.encode({**fields, "attempts": attempts})
    times = (record.due, record.expires, record.created)
    return (record.id, record.flow, record.audience, record.state, record.fence, attempts, *times, data)


async def test_tasks_of_an_old_file_go_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    records = [
        new_record(f"task {n}", tool=f"tool {n % 2}", principal=f"user {n % 3}", ttl=None) for n in range(250)
    ]
    records[0].state, records[0].fence = "running", 2
    with closing(sqlite3.connect(path)) as old:
        for script in sqlite_schema.MIGRATIONS[:3]:
            old.executescript(script)
        rows = [old_row(record, 3 if record.state == "running" else 0) for record in records]
        old.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        entry = msgspec.msgpack.encode(Entry("step", "digest", "paid"))
        old.execute("INSERT INTO task_entries (task_id, key, entry) VALUES ('task 0', 's:pay', ?)", (entry,))
        old.execute("PRAGMA user_version = 3")
        old.commit()
    store = SQLiteStore(path)
    due = await store.tasks.due("server", ("tool 0",), now=1000.0, limit=1000)
    assert {each.id for each in due} == {f"task {n}" for n in range(0, 250, 2)}
    mine = await store.tasks.listing(audience="server", principal="user 1", limit=1000)
    assert {record.id for record in mine} == {f"task {n}" for n in range(1, 250, 3)}
    held = await store.tasks.claim("task 0", now=1000.0, lease=10.0)
    assert held is not None
    assert (held.fence, held.record.losses) == (3, 3)
    assert held.entries == {"s:pay": Entry("step", "digest", "paid")}
    await store.close()


async def test_every_statement_uses_an_index(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    names = [name for name in sqlite_task_statements.__all__ if name.isupper()]
    assert len(names) > 15
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        for name in names:
            statement: str = getattr(sqlite_task_statements, name)
            named = re.findall(r":(\w+)", statement)
            values: Any = dict.fromkeys(named) if named else [None] * statement.count("?")
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            steps = [str(row[3]) for row in plan]
            # What a caller asks for may be a list in JSON, which is read from one end to the other.
            scans = [step for step in steps if step.startswith("SCAN") and "SCAN json_each " not in step]
            assert not scans, (name, steps)
            # The entries of one task are sorted by number; nothing else is.
            sorts = [step for step in steps if "TEMP B-TREE" in step]
            assert not sorts or name == "ENTRIES", (name, steps)
    await store.close()


async def test_a_task_is_found_after_it_has_moved_in_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    for number in range(4):
        await store.tasks.insert(new_record(f"task {number}"), {})
    before = await looked_at(store, 4)
    assert before == ["task 0", "task 1", "task 2", "task 3"]
    assert await looked_at(store, 4) == before
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        connection.execute("DELETE FROM tasks WHERE id = 'task 1'")
        for place, task_id in ((2, "task 2"), (3, "task 3")):  # As `VACUUM` may do it.
            connection.execute("UPDATE tasks SET rowid = ? WHERE id = ?", (place, task_id))
        connection.commit()
    for _ in range(2):
        assert await looked_at(store, 4) == ["task 0", None, "task 2", "task 3"]
    await store.close()


async def test_places_of_so_many_tasks_are_kept_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tasks, "_PLACES", 3)
    store = SQLiteStore(tmp_path / "tasks.db")
    for number in range(8):
        await store.tasks.insert(new_record(f"task {number}"), {})
    for _ in range(2):
        assert await looked_at(store, 9) == [*(f"task {number}" for number in range(8)), None]
        assert set(store.tasks._places) == {"task 5", "task 6", "task 7"}
    await store.close()


async def looked_at(store: SQLiteStore, count: int) -> list[str | None]:
    """The ids of the rows that looks at `task 0` and so on give."""
    seen = [await store.tasks.glance(f"task {number}") for number in range(count)]
    return [None if each is None else each.record.id for each in seen]


def many(path: Path, count: int, **fields: Any) -> None:
    """Put many tasks into a file, without waiting for the disk each time."""
    with closing(sqlite3.connect(path)) as connection:
        for number in range(count):
            values = {name: value(number) if callable(value) else value for name, value in fields.items()}
            record = new_record(f"{fields['tool']} {number}", **values)
            row = (*(getattr(record, name) for name in columns.ROW), encode_record(record))
            connection.execute(sqlite_task_statements.INSERT, row)
        connection.commit()


async def test_nobody_is_forgotten_behind_a_flood_of_principals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search looks at some of them; the next goes on where it ended."""
    monkeypatch.setattr(sqlite_due, "_PRINCIPALS", 10)
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    many(tmp_path / "tasks.db", 45, tool="tool", principal=lambda n: f"user {n:02}", due=1000.0)
    for number in range(3):
        await store.tasks.insert(new_record(f"flood {number}", principal="loud", due=1.0), {})
    seen: set[str] = set()
    for _ in range(5):
        found = await store.tasks.due("server", ("tool",), now=1000.0, limit=2)
        assert [each.principal for each in found[:2]] == ["loud", "loud"]
        assert len(found) <= 12
        seen |= {each.principal for each in found}
    assert seen == {"loud", *(f"user {n:02}" for n in range(45))}
    await store.close()


async def test_foreign_tools_and_sleepers_are_not_read(tmp_path: Path) -> None:
    """Told by how many steps SQLite's machine takes."""
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    many(tmp_path / "tasks.db", 3000, tool="foreign", due=1.0)
    many(tmp_path / "tasks.db", 3000, tool="tool", due=5000.0)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    search = sqlite_due.FairSearch()
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        connection.set_progress_handler(count, 100)
        assert search.due(connection, "server", ("tool",), now=1000.0, limit=50) == []
    assert steps < 10
    await store.close()


async def test_old_tasks_are_forgotten_however_many_and_others_write_meanwhile(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    many(tmp_path / "tasks.db", 2500, tool="tool", due=None, state="failed")
    for number in range(0, 2500, 500):
        task_id = f"tool {number}"
        await store.tasks.change(task_id, lambda record: None, {"s:1": Entry("step", "digest", 1)})
    await store.tasks.insert(new_record("endless", ttl=None), {"s:1": Entry("step", "digest", 1)})
    forgetting = asyncio.create_task(store.tasks.forget(before=1061.0))
    while not forgetting.done():
        await store.tasks.extend({}, until=1.0)
        await asyncio.sleep(0)
    assert await forgetting == 2500
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM task_entries").fetchone() == (1,)
    await store.close()


async def test_old_tasks_are_forgotten_in_many_short_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one would take too long, others write in between."""
    monkeypatch.setattr(sqlite_tasks, "_FORGET_SECONDS", -1.0)
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    many(tmp_path / "tasks.db", 5, tool="tool", due=None, state="failed")
    forget, at_once = sqlite_tasks._forget, list[int]()

    def counted(task_ids: list[str], connection: sqlite3.Connection) -> int:
        at_once.append(forget(task_ids, connection))
        return at_once[-1]

    monkeypatch.setattr(sqlite_tasks, "_forget", counted)
    assert await store.tasks.forget(before=1061.0) == 5
    assert at_once == [1, 1, 1, 1, 1]
    await store.close()


async def test_a_large_row_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And small ones at once."""
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.tasks.insert(new_record("large", arguments={"x": "y" * 3_000_000}), {})
    await store.tasks.insert(new_record("small"), {})
    scans: list[Any] = []
    scan = store._file.scan

    async def noted(work: Any) -> Any:
        scans.append(work)
        return await scan(work)

    monkeypatch.setattr(store._file, "scan", noted)
    assert await store.tasks.glance("small") is not None
    assert await store.tasks.load("nothing") is None
    assert scans == []
    seen = await store.tasks.glance("large")
    assert seen is not None
    assert len(seen.record.arguments["x"]) == 3_000_000
    await store.tasks.entries("small")
    await store.tasks.listing()
    await store.tasks.due("server", ("tool",), now=1000.0, limit=1)
    assert len(scans) == 4
    await store.close()


async def test_only_small_rows_are_remembered(tmp_path: Path) -> None:
    """What is remembered is bounded in bytes, whatever clients send."""
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.tasks.insert(new_record("small"), {})
    await store.tasks.insert(new_record("larger", arguments={"x": "y" * 5000}), {})
    sqlite_tasks._glance.cache_clear()
    for name, same in (("small", True), ("larger", False)):
        seen = [await store.tasks.glance(name) for _ in range(2)]
        assert (seen[0] is seen[1]) is same
    known = sqlite_tasks._glance.cache_info()
    assert known.currsize == 1
    assert (known.maxsize or 0) * sqlite_tasks._REMEMBERED_BYTES <= 2 * 1024 * 1024
    await store.close()


async def test_a_long_read_keeps_the_loop_free(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.tasks.insert(new_record(), {})
    begun, end = asyncio.Event(), time.monotonic() + 10
    loop = asyncio.get_running_loop()
    over = False

    def work(connection: sqlite3.Connection) -> str:
        loop.call_soon_threadsafe(begun.set)
        while not over and time.monotonic() < end:
            time.sleep(0.001)
        return "read" if over else "blocked"

    reading = asyncio.create_task(store._file.scan(work))
    await begun.wait()
    assert await store.tasks.load("task") is not None
    await store.tasks.insert(new_record("another"), {})
    over = True
    assert await reading == "read"
    await store.close()
