"""Servers that are broken or mean, over stdio: programs that print rubbish, end, or do not."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import psutil
import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import CallTimeout, Client, ClientLimits, InvalidResult, TransportError
from ekiden.client.sessions import starting
from ekiden.transports.client import process
from tests.serving import PATIENCE, soon

SERVER = """
import json, os, signal, sys, time

def say(text):
    sys.stdout.buffer.write(text if isinstance(text, bytes) else text.encode())
    sys.stdout.flush()

def send(message):
    say(json.dumps({"jsonrpc": "2.0", **message}) + chr(10))

def answer(message, result):
    send({"id": message["id"], "result": result})

BEFORE
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "server/discover":
        answer(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
    elif message.get("params", {}).get("name") == "honest":
        answer(message, {"content": []})
    else:
        DEED
AFTER
"""

FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


def server(deed: str = "pass", before: str = "", after: str = "") -> list[str]:
    """The command of a server that is honest but for what it is told to do."""
    source = SERVER.replace("BEFORE", before).replace("AFTER", after)
    return [sys.executable, "-c", source.replace("DEED", deed.replace("\n", "\n        "))]


def client_of(command: list[str], **options: Any) -> Client:
    limits = ClientLimits(message_bytes=1_000_000)
    return Client(command, limits=limits, **{"timeout": PATIENCE, **options})


Children: TypeAlias = Callable[[], list[psutil.Process]]


@pytest.fixture
def new_children() -> Children:
    """The processes below this one that the test started: not the database that other tests share."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [each for each in psutil.Process().children(recursive=True) if each not in before]


ENDINGS = {
    "a line without end": ("while True: say('x' * 65536)", "a line of more than 1000000 bytes"),
    "rubbish without end": ("while True: say('hello' + chr(10))", "something else than MCP messages"),
    "empty lines without end": ("while True: say(chr(10) * 999)", "something else than MCP messages"),
    "binary rubbish without end": ("while True: say(os.urandom(999) + b'\\n')", "something else than MCP"),
    "it ends": ("sys.exit(3)", "ended with exit code 3"),
    "it is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "ended with exit code -9"),
    "half a message, then the end": ("say('{'); sys.exit(0)", "ended with exit code 0"),
    "it closes its output": ("os.close(1); time.sleep(3600)", "The server process has ended"),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_server_that_is_none_is_a_clear_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.5)
    deed, words = ENDINGS[name]
    async with client_of(server(deed)) as client:
        with pytest.raises(TransportError, match=words) as caught:
            await client.call_tool("deed")
        assert not isinstance(caught.value, CallTimeout)
        with pytest.raises(TransportError):
            await client.call_tool("honest")


BROKEN = {
    "parameters that are a list": 'send({"method": "notifications/progress", "params": [1]})',
    "meta that is a list": 'send({"method": "notifications/progress", "params": {"_meta": [1]}})',
    "a token that is a list": 'send({"method": "notifications/progress", "params": {"progressToken": [1]}})',
    "a method that is a number": 'send({"method": 5})',
    "no JSON": 'say("hello" + chr(10))',
    "no UTF-8": "say(bytes([255, 10]))",
    "a batch": "say('[]' + chr(10))",
    "an answer to nobody": 'send({"id": 99, "result": {}})',
    "a truth for an id": 'send({"id": True, "result": {"content": "x"}})',
    "a list for an id": 'send({"id": [1], "result": {}})',
    "an error for nobody": 'send({"id": None, "error": {"code": -32700, "message": "?"}})',
    "a thousand brackets": "say('[' * 1000 + chr(10))",
    "a number without end": "say('9' * 900000 + chr(10))",
    "a change of what was never listed": 'send({"method": "notifications/tools/list_changed"})',
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_line_that_is_no_message_harms_no_call(name: str) -> None:
    deed = f'{BROKEN[name]}\nanswer(message, {{"content": [{{"type": "text", "text": "done"}}]}})'
    async with client_of(server(deed)) as client:
        result = await client.call_tool("deed")
        assert [getattr(block, "text", None) for block in result.content] == ["done"]
        assert (await client.call_tool("honest")).content == []


async def test_an_answer_twice_counts_once() -> None:
    async with client_of(
        server('answer(message, {"content": []}); answer(message, {"content": "x"})')
    ) as client:
        assert (await client.call_tool("deed")).content == []
        assert (await client.call_tool("honest")).content == []


async def test_a_question_that_is_pushed_on_the_modern_wire_is_a_clear_error() -> None:
    async def agree(params: ElicitRequestFormParams) -> ElicitResult:
        raise AssertionError("a modern server must not ask so")

    deed = f'send({{"id": 1, "method": "elicitation/create", "params": {FORM!r}}})'
    async with client_of(server(deed), elicit=agree) as client:
        with pytest.raises(TransportError, match="must not send requests, but sent elicitation/create"):
            await client.call_tool("deed")
        assert (await client.call_tool("honest")).content == []


async def test_a_result_that_is_none_is_a_clear_error() -> None:
    async with client_of(server('answer(message, {"resultType": "maybe"})')) as client:
        with pytest.raises(InvalidResult, match="unknown type: 'maybe'"):
            await client.call_tool("deed")


async def test_a_callback_that_fails_fails_its_call_only() -> None:
    deed = (
        'token = message["params"]["_meta"]["progressToken"]\n'
        'send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})'
    )

    def fail(*_: object) -> None:
        raise LookupError("the bar is gone")

    async with client_of(server(deed)) as client:
        with pytest.raises(LookupError, match="the bar is gone"):
            await client.call_tool("deed", progress=fail)
        assert (await client.call_tool("honest")).content == []


@pytest.mark.parametrize("before", ["sys.exit('no config')", "while True: say('hello' + chr(10))"])
async def test_a_program_that_never_was_a_server_is_told_at_once(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen. Whoever waits for an answer here waits for longer than the test does."""
    monkeypatch.setattr(starting, "_PROBE_SECONDS", 3600.0)
    with pytest.raises(TransportError):
        await soon(client_of(server(before=before)).__aenter__())


async def test_a_program_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(TransportError, match="Cannot start 'no-such-program'"):
        await client_of(["no-such-program"]).__aenter__()


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


@pytest.mark.parametrize(
    ("after", "warned"), [("", 0), ("time.sleep(3600)", 1), (STUBBORN, 2)], ids=["good", "slow", "stubborn"]
)
async def test_a_server_is_ended_gently_then_firmly_then_by_force(
    after: str,
    warned: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    new_children: Children,
) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 1.0 if warned else PATIENCE)
    async with client_of(server(after=after)) as client:
        (child,) = new_children()
        assert (await client.call_tool("honest")).content == []
    assert not child.is_running()
    stops = [record.getMessage() for record in caplog.records if "does not end" in record.getMessage()]
    assert (
        stops
        == [f"The server process does not end; it gets a {name}" for name in ("SIGTERM", "SIGKILL")][:warned]
    )


async def test_a_server_is_not_left_behind_by_who_cannot_wait_for_its_end(new_children: Children) -> None:
    client = client_of(server(after=STUBBORN))
    await client.__aenter__()
    (child,) = new_children()
    leaving = asyncio.create_task(client.__aexit__(None, None, None))
    await asyncio.sleep(0.1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert not child.is_running()  # Nor is its transport: what the collector finds open fails this test.
    del client, leaving
    gc.collect()


async def test_what_a_server_started_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, new_children: Children
) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 1.0)
    before = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])"
    async with client_of(server(before=before, after="time.sleep(3600)")) as client:
        assert (await client.call_tool("honest")).content == []
        family = new_children()
        assert len(family) == 2
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []


async def test_many_servers_come_and_go_without_a_trace(new_children: Children) -> None:
    """Each ends by itself while it is being closed: the race for its exit code is the point."""
    for _ in range(10):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(client_of(server()))
    await asyncio.sleep(0)
    assert new_children() == []
