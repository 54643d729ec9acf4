"""The contract of a store of tasks: rows are kept and found, and changes are signalled."""

import asyncio
from typing import Final

from ekiden.tasks.record import TaskRecord
from ekiden.tasks.states import State
from ekiden.tasks.store import TaskQuery, Usage
from ekiden.testing.task_contract.opening import OpensTaskStore
from ekiden.testing.task_contract.records import new_record, step

__all__ = ["KeepingContract"]

_PATIENCE: Final = 10.0
"""Seconds until a signal must have come."""


class KeepingContract(OpensTaskStore):
    """What is kept is found again, by id and in lists."""

    # Searching

    async def test_tasks_are_searched_by_state_tool_and_principal(self) -> None:
        """The newest first, page by page; what is not asked for does not matter."""
        async with self.opened() as (one, other):
            states: tuple[State, ...] = ("queued", "waiting", "completed")
            for n in range(12):
                record = new_record(f"{n:02}", tool=f"tool {n // 6}", principal=f"user {n % 2}")
                record.state, record.created, record.audience = (
                    states[n % 3],
                    1000.0 + n // 2,
                    f"server {n % 4}",
                )
                await one.insert(record, {})

            async def found(query: TaskQuery) -> str:
                return " ".join(record.id for record in await other.search(query))

            assert await found(TaskQuery(limit=3)) == "11 10 09"
            assert await found(TaskQuery(after=(1001.0, "03"))) == "02 01 00"
            assert await found(TaskQuery(states=("waiting", "completed"))) == "11 10 08 07 05 04 02 01"
            assert await found(TaskQuery(states=("waiting",), after=(1003.0, "07"), limit=1)) == "04"
            assert await found(TaskQuery(tools=("tool 0", "no such tool"))) == "05 04 03 02 01 00"
            assert await found(TaskQuery(tools=("tool 1",), states=("queued",))) == "09 06"
            assert await found(TaskQuery(principal="user 1", states=("completed",))) == "11 05"
            assert await found(TaskQuery(principal="user 0", tools=("tool 0",), limit=2)) == "04 02"
            assert await found(TaskQuery(principal="nobody")) == ""
            assert await other.tools() == ["tool 0", "tool 1"]

    # Keeping

    async def test_a_task_is_found_as_it_was_kept(self) -> None:
        """Through both ways in."""
        async with self.opened() as (one, other):
            record = new_record()
            entries = {f"s:{number}": step({"n": [number, "x" * 5000, 1.5, None]}) for number in range(30)}
            assert await one.insert(record, entries) == record
            assert await other.load("task") == record
            kept = await other.entries("task")
            assert kept == entries
            assert list(kept) == list(entries)
            assert await other.load("another") is None
            assert await other.entries("another") == {}

    async def test_a_flow_becomes_one_task_only(self) -> None:
        """Also if both try at the same time."""
        async with self.opened() as (one, other):
            tries = [
                (one if n % 2 else other).insert(new_record(f"task {n}", flow="flow"), {}) for n in range(8)
            ]
            kept = await asyncio.gather(*tries)
            assert len({record.id for record in kept}) == 1
            assert len(await one.listing()) == 1

    async def test_a_change_that_raises_changes_nothing(self) -> None:
        """Neither the row nor the journal."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {})

            def spoil(record: TaskRecord) -> None:
                record.message = "spoiled"
                raise ValueError("no")

            try:
                await one.change("task", spoil, {"s:1": step(1)})
            except ValueError:
                pass
            else:
                raise AssertionError("what the function raised was swallowed")
            assert await other.load("task") == new_record()
            assert await other.entries("task") == {}
            assert await one.change("another", spoil) is None

    async def test_concurrent_changes_are_made_one_after_another(self) -> None:
        """None of them is lost."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {})

            def count(record: TaskRecord) -> None:
                record.losses += 1

            await asyncio.gather(*((one if n % 2 else other).change("task", count) for n in range(20)))
            kept = await one.load("task")
            assert kept is not None
            assert kept.losses == 20

    async def test_what_a_principal_takes_is_counted(self) -> None:
        """Tasks that have not ended, and the bytes of all; those of others do not count."""
        async with self.opened() as (one, other):
            assert await one.usage("server", "alice") == Usage(0, 0)
            await one.insert(new_record("a", principal="alice", arguments={"text": "x" * 10_000}), {})
            first = await other.usage("server", "alice")
            assert first.open == 1
            assert 10_000 <= first.bytes <= 20_000
            await one.insert(new_record("b", principal="alice"), {"s:1": step("y" * 10_000)})
            await one.insert(new_record("c", principal="bob", arguments={"text": "z" * 50_000}), {})
            await one.insert(new_record("d", principal="alice", audience="another"), {})
            second = await other.usage("server", "alice")
            assert second.open == 2
            assert first.bytes < second.bytes <= first.bytes + 5_000
            await other.cancel("a", now=1001.0, tidy=False)
            ended = await one.usage("server", "alice")
            assert ended.open == 1
            assert ended.bytes >= 10_000
            assert (await one.usage("server", "bob")).open == 1
            await one.forget(before=1e12)
            assert await other.usage("server", "alice") == Usage(0, 0)

    # Looking on

    async def test_the_operator_sees_the_newest_first(self) -> None:
        """And can choose."""
        async with self.opened() as (one, other):
            for number in range(4):
                whose = "server" if number else "another"
                await one.insert(new_record(str(number), created=1000.0 + number, audience=whose), {})
            await one.insert(new_record("4", created=999.0, principal="alice"), {})
            await one.claim("2", now=1010.0, lease=10.0)
            assert [record.id for record in await other.listing(limit=3)] == ["3", "2", "1"]
            assert [record.id for record in await other.listing(audience="another")] == ["0"]
            assert [record.id for record in await other.listing(state="running")] == ["2"]
            assert [r.id for r in await other.listing(audience="server", principal="alice")] == ["4"]
            assert await other.listing(audience="server", principal="bob") == []
            assert [r.id for r in await other.listing(principal="alice")] == ["4"]
            assert await other.listing(principal="bob") == []

    async def test_a_look_at_all_tasks_goes_on_where_the_last_one_ended(self) -> None:
        """Tasks of the same moment are told apart by their ids."""
        async with self.opened() as (one, other):
            for name in "abcd":
                await one.insert(new_record(name, created=1000.0 + (name == "d")), {})
            assert [record.id for record in await other.listing(limit=2)] == ["d", "c"]
            rest = await other.listing(after=(1000.0, "c"), limit=2)
            assert [record.id for record in rest] == ["b", "a"]
            assert await other.listing(after=(1000.0, "a")) == []

    async def test_changes_are_signalled_to_every_process(self) -> None:
        """Until the watchers are removed. A signal may be lost or doubled, but not every time."""
        async with self.opened() as (one, other):
            heard: set[tuple[str, str]] = set()
            ends = [
                one.watch(lambda signal: heard.add(("one", signal.task_id)), works=True),
                other.watch(lambda signal: heard.add(("other", signal.task_id))),
            ]
            async with asyncio.timeout(_PATIENCE):
                number = 0
                while {who for who, _ in heard} != {"one", "other"}:
                    number += 1
                    await one.insert(new_record(f"task {number}"), {})
                    await asyncio.sleep(0.05)
            assert {task_id for _, task_id in heard} <= {f"task {n + 1}" for n in range(number)}
            for end in ends:
                end()
            await asyncio.sleep(0.05)
            heard.clear()
            await one.cancel("task 1", now=1001.0, tidy=False)
            await asyncio.sleep(0.1)
            assert heard == set()
