"""What one client watches behind a gateway takes nothing from what others hear."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ekiden import Client, Server
from ekiden.errors import InvalidParams
from ekiden.gateway import Upstream
from ekiden.gateway.watched import chosen
from ekiden.server.legacy.watching import Watching
from ekiden.wire.principal import Principal
from tests.gateway.in_front import ERAS, KEYS, Era, in_front, until
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
