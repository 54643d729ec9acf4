import asyncio
import threading
from typing import Any

import pytest

from ekiden import Server
from ekiden.errors import InternalError
from ekiden.server import subscription_room
from ekiden.server.subscriptions import Change, Filter, Hub, Subscription
from ekiden.transports.server.memory import MemoryChannel
from tests.serving import PATIENCE, error_of, notification, request, soon

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def server_with_all() -> Server:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return ""

    @server.prompt
    async def prompt() -> str:
        return ""

    @server.resource("a://1")
    async def resource() -> str:
        return ""

    return server


async def listen(channel: MemoryChannel, request_id: int | str = 1, **wanted: Any) -> dict[str, Any]:
    """Subscribe; gives what was acknowledged."""
    await channel.send(request("subscriptions/listen", {"notifications": wanted}, request_id=request_id))
    message = await soon(channel.receive())
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"]["_meta"] == {SUBSCRIPTION: request_id}
    acknowledged: dict[str, Any] = message["params"]["notifications"]
    return acknowledged


async def other() -> str:
    return ""


# What is granted


async def test_everything_that_the_server_has_is_granted() -> None:
    async with server_with_all().connect() as channel:
        wanted: dict[str, Any] = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["a://1", "a://2", "a://1"],
        }
        assert await listen(channel, **wanted) == {**wanted, "resourceSubscriptions": ["a://1", "a://2"]}


async def test_what_the_server_does_not_have_is_left_out() -> None:
    server = Server("s")
    server.add_tool(other)
    async with server.connect() as channel:
        granted = await listen(
            channel, toolsListChanged=True, promptsListChanged=True, resourceSubscriptions=["a://1"]
        )
        assert granted == {"toolsListChanged": True}


async def test_what_is_not_wanted_or_not_known_is_left_out() -> None:
    async with server_with_all().connect() as channel:
        assert await listen(channel, toolsListChanged=False, moonPhaseChanged=True) == {}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"toolsListChanged": None}},
        {"notifications": {"resourceSubscriptions": "a://1"}},
        {"notifications": {"resourceSubscriptions": [1]}},
        {"notifications": {"resourceSubscriptions": ["a://1"] * 1001}},
    ],
)
async def test_a_malformed_filter_is_invalid_params(params: dict[str, Any]) -> None:
    assert (await error_of(server_with_all(), "subscriptions/listen", params))["code"] == -32602


# What is told


async def test_changes_that_were_asked_for_are_told_with_the_subscription_they_belong_to() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        await listen(channel, "s1", toolsListChanged=True, resourceSubscriptions=["a://1"])
        server.add_tool(other)
        message = await soon(channel.receive())
        assert message["method"] == "notifications/tools/list_changed"
        assert message["params"] == {"_meta": {SUBSCRIPTION: "s1"}}
        server.resource_updated("a://1")
        message = await soon(channel.receive())
        assert message["method"] == "notifications/resources/updated"
        assert message["params"] == {"_meta": {SUBSCRIPTION: "s1"}, "uri": "a://1"}


async def test_changes_that_were_not_asked_for_are_not_told() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        await listen(channel, promptsListChanged=True, resourceSubscriptions=["a://1"])
        server.add_tool(other)
        server.add_resource("a://3", other)
        server.resource_updated("a://2")
        server.add_prompt(other)
        assert (await soon(channel.receive()))["method"] == "notifications/prompts/list_changed"


async def test_removing_is_a_change_and_templates_belong_to_the_resources() -> None:
    server = server_with_all()

    async def template(x: str) -> str:
        return x

    async with server.connect() as channel:
        await listen(channel, toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True)
        for change, method in (
            (lambda: server.remove_tool("tool"), "notifications/tools/list_changed"),
            (lambda: server.remove_prompt("prompt"), "notifications/prompts/list_changed"),
            (lambda: server.add_resource("b://{x}", template), "notifications/resources/list_changed"),
            (lambda: server.remove_resource("b://{x}"), "notifications/resources/list_changed"),
        ):
            change()
            assert (await soon(channel.receive()))["method"] == method


async def test_every_subscription_hears_for_itself() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        await listen(channel, 1, toolsListChanged=True)
        await listen(channel, 2, toolsListChanged=True)
        await listen(channel, 3, promptsListChanged=True)
        server.add_tool(other)
        heard = [(await soon(channel.receive()))["params"]["_meta"][SUBSCRIPTION] for _ in range(2)]
        assert sorted(heard) == [1, 2]


