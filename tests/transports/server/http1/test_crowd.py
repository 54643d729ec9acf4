"""Caps on open connections."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ekiden import HttpLimits, Server
from ekiden.transports.server.http1.crowd import Crowd
from ekiden.transports.server.proxies import network_of
from tests.serving import PATIENCE, call, headers_for, post, served

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def adder() -> Server:
    server = Server("adder", keys=[b"k" * 32])

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def connect(base: str, host: str = "127.0.0.1") -> Connection:
    return await asyncio.open_connection("127.0.0.1", urlsplit(base).port, local_addr=(host, 0))


@asynccontextmanager
async def connected(base: str, count: int) -> AsyncGenerator[list[Connection], None]:
    """Connections that send nothing."""
    made = [await connect(base) for _ in range(count)]
    try:
        yield made
    finally:
        for _, writer in made:
            writer.close()


async def answer(connection: Connection) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await connection[0].read()


async def test_one_connection_too_many_is_answered_with_503_before_it_sends_anything() -> None:
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(adder(), limits=HttpLimits(connections=3)) as base,
        connected(base, 3),
    ):
        refused = await post(base, call("add", {"a": 1, "b": 2}))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "Too many connections" in refused.json()["error"]["message"]
        silent = await connect(base)
        said = await answer(silent)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in said
        silent[1].close()


async def test_a_connection_that_is_closed_makes_room() -> None:
    async with asyncio.timeout(2 * PATIENCE), served(adder(), limits=HttpLimits(connections=2)) as base:
        async with connected(base, 2):
            assert (await post(base, call("add", {"a": 1, "b": 2}))).status_code == 503
        status = 503
        while status == 503:  # The server hears of it in its own time.
            status = (await post(base, call("add", {"a": 1, "b": 2}))).status_code
        assert status == 200


async def test_open_connections_are_served_while_others_are_turned_away() -> None:
    message = call("add", {"a": 1, "b": 2})
    body = str(message).replace("'", '"').encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers_for(message).items())
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(adder(), limits=HttpLimits(connections=1)) as base,
        connected(base, 1) as ((reader, writer),),
    ):
        assert (await post(base, message)).status_code == 503
        writer.write(
            f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {len(body)}\r\n\r\n".encode()
        )
        writer.write(body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_an_address_has_a_cap_of_its_own() -> None:
    limits = HttpLimits(connections_per_address=2)
    async with asyncio.timeout(2 * PATIENCE), served(adder(), limits=limits) as base, connected(base, 2):
        refused = await connect(base)
        assert b"from your address" in await answer(refused)
        refused[1].close()
        other_reader, other = await connect(base, "127.0.0.2")
        other.write(b"GET /mcp HTTP/1.0\r\nhost: localhost\r\n\r\n")
        assert (await other_reader.readline()).startswith(b"HTTP/1.1 405 ")
        other.close()


async def test_whoever_opens_more_and_more_gets_no_answer_and_no_memory() -> None:
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(adder(), limits=HttpLimits(connections=2)) as base,
        connected(base, 2),
        contextlib.AsyncExitStack() as stack,
    ):
        cut = 0
        for _ in range(20):
            reader, writer = await connect(base)
            stack.callback(writer.close)
            try:
                cut += not await reader.read(1)
            except ConnectionResetError:
                cut += 1
        assert cut >= 10, "at most two of them are told at a time"


async def test_no_cap_is_the_default() -> None:
    async with asyncio.timeout(2 * PATIENCE), served(adder()) as base, connected(base, 50):
        assert (await post(base, call("add", {"a": 1, "b": 2}))).status_code == 200


class _Guest:
    """A connection from an address."""

    def __init__(self, address: str) -> None:
        self.network: str | None = network_of(address)
        self.was_turned_away = False

    def turn_away(self, reason: str) -> None:
        self.was_turned_away = True

    def look(self, now: float) -> None:
        pass


async def test_all_addresses_of_one_ipv6_network_have_one_cap() -> None:
    crowd = Crowd(1.0, None, 2)
    guests = [_Guest(address) for address in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")]
    for guest in guests:
        crowd.add(guest, asyncio.get_running_loop())
    assert [guest.was_turned_away for guest in guests] == [False, False, True, False]
    for guest in guests:
        crowd.discard(guest)


class _Waiting(_Guest):
    """One that waits for its client since a moment, or answers it."""

    def __init__(self, address: str, since: float | None) -> None:
        super().__init__(address)
        self.waits_since = since
        self.made_room = False

    def make_room(self) -> None:
        self.made_room = True


async def _newcomer_at(address: str, *guests: _Waiting) -> _Waiting:
    """Somebody who comes to a crowd that is full."""
    crowd, loop = Crowd(1.0, len(guests), None), asyncio.get_running_loop()
    newcomer = _Waiting(address, None)
    for guest in (*guests, newcomer):
        crowd.add(guest, loop)
    for guest in (*guests, newcomer):
        crowd.discard(guest)
    return newcomer


async def test_of_one_address_whoever_has_waited_longest_makes_room_if_that_was_some_seconds() -> None:
    now = asyncio.get_running_loop().time()
    guests = [_Waiting("10.0.0.1", now - ago) for ago in (1.0, 6.0, 7.0)]
    assert not (await _newcomer_at("10.0.0.1", *guests)).was_turned_away
    assert [guest.made_room for guest in guests] == [False, False, True]
    together = [_Waiting("10.0.0.1", now - 7.0) for _ in range(3)]
    assert not (await _newcomer_at("10.0.0.1", *together)).was_turned_away
    assert [guest.made_room for guest in together] == [True, False, False], "it was there before the others"
    fresh = [_Waiting("10.0.0.1", now - 1.0) for _ in range(3)]
    assert (await _newcomer_at("10.0.0.1", *fresh)).was_turned_away
    assert not any(guest.made_room for guest in fresh)


async def test_whoever_has_more_makes_room_for_who_has_less() -> None:
    now = asyncio.get_running_loop().time()
    guests = [_Waiting("10.0.0.2", now - 4.0), *(_Waiting("10.0.0.1", now - ago) for ago in (1.0, 2.0))]
    assert not (await _newcomer_at("10.0.0.3", *guests)).was_turned_away
    assert [guest.made_room for guest in guests] == [False, False, True]


async def test_whoever_is_answered_makes_no_room() -> None:
    guests = [_Waiting("10.0.0.1", None) for _ in range(3)]
    assert (await _newcomer_at("10.0.0.2", *guests)).was_turned_away
    assert not any(guest.made_room for guest in guests)


class _Worker(_Waiting):
    """Another worker, which hands a request on: its connection has no address."""

    def __init__(self) -> None:
        super().__init__("", None)
        self.network = None


async def test_requests_that_workers_hand_on_to_each_other_take_descriptors_too() -> None:
    crowd, loop = Crowd(1.0, 4, None), asyncio.get_running_loop()
    client, workers = _Waiting("192.0.2.1", None), [_Worker() for _ in range(3)]
    crowd.add(client, loop)
    assert crowd.hand_on("192.0.2.1", loop.time())
    for worker in workers:
        crowd.add(worker, loop)
    assert [each.was_turned_away for each in (client, *workers)] == [False, False, False, True]
    assert not crowd.hand_on("192.0.2.1", loop.time())
    crowd.handed_on()
    assert crowd.hand_on("192.0.2.1", loop.time())
    crowd.discard(workers[0])
    another = _Waiting("192.0.2.2", None)
    crowd.add(another, loop)
    assert not another.was_turned_away
    for each in (client, another, *workers):
        crowd.discard(each)


async def test_a_connection_that_waits_makes_room_for_a_request_that_is_handed_on() -> None:
    crowd, loop = Crowd(1.0, 2, None), asyncio.get_running_loop()
    idle = [_Waiting("192.0.2.1", loop.time() - ago) for ago in (60.0, 30.0)]
    for guest in idle:
        crowd.add(guest, loop)
    assert crowd.hand_on("192.0.2.2", loop.time())
    assert [guest.made_room for guest in idle] == [True, False]
    for guest in idle:
        crowd.discard(guest)
