"""One client cannot fill the store with tasks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, Server, TaskLimits
from ekiden.errors import InternalError
from ekiden.server.tasks.quota import TaskQuota
from ekiden.stores.memory.store import MemoryStore
from ekiden.stores.memory.tasks import MemoryTasks
from ekiden.tasks.store import TaskStore, Usage
from ekiden.testing.task_contract import new_record
from tests.serving import call, meta, post, served
from tests.tasks.driving import WITH_TASKS

_CAPABLE = {"io.modelcontextprotocol/clientCapabilities": WITH_TASKS}


def _server(store: Any, **limits: Any) -> tuple[Server, asyncio.Event]:
    go = asyncio.Event()
    server = Server(
        "s",
        version="1",
        store=store,
        tasks=TaskLimits(poll_seconds=0.01, **limits),
        principal=lambda request: request.header("x-user"),
    )

    @server.tool(task="required")
    async def wait(text: str = "") -> str:
        """Wait until it is let go."""
        await go.wait()
        return text

    @server.tool(task="deferred")
    async def later(ctx: Context) -> str:
        """Go on in the background."""
        await ctx.background()
        await go.wait()
        return "later"

    return server, go


@asynccontextmanager
async def _serving(store: Any = None, **limits: Any) -> AsyncGenerator[tuple[Any, asyncio.Event], None]:
    server, go = _server(store or MemoryStore(), **limits)
    async with served(server) as base:

        async def ask(tool: str = "wait", user: str = "", **arguments: Any) -> dict[str, Any]:
            message = call(tool, arguments)
            message["params"]["_meta"] = meta(**_CAPABLE)
            answer: dict[str, Any] = (await post(base, message, **({"x_user": user} if user else {}))).json()
            return answer

        yield ask, go
        go.set()


def _refused(answer: dict[str, Any]) -> str:
    assert answer["error"]["code"] == -32603, answer
    message: str = answer["error"]["message"]
    return message


async def test_a_principal_with_too_many_tasks_is_refused_until_one_has_ended() -> None:
    async with _serving(per_principal=5) as (ask, go):
        for _ in range(5):
            assert (await ask(user="alice"))["result"]["resultType"] == "task"
        for tool in ("wait", "later"):
            assert "Wait for one to end, or cancel one" in _refused(await ask(tool, user="alice"))
        assert (await ask(user="bob"))["result"]["resultType"] == "task"
        go.set()
        async with asyncio.timeout(10):
            while "error" in await ask(user="alice"):
                await asyncio.sleep(0.01)


async def test_a_principal_cannot_fill_the_store_with_large_arguments() -> None:
    async with _serving(bytes_per_principal=500_000) as (ask, go):
        go.set()  # Tasks that have ended count, too, as long as they are kept.
        answers = [await ask(user="alice", text="x" * 100_000) for _ in range(6)]
        kept = [answer for answer in answers if "result" in answer]
        assert 2 <= len(kept) <= 4  # Results count as arguments do.
        assert "forgotten when their time to live is over" in _refused(answers[-1])
        assert (await ask(user="bob", text="x" * 100_000))["result"]["resultType"] == "task"


async def test_clients_that_are_not_told_apart_share_one_limit() -> None:
    async with _serving(per_principal=1, without_principal=3) as (ask, _):
        for _ in range(3):
            assert "result" in await ask()
        assert "Too many tasks" in _refused(await ask())


async def test_without_limits_anything_goes() -> None:
    async with _serving(per_principal=None, bytes_per_principal=None) as (ask, _):
        for _ in range(20):
            assert "result" in await ask(user="alice", text="x" * 100_000)


async def test_many_at_once_do_not_go_over_in_one_process(tmp_path: Path) -> None:
    async with _serving(f"sqlite:///{tmp_path}/s.db", per_principal=10) as (ask, _):
        answers = await asyncio.gather(*(ask(user="alice") for _ in range(60)))
    assert sum("result" in answer for answer in answers) == 10


async def test_a_store_that_cannot_count_comes_to_what_one_says_that_can(store: Any) -> None:
    inserted = [("alice", None), ("alice", None), ("bob", None)]
    for number, (principal, ttl) in enumerate(inserted):
        record = new_record(f"t{number}", audience="s", principal=principal, created=float(number), ttl=ttl)
        await store.tasks.insert(record, {})
    counted = {who: await store.tasks.usage("s", who) for who in ("alice", "bob", "carol")}
    assert [usage.open for usage in counted.values()] == [2, 1, 0]
    assert {who: await TaskStore.usage(store.tasks, "s", who) for who in counted} == counted


async def test_a_task_that_is_stored_while_the_store_counts_is_counted() -> None:
    """The store's answer may be older than the task, which must not be in neither count."""
    quota = TaskQuota(TaskLimits(per_principal=2), clock=lambda: 0.0)
    stored = 0

    class Store(MemoryTasks):
        async def usage(self, audience: str, principal: str) -> Usage:
            nonlocal stored
            counted = Usage(open=stored, bytes=0)
            if stored < taken:
                stored += 1
                quota.give_back("alice", 1)
            return counted

    store, taken = Store(), 0
    await quota.take(store, "a server", "alice", 1)
    taken = 1
    await quota.take(store, "a server", "alice", 1)
    taken = 2
    with pytest.raises(InternalError, match="Too many tasks: 2"):
        await quota.take(store, "a server", "alice", 1)


