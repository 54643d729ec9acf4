"""What stdio and memory have in common, over the memory channel."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ekiden import Context, Server, ToolError
from ekiden.transports.server.conversation import Conversation
from ekiden.transports.server.memory import MemoryChannel
from tests.serving import PATIENCE, call, exchange, notification, request, soon


class Probe:
    """A server whose tools wait until the test lets them go, and tell how they ended."""

    def __init__(self) -> None:
        self.server = Server("probe")
        self.release = asyncio.Event()
        self.began = asyncio.Event()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.server.tool(self.hold)
        self.server.tool(self.echo)
        self.server.tool(self.stubborn)
        self.server.tool(self.breaks)

    async def hold(self) -> str:
        self.began.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise
        return "held"

    async def echo(self, text: str) -> str:
        return text

    async def stubborn(self, ctx: Context) -> str:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.progress(1)
        self.ended.put_nowait("stayed")
        return "stayed"

    async def breaks(self) -> str:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.put_nowait("broke")
            raise ToolError("while cleaning up")


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
async def channel(probe: Probe) -> AsyncGenerator[MemoryChannel, None]:
    async with probe.server.connect() as channel:
        yield channel


async def test_an_answer_comes_back_under_the_id_of_its_request(channel: MemoryChannel) -> None:
    await channel.send(call("echo", {"text": "x"}, request_id="a"))
    response = await soon(channel.receive())
    assert response["id"] == "a"
    assert response["result"]["content"] == [{"type": "text", "text": "x"}]


async def test_a_fast_request_overtakes_a_slow_one(channel: MemoryChannel, probe: Probe) -> None:
    await channel.send(call("hold", request_id=1))
    await channel.send(call("echo", {"text": "x"}, request_id=2))
    assert (await soon(channel.receive()))["id"] == 2
    probe.release.set()
    assert (await soon(channel.receive()))["id"] == 1


async def test_a_string_id_and_an_integer_id_are_two_ids(channel: MemoryChannel, probe: Probe) -> None:
    await channel.send(call("hold", request_id=1))
    await channel.send(call("hold", request_id="1"))
    probe.release.set()
    ids = [(await soon(channel.receive()))["id"] for _ in range(2)]
    assert sorted(map(repr, ids)) == ["'1'", "1"]


async def test_an_id_in_use_is_refused_and_the_first_request_goes_on(
    channel: MemoryChannel, probe: Probe
) -> None:
    await channel.send(call("hold", request_id=1))
    await channel.send(call("echo", {"text": "x"}, request_id=1))
    refusal = await soon(channel.receive())
    assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
    probe.release.set()
    assert (await soon(channel.receive()))["result"]["content"][0]["text"] == "held"


async def test_an_id_is_free_again_after_its_answer(channel: MemoryChannel) -> None:
    for text in ("one", "two"):
        await channel.send(call("echo", {"text": text}, request_id=1))
        assert (await soon(channel.receive()))["result"]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("body", "request_id", "code"),
    [
        (b"{", None, -32700),
        (b"\xff", None, -32700),
        (b"[]", None, -32600),
        (b'{"jsonrpc":"2.0","id":3,"method":1}', 3, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":4,"method":"tools/list"}', 4, -32602),
    ],
)
async def test_a_broken_message_is_answered_with_what_is_wrong(
    channel: MemoryChannel, body: bytes, request_id: Any, code: int
) -> None:
    await channel.send(body)
    response = await soon(channel.receive())
    assert response.get("id") == request_id
    assert ("id" in response) == (request_id is not None)
    assert response["error"]["code"] == code


async def test_a_request_that_is_cancelled_is_not_answered(channel: MemoryChannel, probe: Probe) -> None:
    await channel.send(call("hold", request_id=1))
    await soon(probe.began.wait())
    await channel.send(notification("notifications/cancelled", {"requestId": 1, "reason": "enough"}))
    assert await soon(probe.ended.get()) == "cancelled"
    await channel.send(call("echo", {"text": "x"}, request_id=2))
    assert (await soon(channel.receive()))["id"] == 2


async def test_a_request_cancelled_before_it_began_leaves_nothing_behind(channel: MemoryChannel) -> None:
    await channel.send(call("hold", request_id=1))
    await channel.send(notification("notifications/cancelled", {"requestId": 1}))
    await channel.send(call("echo", {"text": "first"}, request_id=2))
    assert (await soon(channel.receive()))["id"] == 2
    await channel.send(call("echo", {"text": "again"}, request_id=1))
    assert "result" in await soon(channel.receive())


async def test_a_handler_that_swallows_its_cancellation_says_nothing_more(
    channel: MemoryChannel, probe: Probe
) -> None:
    await channel.send(call("stubborn", request_id=1, progressToken="t"))
    await soon(probe.began.wait())
    await channel.send(notification("notifications/cancelled", {"requestId": 1}))
    assert await soon(probe.ended.get()) == "stayed"
    await channel.send(call("echo", {"text": "x"}, request_id=2))
    assert (await soon(channel.receive())).get("id") == 2


async def test_a_handler_that_fails_while_it_is_cancelled_is_not_answered(
    channel: MemoryChannel, probe: Probe
) -> None:
    await channel.send(call("breaks", request_id=1))
    await soon(probe.began.wait())
    await channel.send(notification("notifications/cancelled", {"requestId": 1}))
    assert await soon(probe.ended.get()) == "broke"
    await channel.send(call("echo", {"text": "x"}, request_id=2))
    assert (await soon(channel.receive()))["id"] == 2


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"requestId": 99},
        {"requestId": None},
        {"requestId": "1"},
        {"requestId": True},
        {"requestId": 1.0},
        {"requestId": [1]},
    ],
)
async def test_a_cancellation_of_no_running_request_is_ignored(
    channel: MemoryChannel, probe: Probe, params: dict[str, Any]
) -> None:
    await channel.send(call("hold", request_id=1))
    await soon(probe.began.wait())
    await channel.send(notification("notifications/cancelled", params))
    probe.release.set()
    assert (await soon(channel.receive()))["result"]["content"][0]["text"] == "held"


async def test_an_unknown_notification_is_ignored(channel: MemoryChannel) -> None:
    await channel.send(notification("notifications/whatever"))
    await channel.send(call("echo", {"text": "x"}))
    assert (await soon(channel.receive()))["id"] == 1


async def test_leaving_cancels_what_is_still_running(probe: Probe) -> None:
    async with asyncio.timeout(PATIENCE):
        async with probe.server.connect() as channel:
            await channel.send(call("hold"))
            await soon(probe.began.wait())
        assert await soon(probe.ended.get()) == "cancelled"


async def test_progress_carries_the_token_of_its_request() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.progress(2, 2)
        return "done"

    first, second, response = await exchange(server, call("work", progressToken="p"))
    assert first["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    assert second["params"] == {"progressToken": "p", "progress": 2, "total": 2}
    assert response["result"]["content"][0]["text"] == "done"


async def test_a_reader_that_falls_behind_makes_the_server_wait() -> None:
    server = Server("s")
    sent: list[int] = []

    @server.tool
    async def flood(ctx: Context) -> str:
        for n in range(2000):
            await ctx.progress(n)
            sent.append(n)
        return "done"

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        await channel.send(call("flood", progressToken=1))
        await soon(channel.receive())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(sent) < 400
        message = await soon(channel.receive())
        while "method" in message:
            message = await soon(channel.receive())
    assert len(sent) == 2000


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
async def test_a_result_that_cannot_be_spelled_is_still_answered(text: str) -> None:
    server = Server("s")

    @server.tool
    async def names() -> str:
        return text  # As `os.listdir` gives the names of files that are no UTF-8.

    (response,) = await exchange(server, call("names"))
    assert response["id"] == 1
    assert response.get("error", {}).get("code") == -32603 or response["result"]["isError"]


async def test_many_requests_at_once_are_all_answered(channel: MemoryChannel) -> None:
    async def send_all() -> None:
        for n in range(3000):
            await channel.send(call("echo", {"text": str(n)}, request_id=n))

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(send_all())
        answers = [await soon(channel.receive()) for _ in range(3000)]
    assert {answer["id"] for answer in answers} == set(range(3000))
    assert all(answer["result"]["content"][0]["text"] == str(answer["id"]) for answer in answers)


async def test_a_subscription_that_the_server_ends_ends_with_its_result(
    channel: MemoryChannel, probe: Probe
) -> None:
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id=9)
    await channel.send(listen)
    assert (await soon(channel.receive()))["method"] == "notifications/subscriptions/acknowledged"
    probe.server.asgi().endpoint.drain()
    response = await soon(channel.receive())
    assert (response["id"], response["result"]["resultType"]) == (9, "complete")


async def test_the_end_waits_for_an_answer_that_is_being_sent() -> None:
    sending, sent = asyncio.Event(), asyncio.Event()
    said: list[bytes] = []

    async def send(message: bytes) -> None:
        sending.set()
        await sent.wait()
        said.append(message)

    endpoint = Server("s").asgi().endpoint
    async with endpoint.in_use():
        conversation = Conversation(endpoint, send)
        await conversation.receive(json.dumps(request("server/discover")).encode())
        await soon(sending.wait())
        closing = asyncio.create_task(conversation.close(PATIENCE))
        await asyncio.sleep(0)
        assert not closing.done()
        sent.set()
        await soon(closing)
    assert len(said) == 1
