"""What one client watches behind a gateway takes nothing from what others hear."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ekiden import Client, Server, TaskHandle
from ekiden.client.sessions.session import ClientRequest, Hooks
from ekiden.errors import InvalidParams
from ekiden.gateway import Upstream, gateway, tasks
from ekiden.gateway.watched import Place, Places, chosen
from ekiden.server.legacy.watching import Watching
from ekiden.wire.principal import Principal
from tests.gateway.in_front import ERAS, KEYS, Era, elicit, in_front, until
from tests.gateway.upstreams import shop
from tests.serving import served, soon


def test_clients_take_turns() -> None:
    many = {f"a://{number:05}" for number in range(3000)}
    found = chosen({"greedy": many, "patient": {"z://1", "z://2"}, "": {"z://1"}})
    assert len(found) == 1000
    assert {"z://1", "z://2"} < set(found)
    assert list(found) == sorted(found)


def test_long_uris_leave_room_for_others() -> None:
    long = {f"a://{number:05}" + "x" * 2000 for number in range(100)}
    found = chosen({"greedy": long, "patient": {"z://1"}})
    assert "z://1" in found
    assert 40 < len(found) < 60
    assert sum(map(len, found)) < 128 * 1024


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("count", [1, 3])
async def test_one_client_with_many_resources_does_not_silence_the_gateway(era: Era, count: int) -> None:
    upstream = shop(keys=KEYS)
    async with served(upstream) as base, AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            in_front(Upstream(name="shop", target=f"{base}/mcp", mode=era))
        )
        for number in range(count):
            greedy = await stack.enter_async_context(Client(server))
            uris = tuple(f"shop+order://{number}-{each}-" + "x" * 1000 for each in range(100))
            stack.push_async_callback(_listening(greedy, uris))
        patient = await stack.enter_async_context(Client(server))
        stream = await _hears(patient, upstream, "config://app")
        upstream.add_tool(lambda: "late", name="late")
        assert (await soon(anext(stream)))["method"] == "notifications/tools/list_changed"
        await stream.aclose()


async def _hears(client: Client, upstream: Server, uri: str) -> AsyncGenerator[Any, None]:
    """Check that a client hears of a resource through the gateway. Returns what it listens to."""
    stream = client.listen(tools=True, uris=(f"shop+{uri}",))
    reading = asyncio.create_task(anext(stream))
    await until(lambda: uri in upstream.endpoint.registry.hub.watched())
    upstream.resource_updated(uri)
    assert (await soon(reading))["params"]["uri"] == f"shop+{uri}"
    return stream


def _listening(client: Client, uris: tuple[str, ...]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Listen, until what this returns is called."""
    stream = client.listen(uris=uris)
    reading = asyncio.ensure_future(anext(stream))

    async def stop() -> None:
        reading.cancel()
        await asyncio.wait({reading})
        await stream.aclose()

    return stop


async def test_a_resource_that_an_upstream_of_2025_refuses_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watching.watch

    def refusing(watching: Watching, uri: object, principal: Principal | None) -> str:
        if str(uri).endswith("a-bad-one"):
            raise InvalidParams("Unknown resource")
        return watch(watching, uri, principal)

    monkeypatch.setattr(Watching, "watch", refusing)
    upstream: Server = shop(keys=KEYS)
    async with served(upstream) as base, AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            in_front(Upstream(name="shop", target=f"{base}/mcp", mode="legacy"))
        )
        other = await stack.enter_async_context(Client(server))
        stack.push_async_callback(_listening(other, ("shop+order://a-bad-one",)))
        client = await stack.enter_async_context(Client(server))
        await (await _hears(client, upstream, "order://good")).aclose()


# Tasks


class _Watch:
    """Something that wants a place."""

    def __init__(self, principal: str) -> None:
        self.is_watched = False
        self.place = Place(principal, lambda: self._set(True), lambda: self._set(False))

    def _set(self, value: bool) -> None:
        assert self.is_watched != value
        self.is_watched = value


def test_whoever_has_most_gives_up_a_place_and_gets_it_back() -> None:
    places = Places(4)
    greedy, patient = [_Watch("greedy") for _ in range(6)], [_Watch("patient") for _ in range(3)]
    for watch in greedy:
        places.enter(watch.place)
    assert [watch.is_watched for watch in greedy] == [True] * 4 + [False] * 2
    assert (places.room_for("greedy"), places.room_for("patient")) == (0, 2)
    for watch in patient:
        places.enter(watch.place)
    assert [watch.is_watched for watch in greedy] == [True] * 2 + [False] * 4
    assert [watch.is_watched for watch in patient] == [True, True, False]
    places.leave(greedy[5].place)
    places.leave(patient[0].place)
    assert [watch.is_watched for watch in patient] == [False, True, True]
    for watch in patient[1:]:
        places.leave(watch.place)
    assert [watch.is_watched for watch in greedy] == [True] * 4 + [False] * 2
    places.leave(greedy[0].place)
    assert [watch.is_watched for watch in greedy] == [False, True, True, True, True, False]
    for watch in greedy[1:5]:
        places.leave(watch.place)
    assert places.room_for("anybody") == 4


class _Listening:
    """A subscription to tasks, and what it hears."""

    def __init__(self, client: Client, ids: list[str]) -> None:
        self.granted: list[str] | None = None
        self.heard: set[str] = set()
        sent = ClientRequest("subscriptions/listen", {"notifications": {"taskIds": ids}})
        sent.hooks = Hooks(notification=self._notified)
        self._running = asyncio.create_task(client._connection.exchange(sent))

    def _notified(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/tasks":
            self.heard.add(message["params"]["taskId"])
        else:
            self.granted = message["params"]["notifications"].get("taskIds", [])

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})


async def test_tasks_that_one_principal_watches_keep_nobody_else_from_watching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_MOST_WATCHED", 4)
    who = ["mallory"]
    async with served(shop(keys=KEYS, store="memory:")) as base, AsyncExitStack() as stack:
        server = gateway([Upstream(name="shop", target=f"{base}/mcp")], keys=KEYS, principal=lambda _: who[0])
        client = await stack.enter_async_context(Client(server, elicit=elicit))
        many = [await _task(client) for _ in range(6)]
        greedy = _Listening(client, many)
        stack.push_async_callback(greedy.stop)
        await until(lambda: len(greedy.heard) == 4)
        assert greedy.granted == many[:4]  # What is not granted is not acknowledged.
        none = _Listening(client, many)
        await until(lambda: none.granted is not None)
        assert none.granted == []
        who[0] = "alice"
        hers = [await _task(client) for _ in range(3)]
        patient = _Listening(client, hers)
        await until(lambda: patient.heard == set(hers[:2]))
        assert patient.granted == hers[:2]
        await greedy.stop()
        await none.stop()
        all_of_hers = _Listening(client, hers)
        stack.push_async_callback(all_of_hers.stop)
        await until(lambda: all_of_hers.granted is not None)
        assert all_of_hers.granted == hers[:2]  # As many as there are free places.
        await patient.stop()


async def _task(client: Client) -> str:
    handle = await client.start_tool("shop_audit")
    assert isinstance(handle, TaskHandle)
    return handle.id
