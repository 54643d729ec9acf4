"""Streams of 2025: resumed where they broke off, and one for what belongs to no request."""

import asyncio

import pytest

from ekiden import Context, Server
from tests.serving import served, soon

from .handlers import KEY, make_server
from .old_client import Event, accepted, call, events, notification, old_client, request, text


def counting_server(gate: asyncio.Event, numbers: int = 5) -> Server:
    server = Server("counting", keys=[KEY])

    @server.tool
    async def count(ctx: Context) -> str:
        """Count, with a stop in the middle."""
        for number in range(1, numbers + 1):
            await ctx.progress(number, numbers)
            if number == 2:
                await gate.wait()
        return "counted"

    return server


COUNT = call("count", id="c", meta={"progressToken": 1})


async def test_a_stream_begins_with_an_event_to_come_back_to() -> None:
    gate = asyncio.Event()
    gate.set()
    async with served(counting_server(gate)) as base, old_client(base) as client:
        async with client.posting(COUNT) as response:
            first, *rest = [event async for event in events(response)]
        assert (first.message, first.retry) == (None, "500")
        ids = [event.id for event in (first, *rest)]
        assert None not in ids
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_older_clients_get_ids_but_no_empty_event(version: str) -> None:
    gate = asyncio.Event()
    gate.set()
    async with served(counting_server(gate)) as base, old_client(base, version=version) as client:
        async with client.posting(COUNT) as response:
            seen = [event async for event in events(response)]
        assert all(event.message is not None and event.id is not None for event in seen)


async def test_a_stream_that_broke_off_is_resumed_after_the_last_event() -> None:
    gate = asyncio.Event()
    async with served(counting_server(gate)) as base, old_client(base) as client:
        seen: list[Event] = []
        async with client.posting(COUNT) as response:
            async for event in events(response):
                seen.append(event)
                if len(seen) == 2:
                    break
        gate.set()
        async with client.listening(seen[-1].id) as response:
            assert response.status_code == 200
            seen += [event async for event in events(response)]
        messages = [event.message for event in seen if event.message is not None]
        assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2, 3, 4, 5]
        assert text(messages[-1]) == "counted"
        # It can be had again for a while, and from anywhere.
        async with client.listening(seen[3].id) as response:
            again = [event.id async for event in events(response)]
        assert again == [event.id for event in seen[4:]]


async def test_a_lost_connection_cancels_nothing() -> None:
    gate, ended = asyncio.Event(), asyncio.Event()
    server = Server("going on", keys=[KEY])

    @server.tool
    async def go_on(ctx: Context) -> str:
        """Go on when the client is gone."""
        await ctx.progress(1)
        await gate.wait()
        ended.set()
        return "ended"

    async with served(server) as base, old_client(base) as client:
        async with client.posting(call("go_on", meta={"progressToken": 1})) as response:
            async for event in events(response):
                if event.message is not None:
                    break
        await asyncio.sleep(0.05)
        gate.set()
        await soon(ended.wait())


async def test_streams_that_nobody_came_back_for_are_forgotten() -> None:
    gate = asyncio.Event()
    server = counting_server(gate)
    application = server.asgi()
    async with served(application) as base, old_client(base) as client:
        ids: list[str | None] = []
        for number in range(8):
            async with client.posting({**COUNT, "id": number}) as response:
                ids.append((await soon(anext(aiter(events(response))))).id)
        gate.set()
        await asyncio.sleep(0.2)
        found = 0
        for last in ids:
            async with client.listening(last) as response:
                found += response.status_code == 200
        assert found == 4, "the newest few are kept for a while"


async def test_a_question_that_was_missed_is_asked_on_the_resumed_stream() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        async with client.posting(call("ask")) as response:
            async for event in events(response):
                primed = event.id
                break
        await asyncio.sleep(0.05)
        said = []
        async with client.listening(primed) as response:
            async for event in events(response):
                assert event.message is not None
                said.append(event.message)
                if "method" in event.message:
                    await client.send(accepted(event.message["id"], name="Ann"))
        assert text(said[-1]) == "accept Ann"


async def test_a_handler_may_have_the_client_come_back_later() -> None:
    server, gate = Server("polling", keys=[KEY]), asyncio.Event()

    @server.tool
    async def poll(ctx: Context) -> str:
        """Close the connection, and answer later."""
        ctx.close_stream()
        await gate.wait()
        return "later"

    async with served(server) as base, old_client(base) as client:
        async with client.posting(call("poll")) as response:
            (primed,) = [event async for event in events(response)]
        gate.set()
        async with client.listening(primed.id) as response:
            (answered,) = [event async for event in events(response)]
        assert answered.message is not None
        assert text(answered.message) == "later"


@pytest.mark.parametrize("last", ["99_1", "1_x", "", "not an id", "1_" + "9" * 50])
async def test_an_unknown_event_id_is_a_400_and_not_the_end_of_the_session(last: str) -> None:
    async with served(make_server()) as base, old_client(base) as client:
        async with client.listening(last) as response:
            assert response.status_code == 400
        assert (await client.ask("ping"))["result"] == {}


