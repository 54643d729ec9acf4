"""What a server tells of its calls, when it records them."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from ekiden import Client, Context, Recording, Retry, Server, StoreUnavailable
from ekiden.server.operations import recording as server_recording
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory.stories import MemoryStories
from ekiden.stories import recorder as story_recorder
from ekiden.stories.events import Event, decode_facts
from ekiden.stories.recorder import Recorder
from ekiden.stories.store import CallQuery, Told
from ekiden.stories.telling import current_story
from ekiden.testing import ScriptedClient
from tests.simulation.virtual_time import clock
from tests.stories.telling import events_of, kinds, stories_of, told, with_another_step_in_a_replay


def charge(amount: int) -> str:
    logging.getLogger("shop").warning("charging %d", amount)
    return f"receipt {amount}"


def shop(**options: Any) -> Server:
    server = Server("shop", keys=[bytes(32)], record=True, **options)

    @server.tool
    async def pay(amount: int, ctx: Context) -> str:
        receipt = await ctx.step(charge, amount)
        await ctx.info("charged")
        await ctx.progress(1, 2, "half way")
        answer = await ctx.elicit("Send it?", bool)
        name = await ctx.elicit("To whom?", str)
        return f"{receipt} {answer.action} {name.action}"

    return server


async def test_all_rounds_of_a_call_are_one_story() -> None:
    server = shop()
    async with server.running():
        client = ScriptedClient(server, {"Send it?": True, "To whom?": "ann"})
        await client.call_tool("pay", {"amount": 3})
        row, events = await told(server)
    assert (row.target, row.state, row.audience) == ("pay", "completed", "shop")
    facts = decode_facts(row.facts)
    assert (facts.arguments, facts.client, facts.era, facts.rounds) == (
        '{"amount":3}',
        "scripted 1",
        "2026-07-28",
        3,
    )
    assert kinds(events) == [
        "leg",
        "began s:charge",
        'log "charging 3"',
        "done s:charge",
        'log "charged"',
        "progress [1,2]",
        "asked",
        "end asked",
        "leg",
        "answered",
        "done a:elicit",
        "asked",
        "end asked",
        "leg",
        "answered",
        "done a:elicit",
        "end completed",
    ]
    ends = [json.loads(event.value) for event in events if event.kind == "end"]
    assert [len(end["replayed"]) for end in ends] == [0, 1, 2]
    assert [len(end["journal"]) for end in ends] == [1, 2, 3]
    assert [end["token"] for end in ends] == [len(r.state or "") for r in client.rounds]
    assert len({event.leg for event in events}) == 3


async def test_a_server_that_records_nothing_tells_nothing() -> None:
    server = Server("shop", keys=[bytes(32)])
    seen: list[object] = []

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append(current_story.get())
        return "seen"

    async with server.running():
        await ScriptedClient(server).call_tool("look")
    assert seen == [None]
    assert server.stories is None
    assert server.endpoint._begins["tools/call"] == server.endpoint._dispatcher.call_tool


async def test_a_plain_tool_is_one_leg_and_its_failure_is_told() -> None:
    server = Server("shop", record=True)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with server.running():
        client = ScriptedClient(server)
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.call_tool("add", {"a": 1, "b": "x"})
        stories = await stories_of(server)
        rows = await stories.listing(CallQuery())
        assert [row.state for row in rows] == ["tool_failed", "completed"]
        assert kinds(await events_of(stories, rows[1].id)) == ["leg", "end completed"]
        assert kinds(await events_of(stories, rows[0].id)) == ["leg", "end tool failed"]


async def test_a_step_that_is_tried_again_tells_of_each_failure() -> None:
    server, tries = Server("shop", keys=[bytes(32)], record=True), list[int]()

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return 5

    @server.tool
    async def fetch(ctx: Context) -> int:
        return await ctx.step(flaky, retry=Retry(seconds=0.001))

    async with server.running():
        await ScriptedClient(server).call_tool("fetch")
        _, events = await told(server)
    assert kinds(events) == [
        "leg",
        "began s:flaky",
        "retried s:flaky",
        "retried s:flaky",
        "done s:flaky",
        "end completed",
    ]
    assert "not yet" in events[2].value
    assert events[2].name == events[1].name == events[4].name


async def test_a_task_tells_of_every_leg() -> None:
    server = Server("shop", keys=[bytes(32)], record=True, store="memory:", clock=clock)

    @server.tool(task="required")
    async def pay(amount: int, ctx: Context) -> str:
        await ctx.step(charge, amount)
        await ctx.sleep(0.01)
        await ctx.elicit("Send it?", bool)
        return "sent"

    async with server.running():
        client = ScriptedClient(server, {"Send it?": True}, tasks=True)
        await client.call_tool("pay", {"amount": 3})
        row, events = await told(server)
    assert row.state == "task"
    assert row.task == client.rounds[0].result["taskId"]
    legs: dict[str, list[Event]] = {}
    for event in events:
        legs.setdefault(event.leg, []).append(event)
    ends = [leg[-1].about for leg in legs.values()]
    assert ends == ["became a task", "sleeping", "asked", "completed"]
    fences = [json.loads(leg[0].value)["fence"] for leg in legs.values()]
    assert fences == [None, 1, 2, 3]


async def test_a_replay_that_differs_has_both_sides() -> None:
    server = with_another_step_in_a_replay()
    async with server.running():
        with pytest.raises(Exception, match="does not replay"):
            await ScriptedClient(server, {"Go on?": True}).call_tool("change")
        row, events = await told(server)
    (differs,) = [event for event in events if event.kind == "differs"]
    sides = json.loads(differs.value)
    assert "first" in sides["before"]
    assert "second" in sides["now"]
    assert row.state == "failed"


async def test_a_client_of_2025_has_a_story_too() -> None:
    server = shop()

    async def elicit(params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": params.message == "Send it?" or "ann"})

    async with server.running(), Client(server, mode="legacy", elicit=elicit) as client:
        await client.call_tool("pay", {"amount": 3})
        row, events = await told(server)
    assert (row.state, decode_facts(row.facts).era) == ("completed", "2025-11-25")
    assert kinds(events) == [
        "leg",
        "began s:charge",
        'log "charging 3"',
        "done s:charge",
        'log "charged"',
        "progress [1,2]",
        "began a:elicit",
        "done a:elicit",
        "began a:elicit",
        "done a:elicit",
        "end completed",
    ]


async def test_a_call_that_is_cancelled_says_so() -> None:
    server, begun = Server("shop", keys=[bytes(32)], record=True), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with server.running():
        call = asyncio.create_task(ScriptedClient(server).call_tool("wait"))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        row, events = await told(server)
    assert row.state == "failed"
    assert events[-1].about == "cancelled"


async def test_a_call_of_a_mounted_server_is_told_once() -> None:
    outer, inner = Server("outer", keys=[bytes(32)], record=True), Server("inner", keys=[bytes(32)])

    @inner.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", bool)).action

    outer.mount(inner, prefix="in")
    async with outer.running():
        await ScriptedClient(outer, {"Well?": True}).call_tool("in_ask")
        row, events = await told(outer)
    assert (row.target, row.state) == ("in_ask", "completed")
    assert [kind for kind in kinds(events) if kind.startswith("end")] == ["end asked", "end completed"]


async def test_without_values_only_sizes_are_kept() -> None:
    server = Server("shop", keys=[bytes(32)], record=Recording(values=False))

    @server.tool
    async def echo(word: str, ctx: Context) -> str:
        await ctx.info(f"a secret {word}")
        return word

    async with server.running():
        await ScriptedClient(server).call_tool("echo", {"word": "secret"})
        row, events = await told(server)
        stories = await stories_of(server)
        batches = await stories.events(row.id)
    assert not any(b"secret" in batch for batch in (row.facts, *batches))
    assert decode_facts(row.facts).arguments_size == len('{"word":"secret"}')
    assert [event.size for event in events if event.kind == "log"] == [len('"a secret secret"')]


async def test_a_value_that_is_too_long_leaves_its_size() -> None:
    server = Server("shop", record=Recording(value_bytes=100))

    @server.tool
    def echo(word: str) -> str:
        return word

    async with server.running():
        await ScriptedClient(server).call_tool("echo", {"word": "x" * 500})
        row, _ = await told(server)
    facts = decode_facts(row.facts)
    assert (facts.arguments, facts.arguments_size) == ("", 511)


class Away(MemoryStories):
    """A store that cannot be reached for a while."""

    tries = 0

    async def write(self, told: Any) -> None:
        self.tries += 1
        if self.tries < 3:
            raise StoreUnavailable("away")
        await super().write(told)


async def test_what_cannot_be_written_is_written_later_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_recorder, "_AGAIN_SECONDS", 0.01)
    server = shop()
    assert server.endpoint._recording is not None
    store = server.endpoint._recording.recorder.store = server.stories = Away()
    async with server.running():
        await ScriptedClient(server, {"Send it?": True, "To whom?": "ann"}).call_tool("pay", {"amount": 3})
        row, events = await told(server)
    assert store.tries >= 3
    assert row.state == "completed"
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert len([event for event in events if event.kind == "leg"]) == 3


async def test_beyond_its_bounds_events_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_recorder, "_MOST_EVENTS", 10)
    server = Server("shop", keys=[bytes(32)], record=True)

    @server.tool
    async def chat(ctx: Context) -> str:
        for number in range(50):
            await ctx.info(str(number))
        return "done"

    async with server.running():
        await ScriptedClient(server).call_tool("chat")
        row, events = await told(server)
    (lost,) = [event for event in events if event.kind == "lost_count"]
    assert lost.size + len(events) - 1 == 52
    assert row.state == "completed"


async def test_old_calls_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_recorder, "_TRIM_SECONDS", 0.0)
    server = Server("shop", record=Recording(calls=3))

    @server.tool
    def add(a: int) -> int:
        return a

    async with server.running():
        for number in range(6):
            await ScriptedClient(server).call_tool("add", {"a": number})
            stories = await stories_of(server)
        kept = [decode_facts(row.facts).arguments for row in await stories.listing(CallQuery())]
    assert kept == ['{"a":5}', '{"a":4}', '{"a":3}']


async def test_two_workers_tell_one_story_in_the_store(tmp_path: Path) -> None:
    """Each round in another server, as after the death of a worker."""
    servers = [shop(store=f"sqlite:///{tmp_path / 'store.db'}") for _ in range(3)]
    turns = iter(servers)
    client = ScriptedClient(lambda: next(turns), {"Send it?": True, "To whom?": "ann"})
    await client.call_tool("pay", {"amount": 3})
    for server in servers:
        await stories_of(server)
    row, events = await told(servers[0])
    events.sort(key=lambda event: event.at)  # Each writes when it comes to it.
    assert row.state == "completed"
    assert [kind for kind in kinds(events) if kind.startswith("end")] == [
        "end asked",
        "end asked",
        "end completed",
    ]
    for server in servers:
        await server.endpoint.stop()


async def test_the_log_handler_goes_with_the_server() -> None:
    before = list(logging.getLogger().handlers)
    server = shop()
    async with server.running():
        await ScriptedClient(server, {"Send it?": True, "To whom?": "ann"}).call_tool("pay", {"amount": 3})
        assert any(isinstance(each, server_recording.LogLines) for each in logging.getLogger().handlers)
    assert logging.getLogger().handlers == before


async def test_a_recorder_in_a_thread_wakes_the_loop() -> None:
    store = MemoryStore().stories
    recorder = Recorder(store, Recording(), "shop")
    from ekiden.testing.story_contract import _told as row_of

    first: Told = row_of("a")
    recorder.keep(first.row)
    await recorder.flush()
    await asyncio.to_thread(recorder.keep, row_of("b").row)
    async with asyncio.timeout(5):
        while await store.load("b") is None:
            await asyncio.sleep(0.01)


async def test_what_a_parked_handler_says_in_later_rounds_is_in_the_story() -> None:
    server = Server("shop", keys=[bytes(32)], record=True)

    @server.tool(resume="parked")
    async def pay(ctx: Context) -> str:
        await ctx.info("first")
        await ctx.elicit("Send it?", bool)
        await ctx.info("second")
        await ctx.progress(1, 2)
        await ctx.elicit("To whom?", str)
        logging.getLogger("shop").warning("third")
        return "done"

    async with server.running():
        await ScriptedClient(server, {"Send it?": True, "To whom?": "ann"}).call_tool("pay", {})
        _, events = await told(server)
    legs = list(dict.fromkeys(event.leg for event in events))
    said = [(legs.index(event.leg), event.value) for event in events if event.kind in ("log", "progress")]
    assert said == [(0, '"first"'), (1, '"second"'), (1, "[1,2]"), (2, '"third"')]
