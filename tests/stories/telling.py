"""What tests of stories look at."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ekiden import Context, Server
from ekiden.stories.events import CallRow, Event, decode_events
from ekiden.stories.store import CallQuery, StoryStore


async def stories_of(server: Server) -> StoryStore:
    """The stories of a server, with all that has happened so far written."""
    assert server.stories is not None
    await server.endpoint._recording.recorder.flush()
    return server.stories


async def only_call(stories: StoryStore) -> CallRow:
    (row,) = await stories.listing(CallQuery())
    return row


async def events_of(stories: StoryStore, call_id: str) -> list[Event]:
    return [event for batch in await stories.events(call_id) for event in decode_events(batch)]


async def told(server: Server) -> tuple[CallRow, list[Event]]:
    """The only call of a server, and what happened in it."""
    stories = await stories_of(server)
    row = await only_call(stories)
    return row, await events_of(stories, row.id)


def kinds(events: Sequence[Event]) -> list[str]:
    """The events in short: kind and what it is about, by the first word."""
    return [f"{event.kind} {_short(event)}".strip() for event in events]


def _short(event: Event) -> str:
    if event.kind in ("began", "done", "retried"):
        return event.name[:2] + event.name[2:].partition("-")[0].rpartition(".")[2]
    return event.about if event.kind == "end" else event.value if event.kind in ("log", "progress") else ""


async def until(condition: Any, seconds: float = 10.0) -> Any:
    """Wait until an async condition gives something true."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
    return found


def first() -> int:
    return 1


def second() -> int:
    return 2


def with_another_step_in_a_replay() -> Server:
    """A server that records, and whose tool `change` does not replay: it does another step then."""
    server, runs = Server("shop", keys=[bytes(32)], record=True), list[int]()

    @server.tool
    async def change(ctx: Context) -> str:
        runs.append(1)
        await ctx.step(first if len(runs) == 1 else second)
        await ctx.elicit("Go on?", bool)
        return "done"

    return server
