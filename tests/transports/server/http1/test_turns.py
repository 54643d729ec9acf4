"""Who is read next, where requests come at the same moment on many connections."""

import asyncio
import itertools
import time
from typing import Any

import pytest

from ekiden import Server
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.connections import Connections
from ekiden.transports.server.http1.turns import RequestTurns
from tests.passes import Passes
from tests.serving import PATIENCE, call
from tests.transports.server.http1.test_connection import _post


class _Guest:
    def __init__(self, name: str, network: str, read: list[str]) -> None:
        self.network: str | None = network
        self._name, self._read = name, read

    def take_turn(self) -> None:
        self._read.append(self._name)


async def _until(read: list[str], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(read) < count:
            await asyncio.sleep(0)


async def test_of_one_client_the_last_the_first_and_one_that_is_behind_another_take_turns() -> None:
    turns, read, loop = RequestTurns(), list[str](), asyncio.get_running_loop()
    for name in ("a", "b", "c", "d"):
        turns.wait(_Guest(name, "10.0.0.1", read), loop, behind=False)
    for name in ("x", "y"):
        turns.wait(_Guest(name, "10.0.0.1", read), loop, behind=True)
    assert not turns.left
    await _until(read, 6)
    assert read == ["d", "a", "x", "c", "b", "y"]
    assert turns.left


async def test_clients_take_turns() -> None:
    turns, read, loop = RequestTurns(), list[str](), asyncio.get_running_loop()
    for number in range(100):
        turns.wait(_Guest(f"flood {number}", "10.0.0.1", read), loop, behind=False)
    turns.wait(_Guest("other", "10.0.0.2", read), loop, behind=False)
    await _until(read, 101)
    assert read.index("other") == 1


async def test_after_a_pass_that_was_long_fewer_have_a_turn_and_others_have_some_passes() -> None:
    turns, read, loop = RequestTurns(), list[str](), asyncio.get_running_loop()

    class Slow(_Guest):
        def take_turn(self) -> None:
            super().take_turn()
            loop.call_soon(time.sleep, 0.03)  # What it begins takes long.

    for number in range(40):
        turns.wait(Slow(str(number), "10.0.0.1", read), loop, behind=False)
    begun = [0]
    with (passes := Passes()).counted():
        while len(read) < 40:
            await asyncio.sleep(0)
            if len(read) > begun[-1]:
                begun.append(len(read))
    steps = [after - before for before, after in itertools.pairwise(begun)]
    assert steps[0] <= 16
    assert steps == sorted(steps, reverse=True)
    assert passes.count >= 8 * (len(steps) - 1)


class _Transport:
    """A client's side that takes everything."""

    def __init__(self, address: str, answered: list[str], name: str) -> None:
        self._address, self._answered, self._name = address, answered, name
        self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 1) if name == "peername" else default

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 200 ")
        self._answered.append(self._name)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


class _State:
    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[Any] = set()
        self.total_requests = 0
        self.default_headers: list[tuple[bytes, bytes]] = []


class _Config:
    timeout_keep_alive = 75


class _Served:
    """Connections without sockets, and the order in which requests on them are answered."""

    def __init__(self, application: StreamableHTTP) -> None:
        self.answered: list[str] = []
        self._make = Connections(application)
        self._state = _State()

    def connect(self, name: str, address: str = "127.0.0.1") -> Connection:
        config: Any = _Config
        state: Any = self._state
        connection = self._make(config, state, {}, asyncio.get_running_loop())
        transport: Any = _Transport(address, self.answered, name)
        connection.connection_made(transport)
        return connection

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.answered) < count:
                await asyncio.sleep(0)


def _application(server: Server) -> StreamableHTTP:
    application = server.asgi()
    assert isinstance(application, StreamableHTTP)
    return application


@pytest.fixture
def server() -> Server:
    server = Server("turns", version="1")

    @server.tool
    async def ping() -> str:
        """Answer."""
        return "pong"

    return server


@pytest.mark.parametrize("pipelined", [1, 16])
async def test_who_calls_in_the_midst_of_a_flood_from_the_same_address_is_answered_soon(
    server: Server, pipelined: int
) -> None:
    application, flood = _application(server), 1000 if pipelined == 1 else 200
    async with application.endpoint.in_use():
        served = _Served(application)
        crowd = [served.connect("flood") for _ in range(flood)]
        innocent, data = served.connect("innocent"), _post(call("ping"))
        for connection in crowd:
            connection.data_received(data * pipelined)
        await served.until(1)
        innocent.data_received(data)
        with (passes := Passes()).counted():
            async with asyncio.timeout(PATIENCE):
                while "innocent" not in served.answered:
                    await asyncio.sleep(0)
        assert served.answered.index("innocent") < flood // 2
        assert passes.count < 60
        await served.until(flood * pipelined + 1)


async def test_requests_behind_another_one_count_from_the_second_on_with_what_they_take(
    server: Server,
) -> None:
    free = asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        await free.wait()
        return "free"

    application = _application(server)
    async with application.endpoint.in_use():
        served, held = _Served(application), []
        connection = served.connect("behind")
        for message in (call("wait"), *[call("ping")] * 3):
            connection.data_received(_post(message))
            held.append(application.bodies.of("127.0.0.1"))
        assert held[:2] == [0, 0]
        assert held[2] > 2048 + len(_post(call("ping")))
        assert held[3] == 2 * held[2]
        free.set()
        await served.until(4)
        assert application.bodies.of("127.0.0.1") == 0


async def test_a_small_request_that_waits_for_its_turn_takes_nothing_of_the_budget(server: Server) -> None:
    application = _application(server)
    async with application.endpoint.in_use():
        served, data = _Served(application), _post(call("ping"))
        crowd = [served.connect("small") for _ in range(80)]
        for connection in crowd:
            connection.data_received(data)
        assert application.bodies.of("127.0.0.1") == 0
        large = served.connect("large")
        large.data_received(data * 20)
        assert application.bodies.of("127.0.0.1") == 20 * len(data)
        await served.until(100)
        assert application.bodies.of("127.0.0.1") == 0