async def test_a_subscription_that_is_cancelled_hears_no_more() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        await listen(channel, 1, toolsListChanged=True)
        await listen(channel, 2, toolsListChanged=True)
        await channel.send(notification("notifications/cancelled", {"requestId": 1}))
        async with asyncio.timeout(PATIENCE):
            while len(server._registry.hub._open) > 1:
                await asyncio.sleep(0)
        server.add_tool(other)
        assert (await soon(channel.receive()))["params"]["_meta"] == {SUBSCRIPTION: 2}


async def test_the_end_of_the_server_ends_a_subscription_with_a_result_after_what_is_pending() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        await listen(channel, 7, toolsListChanged=True)
        server.add_tool(other)
        server.asgi().endpoint.drain()
        assert (await soon(channel.receive()))["method"] == "notifications/tools/list_changed"
        response = await soon(channel.receive())
        assert response["id"] == 7
        assert response["result"]["resultType"] == "complete"
        assert response["result"]["_meta"][SUBSCRIPTION] == 7


async def test_a_server_that_drains_takes_no_new_subscriptions_until_it_starts_again() -> None:
    server = server_with_all()
    async with server.connect() as channel:
        server.asgi().endpoint.drain()
        await channel.send(request("subscriptions/listen", {"notifications": {}}))
        assert (await soon(channel.receive()))["error"]["code"] == -32603
    async with server.connect() as channel:
        assert await listen(channel, toolsListChanged=True) == {"toolsListChanged": True}


# The hub by itself

TOOLS = Change("notifications/tools/list_changed")
ALL = Filter(("toolsListChanged",), ("a://1", "a://2"))


async def drained(subscription: Subscription) -> list[Change]:
    async with asyncio.timeout(PATIENCE):
        return [change async for change in subscription]


async def test_changes_that_nobody_took_yet_are_told_once() -> None:
    hub = Hub()
    subscription = hub.open(ALL)
    for _ in range(1000):
        hub.list_publisher("toolsListChanged")()
        hub.resource_updated("a://1")
        hub.resource_updated("a://3")
    hub.drain()
    assert await drained(subscription) == [TOOLS, Change("notifications/resources/updated", "a://1")]


async def test_a_change_that_comes_while_the_last_one_is_being_told_is_told_again() -> None:
    hub = Hub()
    subscription = hub.open(ALL)
    told: list[Change] = []
    hub.list_publisher("toolsListChanged")()
    async with asyncio.timeout(PATIENCE):
        async for change in subscription:
            told.append(change)
            if len(told) == 1:
                for _ in range(5):
                    hub.list_publisher("toolsListChanged")()
                await asyncio.sleep(0)
            else:
                hub.drain()
    assert told == [TOOLS, TOOLS]


async def test_changes_may_be_told_from_any_thread() -> None:
    hub = Hub()
    subscription = hub.open(Filter(("toolsListChanged",), tuple(f"a://{n}" for n in range(50))))
    heard: set[str | None] = set()

    def publish(offset: int) -> None:
        for n in range(50):
            hub.resource_updated(f"a://{(n + offset) % 50}")
            hub.list_publisher("toolsListChanged")()

    async def hear() -> None:
        async for change in subscription:
            heard.add(change.uri)

    hearing = asyncio.create_task(hear())
    threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join(PATIENCE) for thread in threads])
    await asyncio.to_thread(hub.drain)
    await soon(hearing)
    assert heard == {None, *(f"a://{n}" for n in range(50))}


async def test_subscriptions_may_come_and_go_while_other_threads_publish() -> None:
    hub = Hub()
    stop = threading.Event()
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            while not stop.is_set():
                hub.resource_updated("a://1")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(300):
            opened = [hub.open(ALL) for _ in range(10)]
            await asyncio.sleep(0)
            for subscription in opened:
                hub.close(subscription)
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, PATIENCE)
    assert not failures


async def test_a_subscription_that_is_closed_is_forgotten() -> None:
    hub = Hub()
    subscription = hub.open(ALL)
    hub.close(subscription)
    hub.close(subscription)
    hub.resource_updated("a://1")
    assert not hub._open


async def test_there_is_a_most_of_open_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_room, "_MOST_SUBSCRIPTIONS", 3)
    hub = Hub()
    opened = [hub.open(ALL) for _ in range(3)]
    with pytest.raises(InternalError, match="Too many"):
        hub.open(ALL)
    hub.close(opened[0])
    hub.open(ALL)
