"""TLS handshakes count as connections, in either event loop."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.certificates import make_certificate
from tests.serving import PATIENCE, RawClient, Spawned, call, soon, spawned

_SOURCE = """
import os
import resource
import sys

sys.modules.update({hidden!r})

from ekiden import HttpLimits, Server
from ekiden.transports.server.http1 import crowd, handshakes

handshakes._HANDSHAKE_SECONDS = 600.0  # So that nobody leaves because of the time.
crowd._SPARED_SECONDS = 600.0
server = Server("safe", keys=[b"a key that is used for nothing else at all"])


@server.tool
async def loop() -> str:
    import asyncio

    return type(asyncio.get_running_loop()).__module__


@server.tool
async def squeeze() -> str:
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 5, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return "done"


server.run(port=int(sys.argv[1]), log_level="warning", grace=600, limits=HttpLimits({limits}), {tls})
"""

_HIDDEN: dict[str, dict[str, None]] = {"asyncio": {"uvloop": None}, "uvloop": {}}
_ATTACKER = "127.0.0.2"
_BYSTANDER = "127.0.0.3"


class _Served:
    """A server of TLS in a process of its own, and its clients."""

    def __init__(self, process: Spawned, certificate: Path) -> None:
        self.process = process
        self.address = ("127.0.0.1", urlsplit(process.base).port)
        self.context = ssl.create_default_context(cafile=str(certificate))

    @contextmanager
    def silent(self, count: int) -> Generator[list[socket.socket], None, None]:
        """Clients of the attacker that say nothing."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(socket.create_connection(self.address, PATIENCE, (_ATTACKER, 0)))
                for _ in range(count)
            ]

    @asynccontextmanager
    async def client(
        self, host: str = "127.0.0.1", sock: socket.socket | None = None
    ) -> AsyncGenerator[RawClient, None]:
        """A client that shakes hands."""
        sock = sock or socket.create_connection(self.address, PATIENCE, (host, 0))
        sock.setblocking(False)
        opening = asyncio.open_connection(sock=sock, ssl=self.context, server_hostname="127.0.0.1")
        client = RawClient(*await soon(opening))
        try:
            yield client
        finally:
            client.abort()


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def _serving(folder: Path, loop: str, limits: str) -> AsyncGenerator[_Served, None]:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    cert, key = make_certificate(folder)
    tls = f"tls_cert={str(cert)!r}, tls_key={str(key)!r}"
    async with spawned(_SOURCE.format(hidden=_HIDDEN[loop], limits=limits, tls=tls)) as process:
        yield _Served(process, cert)


async def _answer(client: RawClient, tool: str = "loop") -> tuple[int, str]:
    """The status of one call, and what it returns."""
    await client.send(call(tool))
    head = await client.read_until(b"\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    message = json.loads(await soon(client.reader.readexactly(length)))
    said = message["result"]["content"][0]["text"] if "result" in message else message["error"]["message"]
    return int(head.split()[1]), str(said)


async def test_the_oldest_silent_handshake_of_who_has_most_makes_room(
    tmp_path: Path, event_loop_name: str
) -> None:
    async with (
        _serving(tmp_path, event_loop_name, "connections=5") as server,
        server.client() as first,
    ):
        status, loop = await _answer(first)
        assert (status, loop.partition(".")[0]) == (200, event_loop_name)
        with server.silent(4) as silent:
            async with server.client(_BYSTANDER) as bystander:
                assert (await _answer(bystander))[0] == 200
                assert await asyncio.to_thread(silent[0].recv, 1) == b"", "the oldest is closed"
                async with server.client(sock=silent[-1]) as late:
                    assert (await _answer(late))[0] == 200, "the youngest may still shake hands"
                assert (await _answer(first))[0] == 200


async def test_further_handshakes_of_who_has_all_places_are_closed_at_once(
    tmp_path: Path, event_loop_name: str
) -> None:
    async with (
        _serving(tmp_path, event_loop_name, "connections=3") as server,
        server.client() as first,
    ):
        assert (await _answer(first))[0] == 200
        with server.silent(6) as silent:
            assert await asyncio.to_thread(silent[5].recv, 1) == b"", "two have places, three may be told"
            async with server.client(_BYSTANDER) as bystander:
                assert (await _answer(bystander))[0] == 200


async def test_silent_handshakes_count_for_the_cap_of_their_address(
    tmp_path: Path, event_loop_name: str
) -> None:
    async with _serving(tmp_path, event_loop_name, "connections_per_address=2") as server:
        with server.silent(2):
            async with server.client(_ATTACKER) as third, server.client(_BYSTANDER) as bystander:
                status, said = await _answer(third)
                assert (status, "from your address" in said) == (503, True), "it is told when it can be"
                assert (await _answer(bystander))[0] == 200


async def test_handshakes_that_fail_are_not_logged_and_a_shutdown_does_not_wait_for_them(
    tmp_path: Path, event_loop_name: str
) -> None:
    async with _serving(tmp_path, event_loop_name, "") as server, server.client() as client:
        with server.silent(3) as (silent, wrong, gone):
            wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.to_thread(wrong.recv, 100):
                    pass
            gone.close()
            assert (await _answer(client))[0] == 200
            await server.process.stop()
            assert await asyncio.to_thread(silent.recv, 1) == b""
    assert server.process.stderr == b""


async def test_a_server_without_file_descriptors_accepts_again_when_there_are_some(
    tmp_path: Path, event_loop_name: str
) -> None:
    async with _serving(tmp_path, event_loop_name, "connections=1000") as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.client())
        assert await _answer(client, "squeeze") == (200, "done")
        with server.silent(20):
            await soon(_said(server.process, b"cannot be accepted"))
        bystander = await stack.enter_async_context(server.client(_BYSTANDER))
        assert (await _answer(bystander))[0] == 200


async def _said(process: Spawned, words: bytes) -> None:
    assert process.process.stderr is not None
    while words not in await process.process.stderr.readline():
        pass
