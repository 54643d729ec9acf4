"""A sealed store against who can write to the database, and against workers that lack a key."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from ekiden import Context, Server, StoreRefused, UsageError
from ekiden.people.store import PeopleRow
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed, Recorded
from ekiden.server.sealing.keys import KeyRing
from ekiden.server.sealing.store import SealedStore
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stories.store import CallQuery
from ekiden.tasks.record import encode_record
from ekiden.tasks.store import TaskStore
from ekiden.testing import CallFailed
from ekiden.testing.story_contract import _told as told
from ekiden.testing.task_contract import new_record
from tests.tasks.driving import TaskClient, new_server

OURS, THEIRS = KeyRing([b"a" * 32]), KeyRing([b"b" * 32])


def sealed(inner: Any, ring: KeyRing = OURS) -> tuple[SealedStore, TaskStore]:
    store = SealedStore(inner, lambda: ring)
    assert store.tasks is not None
    return store, store.tasks


async def two_tasks(tasks: TaskStore) -> None:
    """One of alice, one of mallory, each with a step."""
    for name in ("alice", "mallory"):
        record = new_record(name, principal=name, arguments={"of": name}, created=1000.0)
        await tasks.insert(record, {"s:1": Entry("step", "d", name)})


# What lies in a row opens only there


@pytest.mark.parametrize(
    "forged",
    [
        {"principal": "mallory"},
        {"tool": "another"},
        {"audience": "another"},
        {"flow": "another"},
        {"answers": "another"},
        {"id": "mallory"},
    ],
    ids=lambda forged: next(iter(forged)),
)
async def test_a_record_whose_clear_part_was_changed_is_refused(forged: dict[str, str]) -> None:
    inner: Any = MemoryStore()
    _, tasks = sealed(inner)
    await two_tasks(tasks)
    inner.tasks._rows["alice"] = encode_record(
        msgspec.structs.replace(await inner.tasks.load("alice"), **forged)
    )
    with pytest.raises(StoreRefused):
        await tasks.load("alice")
    with pytest.raises(StoreRefused):
        await tasks.cancel("alice", now=1001.0, tidy=False)


def _swap(connection: Any, table: str, place: str) -> None:
    rows = dict(connection.execute(f"SELECT id, record FROM {table}").fetchall())
    for task_id, record in (("alice", rows["mallory"]), ("mallory", rows["alice"])):
        connection.execute(f"UPDATE {table} SET record = {place} WHERE id = {place}", (record, task_id))


async def _check_swapped(tasks: TaskStore) -> None:
    for name in ("alice", "mallory"):
        with pytest.raises(StoreRefused):
            await tasks.load(name)
        with pytest.raises(StoreRefused):
            await tasks.cancel(name, now=1001.0, tidy=False)
        assert await tasks.listing(audience="server", principal=name) == []


async def test_records_that_were_swapped_in_a_file_are_refused(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    _, tasks = sealed(store)
    await two_tasks(tasks)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        _swap(connection, "tasks", "?")
        connection.commit()
    await _check_swapped(tasks)
    await store.close()


async def test_records_that_were_swapped_in_a_database_are_refused(database: str) -> None:
    store = PostgresStore(database)
    _, tasks = sealed(store)
    await two_tasks(tasks)
    with psycopg.connect(database, autocommit=True) as connection:
        _swap(connection, "ekiden_tasks", "%s")
    await _check_swapped(tasks)
    await store.close()


async def test_a_column_that_was_changed_shows_nobody_the_task_of_another(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    _, tasks = sealed(store)
    await two_tasks(tasks)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("UPDATE tasks SET principal = 'mallory', flow = 'guessed' WHERE id = 'alice'")
        connection.commit()
    listed = await tasks.listing(audience="server", principal="mallory")
    assert [record.id for record in listed] == ["mallory"]
    with pytest.raises(StoreRefused):
        await tasks.insert(new_record("new", flow="guessed", principal="mallory"), {})
    await store.close()


@pytest.mark.parametrize(
    "forge",
    [
        lambda entry: Entry("failure", entry.digest, entry.value, entry.branch),
        lambda entry: Entry(entry.kind, "another", entry.value, entry.branch),
        lambda entry: Entry(entry.kind, entry.digest, entry.value, 7),
        lambda entry: Entry(entry.kind, entry.digest, {"ekiden/sealed": entry.value["ekiden/sealed"][:-1]}),
        lambda entry: Entry(entry.kind, entry.digest, {"ekiden/sealed": b"ek1."}),
    ],
    ids=["kind", "digest", "branch", "shorter", "empty"],
)
async def test_an_entry_that_was_changed_is_refused(forge: Callable[[Entry], Entry]) -> None:
    inner = MemoryStore()
    store, tasks = sealed(inner)
    await two_tasks(tasks)
    journal = await inner.tasks.entries("alice")
    await inner.tasks.change("alice", lambda record: None, {"s:1": forge(journal["s:1"])})
    with pytest.raises(StoreRefused):
        await tasks.entries("alice")
    claim = await store.claim("round", "h", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    await store.commit("round", claim.fence, {"s:1": Entry("step", "d", 1)})
    kept = inner._rounds["round"].entries
    kept["s:1"] = forge(kept["s:1"])
    await store.release("round", claim.fence)
    with pytest.raises(StoreRefused):
        await store.claim("round", "h", now=1.0, lease=10.0, expires=100.0)


async def test_an_entry_of_a_task_is_not_one_of_a_round() -> None:
    inner = MemoryStore()
    store, tasks = sealed(inner)
    await two_tasks(tasks)
    claim = await store.claim("alice", "h", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    await inner.commit("alice", claim.fence, await inner.tasks.entries("alice"))
    await store.release("alice", claim.fence)
    with pytest.raises(StoreRefused):
        await store.claim("alice", "h", now=1.0, lease=10.0, expires=100.0)


# Workers with other keys


async def test_a_round_that_cannot_be_opened_is_free_for_who_can() -> None:
    inner = MemoryStore()
    (ours, _), (theirs, _) = sealed(inner), sealed(inner, THEIRS)
    claim = await ours.claim("round", "h", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    await ours.commit("round", claim.fence, {"s:1": Entry("step", "d", 1)})
    await ours.release("round", claim.fence)
    with pytest.raises(StoreRefused):
        await theirs.claim("round", "h", now=1.0, lease=10.0, expires=100.0)
    again = await ours.claim("round", "h", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(again, Claimed), "the failed claim was given back"
    assert again.entries == {"s:1": Entry("step", "d", 1)}


@pytest.mark.parametrize("state", ["queued", "stopping", "tidying", "failing"])
async def test_a_task_that_cannot_be_opened_keeps_no_other_from_being_run(state: Any) -> None:
    inner = MemoryStore()
    (_, ours), (_, theirs) = sealed(inner), sealed(inner, THEIRS)
    await theirs.insert(new_record("theirs", state=state), {})
    await ours.insert(new_record("ours"), {})
    held = await ours.claim_all(["theirs", "ours"], now=1000.0, lease=10.0)
    assert [each.record.id for each in held] == ["ours"]
    assert await ours.due("server", ("tool",), now=1059.0, limit=9) == await ours.due(
        "server", ("tool",), now=1059.0, limit=1
    ), "only ours is due again before a minute is over"
    assert await theirs.claim("theirs", now=1061.0, lease=10.0) is not None


async def test_tasks_of_a_lost_key_expire_and_are_forgotten_with_the_others() -> None:
    inner = MemoryStore()
    (_, ours), (_, theirs) = sealed(inner), sealed(inner, THEIRS)
    await theirs.insert(new_record("theirs", ttl=1.0), {})
    await ours.insert(new_record("ours", ttl=1.0), {})
    ids = await ours.overdue(now=1002.0, limit=9)
    await ours.expire(ids, b"{}", now=1002.0, message="over")
    assert await ours.overdue(now=1002.0, limit=9) == []
    for tasks, name in ((ours, "ours"), (theirs, "theirs")):
        record = await tasks.load(name)
        assert record is not None
        assert (record.state, record.error, record.message) == ("failing", b"{}", "over")
        assert record.arguments == new_record().arguments
        held = await inner.tasks.claim(name, now=1003.0, lease=10.0)
        assert held is not None
        await inner.tasks.tidied(name, held.fence)
    assert await ours.forget(before=1003.0) == 2


async def test_a_list_leaves_out_what_cannot_be_opened_and_goes_on_behind_it() -> None:
    inner = MemoryStore()
    (_, ours), (_, theirs) = sealed(inner), sealed(inner, THEIRS)
    for number in range(12):
        mine = number % 4 == 0
        await (ours if mine else theirs).insert(new_record(f"{number:02}", created=1000.0 + number), {})
    assert [record.id for record in await ours.listing(limit=2)] == ["08", "04"]
    assert [record.id for record in await ours.listing(limit=2, after=(1004.0, "04"))] == ["00"]


async def test_an_operator_without_keys_can_cancel_and_say_why() -> None:
    inner = MemoryStore()
    _, tasks = sealed(inner)
    await tasks.insert(new_record(), {})
    await inner.tasks.cancel("task", now=1001.0, tidy=False, message="Cancelled by the operator.")
    record = await tasks.load("task")
    assert record is not None
    assert (record.state, record.message) == ("cancelled", "Cancelled by the operator.")
    assert record.arguments == new_record().arguments


async def test_a_client_hears_nothing_of_what_the_store_refuses(store: Any) -> None:
    def serving(key: bytes) -> Server:
        server = new_server(store, seal_store=True, keys=[key])

        @server.tool(task="required")
        async def tool(word: str, ctx: Context) -> str:
            return word

        return server

    server, other = serving(b"a" * 32), serving(b"b" * 32)
    async with server.running(), other.running():
        client = TaskClient(server)
        task_id = await client.start("tool", {"word": "swordfish"})
        assert await client.text(task_id) == "swordfish"
        with pytest.raises(CallFailed) as failed:
            await TaskClient(other).get(task_id)
    assert str(failed.value) == "Internal error"


# Before and after


async def test_rounds_and_journals_of_before_it_was_turned_on_are_read_as_they_are() -> None:
    inner = MemoryStore()
    store, _ = sealed(inner)
    claim = await inner.claim("round", "h", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    assert await inner.finish("round", claim.fence, b"\x93plain")
    assert await store.look("round", "h", now=1.0) == Recorded(b"\x93plain")
    assert await store.claim("round", "h", now=1.0, lease=1.0, expires=9.0) == Recorded(b"\x93plain")
    await inner.put_journal("journal", b"\x93plain", expires=100.0)
    assert await store.get_journal("journal") == b"\x93plain"


def test_a_store_that_outlives_the_process_is_not_sealed_with_a_key_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EKIDEN_KEYS", raising=False)
    monkeypatch.delenv("EKIDEN_KEYS_FILE", raising=False)
    with pytest.raises(UsageError, match="keys"):
        Server("s", store=f"sqlite:///{tmp_path}/a.db", seal_store=True)
    Server("s", store=MemoryStore(), seal_store=True)


# Questions to people, and stories


def question(name: str, call: str = "call") -> PeopleRow:
    return PeopleRow(id=name, call=call, audience="server", due=900.0, expires=9000.0, data=b"secret")


async def test_a_question_that_cannot_be_opened_keeps_no_other_from_being_looked_after() -> None:
    inner = MemoryStore()
    ours, theirs = sealed(inner)[0].people, sealed(inner, THEIRS)[0].people
    assert ours is not None
    assert theirs is not None
    await theirs.add(question("a"))
    await ours.add(question("b"))
    assert [row.id for row in await ours.due("server", now=1000.0, limit=1)] == []
    assert [row.id for row in await ours.due("server", now=1000.0, limit=1)] == ["b"]
    assert "a" in [row.id for row in await theirs.due("server", now=1061.0, limit=9)], "it has rested"


async def test_a_call_that_cannot_be_opened_keeps_no_other_from_being_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = MemoryStore()
    ours, theirs = sealed(inner)[0].stories, sealed(inner, THEIRS)[0].stories
    assert ours is not None
    assert theirs is not None
    await theirs.write([told("theirs", 1.0)])
    await ours.write([told("ours", 2.0)])
    for _ in range(3):
        rows = await ours.listing(CallQuery())
        assert [(row.id, bool(row.facts)) for row in rows] == [("ours", True), ("theirs", False)]
    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "theirs" in said.getMessage()
    with pytest.raises(StoreRefused):
        await ours.load("theirs")


@pytest.mark.parametrize("moved", [{"call": "another call"}, {"audience": "another server"}])
async def test_an_answer_of_a_person_counts_for_no_other_call(moved: dict[str, str]) -> None:
    inner = MemoryStore()
    people = sealed(inner)[0].people
    assert people is not None
    await people.add(question("a"))
    kept = await inner.people.load("a")
    assert kept is not None
    assert await inner.people.remove("a", kept.version)
    forged = msgspec.structs.replace(kept, **moved)
    await inner.people.add(forged)
    with pytest.raises(StoreRefused):
        await people.of_call(forged.call)


async def test_who_cannot_open_a_task_ends_it_an_hour_after_its_time() -> None:
    """Until then a worker that has its key may come and clean up."""
    inner = MemoryStore()
    (_, ours), (_, theirs) = sealed(inner), sealed(inner, THEIRS)
    for state in ("queued", "failing", "tidying"):
        await theirs.insert(new_record(state, ttl=1.0, state=state), {})
    for now, ends in ((1002.0, False), (5002.0, True)):
        assert await ours.claim_all(("queued", "failing", "tidying"), now=now, lease=10.0) == []
        states = {record.id: record.state for record in await inner.tasks.listing()}
        if ends:
            assert states == {"queued": "failed", "failing": "failed", "tidying": "cancelled"}
        else:
            assert states == {name: name for name in states}
