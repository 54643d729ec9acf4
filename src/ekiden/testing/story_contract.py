"""What every store of stories must do, as tests to inherit."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ekiden.stories.events import Action, CallFacts, CallRow, CallStatus, decode_facts, encode_facts
from ekiden.stories.store import CallQuery, StoryStore, Told

__all__ = ["StoryStoreContract"]


def _told(
    call_id: str,
    at: float = 1.0,
    *,
    state: CallStatus = "running",
    target: str = "pay",
    events: bytes = b"",
    task: str = "",
    began: float | None = None,
) -> Told:
    row = CallRow(
        id=call_id,
        audience="server",
        method="tools/call",
        target=target,
        principal="ann",
        started=at if began is None else began,
        updated=at,
        state=state,
        task=task,
        size=len(events),
        facts=encode_facts(CallFacts(f'{{"amount":{at:g}}}')),
    )
    return Told(row, events)


class StoryStoreContract:
    """Inherit from it, and say in `opened` how two stores of the same stories are opened."""

    def opened(self) -> AbstractAsyncContextManager[tuple[StoryStore, StoryStore]]:
        """Two stores that share what they keep, as two processes have them; both may be the same object."""
        raise NotImplementedError  # Only whoever inherits knows how their store is opened.

    async def test_what_is_written_here_is_read_there_in_order(self) -> None:
        """Law 2."""
        async with self.opened() as (one, other):
            await one.write([_told("a", 1.0, events=b"first")])
            await other.write([_told("a", 2.0, events=b"second"), _told("b", 2.0)])
            await one.write([_told("a", 3.0, events=b"third")])
            assert await other.events("a") == [b"first", b"second", b"third"]
            assert await other.events("b") == []
            assert await one.events("nobody") == []
            assert await one.load("nobody") is None

    async def test_rows_of_one_call_become_one(self) -> None:
        """Law 1: whoever writes late changes nothing that is newer."""
        async with self.opened() as (one, other):
            await one.write([_told("a", 1.0, events=b"12")])
            await other.write([_told("a", 5.0, state="completed", events=b"345", task="t")])
            await one.write([_told("a", 3.0, state="waiting", began=0.5)])
            row = await one.load("a")
            assert row is not None
            assert (row.state, row.task, row.started, row.updated) == ("completed", "t", 0.5, 5.0)
            assert row.size >= 5
            assert decode_facts(row.facts).arguments == '{"amount":5}'
            assert (row.audience, row.method, row.target, row.principal) == (
                "server",
                "tools/call",
                "pay",
                "ann",
            )

    async def test_calls_are_listed_newest_first_page_by_page(self) -> None:
        """No call is missed or comes twice, also where several began in the same moment."""
        async with self.opened() as (one, other):
            await one.write([_told(f"call {n:02}", float(n // 3)) for n in range(20)])
            seen: list[str] = []
            after = None
            for _ in range(10):
                page = await other.listing(CallQuery(after=after, limit=3))
                if not page:
                    break
                seen += [row.id for row in page]
                after = (page[-1].started, page[-1].id)
            assert seen == [f"call {n:02}" for n in range(19, -1, -1)]

    async def test_calls_are_found_by_state_and_target(self) -> None:
        """Each alone, and both together; the newest first in every case."""
        async with self.opened() as (one, _):
            states: tuple[CallStatus, ...] = ("completed", "failed", "waiting")
            targets = ("pay", "book", "ui://a page")
            await one.write(
                [_told(f"{n}", float(n), state=states[n % 3], target=targets[n // 3]) for n in range(9)]
            )
            found = [row.id for row in await one.listing(CallQuery(states=("failed",)))]
            assert found == ["7", "4", "1"]
            found = [row.id for row in await one.listing(CallQuery(targets=("pay", "ui://a page")))]
            assert found == ["8", "7", "6", "2", "1", "0"]
            both = CallQuery(states=("failed", "waiting"), targets=("book",), limit=1)
            assert [row.id for row in await one.listing(both)] == ["5"]
            after = CallQuery(states=("failed", "waiting"), targets=("book",), after=(5.0, "5"))
            assert [row.id for row in await one.listing(after)] == ["4"]
            assert await one.targets() == ["book", "pay", "ui://a page"]

    async def test_old_calls_and_those_beyond_the_limits_are_forgotten(self) -> None:
        """Those that were quiet for longest go first, with their events."""
        async with self.opened() as (one, other):
            await one.write([_told(f"{n}", float(n), events=b"x" * 1000) for n in range(10)])
            assert await one.trim(before=2.0, most_calls=100, most_bytes=1_000_000) == 2
            assert await one.trim(before=2.0, most_calls=5, most_bytes=1_000_000) == 3
            assert await one.trim(before=2.0, most_calls=5, most_bytes=3_500) in (2, 3)
            kept = [row.id for row in await other.listing(CallQuery())]
            assert kept in (["9", "8", "7"], ["9", "8"])
            assert await other.events("0") == []
            assert len(await other.events("9")) == 1
            assert await one.trim(before=2.0, most_calls=5, most_bytes=3_500) == 0

    async def test_watchers_hear_of_changes_of_other_processes_too(self) -> None:
        """Law 3."""
        async with self.opened() as (one, other):
            heard: list[str] = []
            told = asyncio.Event()

            def watcher(changed: Sequence[str]) -> None:
                heard.extend(changed)
                if {"a", "b"} <= set(heard):
                    told.set()

            end = await one.watch(watcher)
            await other.write([_told("a")])
            await one.write([_told("b")])
            async with asyncio.timeout(10):
                await told.wait()
            end()
            heard.clear()
            await one.write([_told("c")])
            assert heard == []

    async def test_the_audit_log_is_kept_newest_first(self) -> None:
        """Page by page."""
        async with self.opened() as (one, other):
            done = [Action(float(n), "ann", "cancel", f"task {n}", "cancelled") for n in range(5)]
            for action in done:
                await one.note(action)
            assert await other.actions(limit=2) == [done[4], done[3]]
            assert await other.actions(before=3.0, limit=9) == [done[2], done[1], done[0]]