async def test_a_task_that_is_stored_and_not_heard_of_yet_does_not_count_twice() -> None:
    quota = TaskQuota(TaskLimits(per_principal=3), clock=lambda: 0.0)

    class Store(MemoryTasks):
        async def usage(self, audience: str, principal: str) -> Usage:
            return Usage(open=stored, bytes=0)

    store, stored = Store(), 0
    await quota.take(store, "a server", "alice", 1)
    stored += 1  # Its request has not heard of it.
    await quota.take(store, "a server", "alice", 1)
    stored += 1
    third = asyncio.create_task(quota.take(store, "a server", "alice", 1))
    await asyncio.sleep(0.1)
    assert not third.done()
    for _ in range(2):
        quota.give_back("alice", 1)
        await asyncio.sleep(0.1)
    await third
    stored += 1
    with pytest.raises(InternalError, match="Too many tasks"):  # After a wait: one is still on its way.
        await quota.take(store, "a server", "alice", 1)


async def test_the_store_is_not_asked_for_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    server, go = _server(store)
    asked = 0
    usage = store.tasks.usage

    async def counted(audience: str, principal: str) -> Any:
        nonlocal asked
        asked += 1
        return await usage(audience, principal)

    monkeypatch.setattr(store.tasks, "usage", counted)
    async with served(server) as base:
        for _ in range(30):
            message = call("wait")
            message["params"]["_meta"] = meta(**_CAPABLE)
            assert "result" in (await post(base, message)).json()
        go.set()
    assert asked <= 3


async def test_a_client_without_a_principal_does_not_use_up_the_limit_of_all() -> None:
    server, go = _server(MemoryStore(), without_principal=64)
    async with served(server, trusted_proxies=["127.0.0.1"]) as base:

        async def ask(address: str) -> bool:
            message = call("wait", {})
            message["params"]["_meta"] = meta(**_CAPABLE)
            return "result" in (await post(base, message, x_forwarded_for=address)).json()

        assert [await ask("192.0.2.1") for _ in range(65)] == [True] * 64 + [False]
        assert [await ask("192.0.2.2") for _ in range(3)] == [True, True, False]
        others = [await ask(f"192.0.2.{number}") for number in range(3, 30)]
        assert others == [True] * 14 + [False] * 13
        assert not await ask("192.0.2.1")
        go.set()


async def test_what_a_client_took_long_ago_does_not_count() -> None:
    now = 0.0
    quota = TaskQuota(TaskLimits(without_principal=32), clock=lambda: now)

    class Store(MemoryTasks):
        async def usage(self, audience: str, principal: str) -> Usage:
            return Usage(open=32, bytes=0)

    await quota.take(Store(), "s", "", 1, "192.0.2.1")
    with pytest.raises(InternalError):
        await quota.take(Store(), "s", "", 1, "192.0.2.1")
    with pytest.raises(InternalError):
        await quota.take(Store(), "s", "", 1, "")
    now = 3601.0
    await quota.take(Store(), "s", "", 1, "192.0.2.1")


async def test_whoever_is_refused_does_not_have_others_wait_for_the_store() -> None:
    now, looks = 0.0, list[str]()
    quota = TaskQuota(TaskLimits(per_principal=2), clock=lambda: now)

    class Store(MemoryTasks):
        async def usage(self, audience: str, principal: str) -> Usage:
            looks.append(principal)
            await asyncio.sleep(0.01)
            return Usage(open=2 if principal == "eve" else 0, bytes=0)

    async def eve() -> None:
        with pytest.raises(InternalError, match="2 of yours have not ended"):
            await quota.take(Store(), "s", "eve", 1)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(eve())
        group.create_task(quota.take(Store(), "s", "bob", 1))
    assert looks == ["eve", "bob"]
    now = 1.0
    await eve()
    assert looks == ["eve", "bob", "eve"]
