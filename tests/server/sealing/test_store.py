"""A store whose contents are sealed keeps every contract, and shows no secret to who has no key."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ekiden import Context, StoreRefused
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed, Ledger
from ekiden.server.sealing.keys import KeyRing
from ekiden.server.sealing.store import SealedStore
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks import moves
from ekiden.tasks.store import TaskStore
from ekiden.testing import LedgerContract
from ekiden.testing.task_contract import TaskStoreContract, new_record
from tests.tasks.driving import TaskClient, accept, new_server

OLD, NEW = KeyRing([b"a" * 32]), KeyRing([b"b" * 32, b"a" * 32])
SECRET = "swordfish"


class TestSealedTasks(TaskStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        path = self.folder / f"{len(list(self.folder.iterdir()))}.db"
        inner = [SQLiteStore(path) for _ in range(2)]
        one, other = (SealedStore(store, lambda: OLD).tasks for store in inner)
        assert one is not None
        assert other is not None
        yield one, other
        for store in inner:
            await store.close()


class TestSealedLedger(LedgerContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Ledger, Ledger], None]:
        path = self.folder / f"{len(list(self.folder.iterdir()))}.db"
        inner = [SQLiteStore(path) for _ in range(2)]
        yield SealedStore(inner[0], lambda: OLD), SealedStore(inner[1], lambda: OLD)
        for store in inner:
            await store.close()


class TestSealedTasksInPostgres(TaskStoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        inner = [PostgresStore(self.url) for _ in range(2)]
        one, other = (SealedStore(store, lambda: OLD).tasks for store in inner)
        assert one is not None
        assert other is not None
        yield one, other
        for store in inner:
            await store.close()


async def test_nothing_secret_lies_in_the_file_of_a_whole_task(tmp_path: Path) -> None:
    for seal_store in (False, True):
        path = tmp_path / f"{seal_store}.db"
        store = SQLiteStore(path)
        server = new_server(store, seal_store=seal_store)

        @server.tool(task="deferred")
        async def tool(word: str, ctx: Context) -> str:
            async def work(of: str) -> str:
                return f"{of} of a step"

            await ctx.elicit("Before?", str, key="before")
            await ctx.step(work, f"{word} 1")
            await ctx.background()
            await ctx.step(work, f"{word} 2")
            answer = await ctx.elicit(f"Is it {word}?", str, key="after")
            await ctx.progress(1, message=f"{word} progress")
            return f"{word} {answer.data}"

        async with server.running():
            client = TaskClient(server)
            first = await client.ask("tool", {"word": SECRET})
            answers = {key: accept(SECRET) for key in first.result["inputRequests"]}
            made = await client.retry(first, answers, arguments={"word": SECRET})
            task_id = made.result["taskId"]
            await client.asked(task_id)
            await client.update(task_id, {"after.1": accept(f"{SECRET} answer")})
            assert await client.text(task_id) == f"{SECRET} {SECRET} answer"
        await store.close()
        lies = b"".join(part.read_bytes() for part in tmp_path.glob(f"{seal_store}.db*"))
        assert (SECRET.encode() in lies) is not seal_store


async def test_what_is_sealed_opens_with_its_key_only_and_in_its_row_only() -> None:
    inner = MemoryStore()
    assert inner.tasks is not None
    sealed, other = (SealedStore(inner, lambda ring=ring: ring).tasks for ring in (OLD, KeyRing([b"c" * 32])))  # type: ignore[misc]
    assert sealed is not None
    assert other is not None
    await sealed.insert(new_record("one"), {"s:1": Entry("step", "d", 1), "s:2": Entry("step", "d", 2)})
    with pytest.raises(StoreRefused, match="a key"):
        await other.load("one")
    kept = await inner.tasks.load("one")
    assert kept is not None
    await inner.tasks.insert(msgspec.structs.replace(kept, id="two", flow="two"), {})
    with pytest.raises(StoreRefused):
        await sealed.load("two")
    journal = await inner.tasks.entries("one")
    await inner.tasks.change("one", lambda record: None, {"s:1": journal["s:2"]})
    with pytest.raises(StoreRefused):
        await sealed.entries("one")


async def test_a_new_key_opens_what_the_old_one_sealed_and_a_worker_without_it_puts_it_back() -> None:
    inner = MemoryStore()
    before, after = SealedStore(inner, lambda: OLD), SealedStore(inner, lambda: NEW)
    without = SealedStore(inner, lambda: KeyRing([b"c" * 32]))
    assert before.tasks is not None
    assert after.tasks is not None
    assert without.tasks is not None
    await before.tasks.insert(new_record(), {"s:1": Entry("step", "d", {"deep": [1, None]}, 3, "in words")})
    assert await without.tasks.claim_all(["task"], now=1000.0, lease=10.0) == []
    (held,) = await after.tasks.claim_all(["task"], now=1060.0, lease=10.0)
    assert held.record.losses == 0
    assert held.record.arguments == new_record().arguments
    assert held.entries == {"s:1": Entry("step", "d", {"deep": [1, None]}, 3, "in words")}


async def test_what_was_kept_before_it_was_turned_on_is_read_as_it_is() -> None:
    inner: Any = MemoryStore()
    sealed = SealedStore(inner, lambda: OLD)
    assert sealed.tasks is not None
    await inner.tasks.insert(new_record(), {"s:1": Entry("step", "d", 1)})
    assert await sealed.tasks.load("task") == new_record()
    assert await sealed.tasks.entries("task") == {"s:1": Entry("step", "d", 1)}
    await sealed.tasks.cancel("task", now=1001.0, tidy=False)
    kept = await inner.tasks.load("task")
    assert list(kept.arguments) == ["ekiden/sealed"], "with its next change it is sealed"


async def test_a_repeated_end_of_a_round_is_the_same_bytes() -> None:
    sealed = SealedStore(MemoryStore(), lambda: OLD)
    claim = await sealed.claim("round", "history", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    assert all([await sealed.finish("round", claim.fence, b"outcome") for _ in range(2)])
    await asyncio.sleep(0)


async def test_an_operator_without_keys_sees_that_a_tool_failed_but_not_why() -> None:
    store = MemoryStore()
    sealed = SealedStore(store, lambda: OLD).tasks
    assert sealed is not None
    await sealed.insert(new_record("t1"), {})
    await sealed.change("t1", lambda record: moves.claim(record, now=1001.0, lease=10.0))
    ending = moves.Ending(result=SECRET.encode(), tool_failed=True)
    await sealed.finish("t1", 1, ending, {}, now=1002.0)
    seen, opened = await store.tasks.load("t1"), await sealed.load("t1")
    assert seen is not None
    assert opened is not None
    assert (seen.tool_failed, seen.result, opened.result) == (True, None, SECRET.encode())