async def test_an_event_id_of_another_session_leads_nowhere() -> None:
    gate = asyncio.Event()
    gate.set()
    async with served(counting_server(gate)) as base, old_client(base) as one, old_client(base) as other:
        async with one.posting(COUNT) as response:
            ids = [event.id async for event in events(response)]
        async with other.listening(ids[0]) as response:
            assert response.status_code == 400


async def test_what_a_stream_keeps_is_limited() -> None:
    gate = asyncio.Event()
    async with served(counting_server(gate, numbers=2000)) as base, old_client(base) as client:
        async with client.posting(COUNT) as response:
            async for event in events(response):
                if event.message is not None:
                    break
        gate.set()
        await asyncio.sleep(1)
        async with client.listening(event.id) as response:
            rest = [event.message async for event in events(response)]
        assert len(rest) <= 256
        assert rest[-1] is not None
        assert text(rest[-1]) == "counted"


async def test_a_handler_does_not_run_far_ahead_of_a_client_that_reads_slowly() -> None:
    told = 0
    server = Server("chatty", keys=[KEY])

    @server.tool
    async def chat(ctx: Context) -> str:
        """Tell a lot."""
        nonlocal told
        for number in range(1, 2000):
            await ctx.progress(number, message="x" * 10_000)
            told = number
        return "done"

    async with served(server) as base, old_client(base) as client:
        async with client.posting(call("chat", meta={"progressToken": 1})) as response:
            read = 0
            async for event in events(response):
                read += event.message is not None
                if read == 20:
                    await asyncio.sleep(0.3)
                    # What lies in the sockets' buffers is beyond us; what we keep is not.
                    assert told < 1900
        assert read == 2000


# The stream that belongs to no request


async def test_changes_are_told_on_the_stream_that_the_client_gets() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as client:
        assert (await client.ask("resources/subscribe", {"uri": "eras://paper"}))["result"] == {}
        async with client.listening() as response:
            assert response.headers["content-type"] == "text/event-stream"
            heard = aiter(events(response))
            assert (await soon(anext(heard))).message is None
            server.resource_updated("eras://page/1")
            server.resource_updated("eras://paper")
            server.remove_prompt("greet")
            notes = [(await soon(anext(heard))).message for _ in range(2)]
        assert notes == [
            notification("notifications/resources/updated", uri="eras://paper"),
            notification("notifications/prompts/list_changed"),
        ]
        assert (await client.ask("resources/unsubscribe", {"uri": "eras://paper"}))["result"] == {}
        async with client.listening() as response:
            heard = aiter(events(response))
            server.resource_updated("eras://paper")
            server.remove_tool("number")
            seen = [(await soon(anext(heard))).message for _ in range(4)]
        assert seen[-1] == notification("notifications/tools/list_changed")


async def test_what_changes_while_nobody_listens_is_told_later_and_once() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as client:
        async with client.listening() as response:
            (primed,) = [await soon(anext(aiter(events(response))))]
        await asyncio.sleep(0.05)
        for name in ("number", "link", "add"):
            server.remove_tool(name)
        async with client.listening(primed.id) as response:
            (event,) = [await soon(anext(aiter(events(response))))]
        assert event.message == notification("notifications/tools/list_changed")


async def test_there_is_one_such_stream_at_a_time() -> None:
    async with served(make_server()) as base, old_client(base) as client, client.listening() as response:
        heard = aiter(events(response))
        first = await soon(anext(heard))
        async with client.listening() as second:
            assert second.status_code == 409
        # Whoever comes back to it by its last event takes it over.
        async with client.listening(first.id) as third:
            assert third.status_code == 200
            assert await soon(_rest(heard)) == 0


async def test_each_session_hears_only_what_it_subscribed_to() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as one, old_client(base) as other:
        await one.ask("resources/subscribe", {"uri": "eras://paper"})
        async with one.listening() as first, other.listening() as second:
            heard_first, heard_second = aiter(events(first)), aiter(events(second))
            await soon(anext(heard_first))
            await soon(anext(heard_second))
            server.resource_updated("eras://paper")
            server.remove_tool("number")
            assert (await soon(anext(heard_first))).message == notification(
                "notifications/resources/updated", uri="eras://paper"
            )
            assert (await soon(anext(heard_second))).message == notification(
                "notifications/tools/list_changed"
            )


async def test_the_stream_ends_when_the_server_does() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as client, client.listening() as response:
        heard = aiter(events(response))
        await soon(anext(heard))
        server.endpoint.drain()
        assert await soon(_rest(heard)) == 0


async def _rest(heard: object) -> int:
    return len([event async for event in heard])  # type: ignore[attr-defined]


async def test_a_get_needs_a_session_and_an_accept_header() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        without = await client.http.get(client.url, headers={"accept": "text/event-stream"})
        assert without.status_code == 405
        plain = await client.http.get(client.url, headers={**client.headers, "accept": "application/json"})
        assert plain.status_code == 406


async def test_a_client_that_names_streams_first_gets_one() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.send(request("tools/list"), accept="text/event-stream, application/json")
        assert answered.headers["content-type"] == "text/event-stream"
        only = await client.send(request("tools/list"), accept="text/event-stream")
        assert only.headers["content-type"] == "text/event-stream"
        anything = await client.send(request("tools/list"), accept="*/*")
        assert anything.headers["content-type"] == "application/json"
