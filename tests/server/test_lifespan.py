import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from ekiden import Client, Context, Server
from ekiden.testing import ScriptedClient
from ekiden.transports.server.port import Endpoint
from ekiden.wire.jsonrpc import parse
from ekiden.wire.modern import accept
from tests.serving import PATIENCE, call_tool, request, soon


class Quiet:
    """A stream that nobody listens to."""

    can_notify = True

    async def notify(self, method: str, params: object) -> None:
        return None


class Recorder:
    """A server that notes when its lifespan is entered and left."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures_at_start = 0
        self.fails_at_stop = False
        self.server = Server("s", lifespan=self.lifespan)
        self.server.tool(self.state)

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncGenerator[str, None]:
        assert server is self.server
        self.log.append("start")
        await self.gate.wait()
        if self.failures_at_start:
            self.failures_at_start -= 1
            raise OSError("no database")
        try:
            yield f"state {self.log.count('start')}"
        finally:
            self.log.append("stop")
            if self.fails_at_stop:
                raise OSError("connection lost")

    async def state(self, ctx: Context[str]) -> str:
        return ctx.state

    @property
    def endpoint(self) -> Endpoint:
        return self.server.asgi().endpoint

    async def answer(self) -> str:
        """Answer as a transport would that never called `start`."""
        message = parse(json.dumps(request("tools/call", {"name": "state"})).encode())
        outcome = await self.endpoint.answer(accept(message, None, self.endpoint.methods), Quiet())
        rendered = json.loads(outcome.render(self.endpoint.dialect, 1))
        text: str = rendered["result"]["content"][0]["text"]
        return text


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


async def test_what_the_lifespan_yields_is_the_state_of_every_context(recorder: Recorder) -> None:
    assert (await call_tool(recorder.server, "state"))["content"][0]["text"] == "state 1"
    assert recorder.log == ["start", "stop"]


async def test_without_a_lifespan_the_state_is_none() -> None:
    server = Server("s")

    @server.tool
    async def state(ctx: Context) -> str:
        return repr(ctx.state)

    assert (await call_tool(server, "state"))["content"][0]["text"] == "None"


async def test_concurrent_first_requests_start_it_once_and_wait_for_it(recorder: Recorder) -> None:
    recorder.gate.clear()
    answers = [asyncio.create_task(recorder.answer()) for _ in range(20)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert recorder.log == ["start"]
    recorder.gate.set()
    assert set(await soon(asyncio.gather(*answers))) == {"state 1"}
    assert recorder.log == ["start"]
    await soon(recorder.endpoint.stop())
    assert recorder.log == ["start", "stop"]


async def test_starting_twice_is_harmless_and_so_is_stopping(recorder: Recorder) -> None:
    for _ in range(2):
        await soon(recorder.endpoint.start())
    for _ in range(2):
        await soon(recorder.endpoint.stop())
    assert recorder.log == ["start", "stop"]


async def test_a_server_can_be_started_again(recorder: Recorder) -> None:
    for n in (1, 2):
        assert (await call_tool(recorder.server, "state"))["content"][0]["text"] == f"state {n}"
    assert recorder.log == ["start", "stop", "start", "stop"]


async def test_an_error_at_the_start_is_raised_to_every_caller_and_the_next_start_tries_again(
    recorder: Recorder,
) -> None:
    recorder.failures_at_start = 1
    recorder.gate.clear()
    starts = [asyncio.create_task(recorder.endpoint.start()) for _ in range(3)]
    await asyncio.sleep(0)
    recorder.gate.set()
    failures = await soon(asyncio.gather(*starts, return_exceptions=True))
    assert [str(failure) for failure in failures] == ["no database"] * 3
    await soon(recorder.endpoint.start())
    assert await soon(recorder.answer()) == "state 2"
    await soon(recorder.endpoint.stop())
    assert recorder.log == ["start", "start", "stop"]


async def test_an_error_at_the_start_can_be_followed_by_a_stop(recorder: Recorder) -> None:
    recorder.failures_at_start = 1
    with pytest.raises(OSError, match="no database"):
        await soon(recorder.endpoint.start())
    await soon(recorder.endpoint.stop())


async def test_an_error_at_the_stop_is_raised_there(recorder: Recorder) -> None:
    recorder.fails_at_stop = True
    await soon(recorder.endpoint.start())
    with pytest.raises(OSError, match="connection lost"):
        await soon(recorder.endpoint.stop())


async def test_a_first_request_that_is_cancelled_does_not_take_the_start_with_it(recorder: Recorder) -> None:
    recorder.gate.clear()
    first, second = (asyncio.create_task(recorder.answer()) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await soon(asyncio.wait({first}))
    recorder.gate.set()
    assert await soon(second) == "state 1"
    assert recorder.log == ["start"]
    await soon(recorder.endpoint.stop())


async def test_it_is_entered_and_left_in_one_task_whoever_starts_and_stops() -> None:
    tasks: list[object] = []
    variable: ContextVar[int] = ContextVar("variable")

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        tasks.append(asyncio.current_task())
        token = variable.set(1)
        async with asyncio.TaskGroup() as group:
            background = group.create_task(asyncio.Event().wait())
            yield
            background.cancel()
        variable.reset(token)
        tasks.append(asyncio.current_task())

    endpoint = Server("s", lifespan=lifespan).asgi().endpoint
    async with asyncio.timeout(PATIENCE):
        await asyncio.create_task(endpoint.start())
        await asyncio.create_task(endpoint.stop())
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


async def test_running_is_the_lifespan_as_a_context_manager(recorder: Recorder) -> None:
    async with recorder.server.running():
        assert recorder.log == ["start"]
        assert await soon(recorder.answer()) == "state 1"
    assert recorder.log == ["start", "stop"]


async def test_the_lifespan_is_left_when_the_block_fails(recorder: Recorder) -> None:
    with pytest.raises(KeyError):
        async with recorder.server.running():
            raise KeyError
    assert recorder.log == ["start", "stop"]


async def test_two_who_use_a_server_share_its_lifespan_until_the_last_has_left(recorder: Recorder) -> None:
    async with recorder.server.running():
        async with recorder.server.connect() as first:
            async with Client(recorder.server) as client:
                assert str((await client.call_tool("state")).content).count("state 1")
            await first.send(request("tools/call", {"name": "state", "arguments": {}}))
            assert "state 1" in str(await soon(first.receive()))
        assert recorder.log == ["start"]
    assert recorder.log == ["start", "stop"]


async def test_a_client_in_the_same_process_starts_a_server_and_stops_it(recorder: Recorder) -> None:
    for n in (1, 2):
        async with Client(recorder.server) as client:
            assert f"state {n}" in str((await client.call_tool("state")).content)
    assert recorder.log == ["start", "stop", "start", "stop"]


async def test_who_uses_a_server_does_not_stop_it_for_who_serves_it(recorder: Recorder) -> None:
    await soon(recorder.endpoint.start())
    async with Client(recorder.server) as client:
        await client.call_tool("state")
    assert recorder.log == ["start"]
    await soon(recorder.endpoint.stop())
    assert recorder.log == ["start", "stop"]


async def test_a_start_while_it_is_in_use_does_not_outlive_its_users(recorder: Recorder) -> None:
    """As `ScriptedClient` does, which starts what is not running and stops nothing."""
    async with recorder.server.running():
        await ScriptedClient(recorder.server).call_tool("state")
    assert recorder.log == ["start", "stop"]
    await ScriptedClient(recorder.server).call_tool("state")
    assert recorder.log == ["start", "stop", "start"]
    await recorder.endpoint.stop()


async def test_a_failed_start_counts_no_user(recorder: Recorder) -> None:
    recorder.failures_at_start = 1
    with pytest.raises(OSError, match="no database"):
        async with recorder.server.connect():
            raise AssertionError("it did not start")
    async with recorder.server.connect():
        pass
    assert recorder.log == ["start", "start", "stop"]
