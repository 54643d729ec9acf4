"""stdio against a real subprocess and real pipes."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests import warm
from tests.serving import PATIENCE, call, notification, request, soon

SERVER = """
import asyncio, os, subprocess, sys
from ekiden import Context, Server

stdout_of_old = sys.stdout
server = Server("child")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def noise(how: str) -> str:
    if how == "print":
        print("NOISE")
    elif how == "stdout":
        sys.stdout.write("NOISE")
        sys.stdout.flush()
    elif how == "kept":
        stdout_of_old.write("NOISE\\n")
    elif how == "__stdout__":
        print("NOISE", file=sys.__stdout__)
    elif how == "os.write":
        os.write(1, b"NOISE\\n")
    elif how == "child":
        subprocess.run([sys.executable, "-c", "print('NOISE')"], check=True)
    elif how == "shell":
        os.system("echo NOISE")
    return "quiet"

@server.tool
def blocking_noise() -> str:
    print("NOISE")
    return "quiet"

@server.tool
async def hold(ctx: Context) -> str:
    try:
        await ctx.progress(1)
        await asyncio.Event().wait()
    finally:
        print("hold ended", file=sys.stderr, flush=True)
    return "never"

@server.tool
async def finish(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(0.3)
    return "finished"

@server.tool
async def large(size: int) -> str:
    return "x" * size

server.run("stdio", grace=float(sys.argv[1]))
"""


class Child:
    """A server on the other end of three pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def send(self, message: dict[str, Any] | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.stdin.write(line + b"\n")
        await soon(self.stdin.drain())

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await soon(self.stdout.readline()))
        return message

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        await self.send(message)
        return await self.receive()

    async def finish(self) -> tuple[int, bytes, str]:
        """Close its input; its return code, the rest of its output, and its log."""
        self.stdin.close()
        rest, log = await soon(asyncio.gather(self.stdout.read(), self.stderr.read()))
        return await soon(self.process.wait()), rest, log.decode()


@asynccontextmanager
async def child(grace: float = 5.0, *, forked: bool = True) -> AsyncGenerator[Child, None]:
    """One that is not forked has the standard streams with which Python starts, and their buffers."""
    words = ("-c", SERVER, str(grace))
    process = await asyncio.create_subprocess_exec(
        *(warm.command(*words) if forked else [sys.executable, *words]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**24,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    try:
        yield Child(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_message_per_line_is_answered_with_a_message_per_line() -> None:
    async with child(forked=False) as server:
        response = await server.ask(call("echo", {"text": "two\nlines"}, request_id="a"))
        assert response["id"] == "a"
        assert response["result"]["content"][0]["text"] == "two\nlines"
        assert (await server.ask(request("tools/list", request_id=2)))["id"] == 2
        assert await server.finish() == (0, b"", "")


async def test_what_handlers_print_goes_to_stderr_and_never_to_the_client() -> None:
    ways = ["print", "stdout", "os.write", "child", "shell"]
    async with child(forked=False) as server:
        for how in ways:
            response = await server.ask(call("noise", {"how": how}))
            assert response["result"]["content"][0]["text"] == "quiet"
        await server.ask(call("blocking_noise"))
        code, rest, log = await server.finish()
    assert (code, rest) == (0, b"")
    assert log.count("NOISE") == len(ways) + 1


@pytest.mark.parametrize("how", ["kept", "__stdout__"])
async def test_what_is_left_in_the_buffer_of_the_real_stdout_never_reaches_the_client(how: str) -> None:
    async with child(forked=False) as server:
        await server.ask(call("noise", {"how": how}))
        code, rest, log = await server.finish()
    assert (code, rest) == (0, b"")
    assert "NOISE" in log


async def test_a_line_that_is_no_json_is_answered_and_the_next_one_served() -> None:
    async with child() as server:
        for line in (b"{", b"\xff\xfe", b"nonsense", b'{"jsonrpc":"2.0",'):
            await server.send(line)
            response = await server.receive()
            assert response["error"]["code"] == -32700
            assert "id" not in response
        assert (await server.ask(call("echo", {"text": "x"})))["id"] == 1


async def test_a_line_that_is_too_long_is_answered_and_the_next_one_served() -> None:
    async with child() as server:
        too_long = asyncio.create_task(server.send(b'{"x":"' + b"x" * (5 * 1024 * 1024) + b'"}'))
        response = await server.receive()
        await soon(too_long)
        assert response["error"]["code"] == -32700
        assert "too long" in response["error"]["message"]
        assert (await server.ask(call("echo", {"text": "x"})))["id"] == 1


async def test_a_long_line_within_the_limit_is_served() -> None:
    async with child() as server:
        text = "x" * (3 * 1024 * 1024)
        sending = asyncio.create_task(server.send(call("echo", {"text": text})))
        response = await server.receive()
        await soon(sending)
        assert response["result"]["content"][0]["text"] == text


async def test_empty_lines_are_ignored_and_carriage_returns_are_fine() -> None:
    async with child() as server:
        for line in (b"", b"   ", b"\r"):
            await server.send(line)
        await server.send(json.dumps(call("echo", {"text": "x"})).encode() + b"\r")
        assert (await server.receive())["id"] == 1


async def test_a_last_line_without_a_newline_is_answered() -> None:
    async with child() as server:
        server.stdin.write(json.dumps(call("echo", {"text": "x"})).encode())
        code, rest, _ = await server.finish()
    assert code == 0
    assert json.loads(rest)["id"] == 1


async def test_a_call_that_is_cancelled_ends_without_an_answer() -> None:
    async with child() as server:
        await server.send(call("hold", request_id=1, progressToken="t"))
        assert (await server.receive())["method"] == "notifications/progress"
        await server.send(notification("notifications/cancelled", {"requestId": 1}))
        assert await soon(server.stderr.readline()) == b"hold ended\n"
        assert (await server.ask(call("echo", {"text": "x"}, request_id=2)))["id"] == 2
        code, rest, _ = await server.finish()
    assert (code, rest) == (0, b"")


async def test_a_call_and_its_cancellation_in_one_write_leave_nothing_behind() -> None:
    async with child() as server:
        await server.ask(call("echo", {"text": "warm"}, request_id=0))
        lines = [
            call("hold", request_id=1),
            notification("notifications/cancelled", {"requestId": 1}),
            call("echo", {"text": "x"}, request_id=2),
        ]
        await server.send(b"\n".join(json.dumps(line).encode() for line in lines))
        assert (await server.receive())["id"] == 2
        response = await server.ask(call("echo", {"text": "again"}, request_id=1))
        assert "result" in response, response


async def test_an_id_in_use_is_refused() -> None:
    async with child() as server:
        await server.send(call("hold", request_id=1, progressToken="t"))
        await server.receive()
        response = await server.ask(call("echo", {"text": "x"}, request_id=1))
        assert (response["id"], response["error"]["code"]) == (1, -32600)


async def test_the_end_of_input_lets_a_running_call_finish_and_ends_the_process() -> None:
    async with child() as server:
        await server.send(call("finish", request_id=1, progressToken="t"))
        assert (await server.receive())["method"] == "notifications/progress"
        code, rest, _ = await server.finish()
    assert code == 0
    assert json.loads(rest)["result"]["content"][0]["text"] == "finished"


async def test_the_end_of_input_cancels_a_call_that_takes_longer_than_the_grace_period() -> None:
    async with child(grace=0.1) as server:
        await server.send(call("hold", progressToken="t"))
        await server.receive()
        code, rest, log = await server.finish()
    assert (code, rest) == (0, b"")
    assert "hold ended" in log


async def test_the_end_of_input_ends_a_subscription_with_a_result() -> None:
    async with child() as server:
        await server.send(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        assert (await server.receive())["method"] == "notifications/subscriptions/acknowledged"
        code, rest, _ = await server.finish()
    assert code == 0
    responses = [message for line in rest.splitlines() if "id" in (message := json.loads(line))]
    assert [response["result"]["resultType"] for response in responses] == ["complete"]


async def test_the_end_of_input_before_the_first_message_ends_the_process() -> None:
    async with child(forked=False) as server:
        assert await server.finish() == (0, b"", "")


async def test_a_client_that_reads_nothing_for_a_while_loses_nothing() -> None:
    async with child() as server:
        for n in range(20):
            await server.send(call("large", {"size": 300_000}, request_id=n))
        ids = [(await server.receive())["id"] for _ in range(20)]
        assert sorted(ids) == list(range(20))


async def test_a_client_that_no_longer_reads_does_not_make_the_log_fill_with_traces() -> None:
    async with child(forked=False) as server:
        await server.send(call("finish", request_id=1, progressToken="t"))
        await server.receive()
        server.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        server.stdin.close()
        log = (await soon(server.stderr.read())).decode()
        await soon(server.process.wait())
    assert "Traceback" not in log


async def test_an_interrupt_ends_the_process_quietly() -> None:
    async with child(forked=False) as server:
        await server.ask(call("echo", {"text": "x"}))
        server.process.send_signal(signal.SIGINT)
        log = (await soon(server.stderr.read())).decode()
        assert await soon(server.process.wait()) in (0, 130, -signal.SIGINT)
    assert "Traceback" not in log


HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


@pytest.mark.parametrize("era", ["modern", "2025"])
async def test_after_an_interrupt_a_cancellation_is_heard_and_no_new_request_is_taken(era: str) -> None:
    async with child(grace=60) as server:
        if era == "2025":
            await server.send(HELLO)
            assert "result" in await server.receive()
        await server.send(call("hold", request_id="held", progressToken="t"))
        assert (await server.receive())["method"] == "notifications/progress"
        server.process.send_signal(signal.SIGINT)
        late: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            while "error" not in late:  # The signal and the message race.
                await server.send(call("echo", {"text": "late"}, request_id="late"))
                late = await server.receive()
        assert (late["id"], late["error"]["message"]) == ("late", "The server is shutting down")
        await server.send(notification("notifications/cancelled", {"requestId": "held"}))
        assert await soon(server.process.wait()) == 0


async def test_many_calls_at_once_are_all_answered() -> None:
    async with child() as server, asyncio.timeout(PATIENCE):
        for n in range(500):
            await server.send(call("echo", {"text": str(n)}, request_id=n))
        answers = [await server.receive() for _ in range(500)]
    assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == {
        n: str(n) for n in range(500)
    }


@pytest.mark.parametrize("era", ["modern", "2025"])
async def test_requests_that_came_before_the_end_of_input_are_all_answered(era: str) -> None:
    """Each answer is a list or a value that is there at once: the last are being sent when the input ends."""
    for _ in range(3):
        async with child() as server, asyncio.timeout(PATIENCE):
            lines = [json.dumps(HELLO)] if era == "2025" else []
            lines += [json.dumps(request("tools/list", request_id=n)) for n in range(30)]
            server.stdin.write(("\n".join(lines) + "\n").encode())
            server.stdin.close()
            answers = [json.loads(line) for line in (await server.stdout.read()).splitlines()]
            assert [answer["id"] for answer in answers if answer["id"] != "hello"] == list(range(30))
            assert await server.process.wait() == 0
