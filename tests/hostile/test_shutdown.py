"""Signals to a real process: what runs is finished, what runs too long is cut."""

import asyncio
import json
import signal
import time

import pytest

from tests.serving import call, post, post_raw, raw_client, request, soon, spawned
from tests.workers.old_session import OldSession

SERVER = """
import asyncio, sys
from contextlib import asynccontextmanager
from ekiden import Context, Server

@asynccontextmanager
async def lifespan(server):
    yield
    print("lifespan left", file=sys.stderr, flush=True)

server = Server("s", lifespan=lifespan)

@server.tool
async def work(seconds: float, ctx: Context) -> str:
    await ctx.progress(1)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("work cancelled", file=sys.stderr, flush=True)
        raise
    return "finished"

@server.tool
async def quiet(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "finished"

server.run("http", port=int(sys.argv[1]), grace=GRACE, log_level="warning")
"""


def source(grace: float) -> str:
    return SERVER.replace("GRACE", str(grace))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_a_running_call_is_finished_before_the_process_ends(sig: signal.Signals) -> None:
    async with spawned(source(grace=5)) as server, raw_client(server.base) as client:
        await client.send(call("work", {"seconds": 0.7}, progressToken=1))
        await client.read_until(b"notifications/progress")
        server.process.send_signal(sig)
        assert b'"finished"' in await client.read_to_end()
        await server.ended()
        assert b"lifespan left" in server.stderr
        assert b"work cancelled" not in server.stderr
        assert b"Traceback" not in server.stderr


async def test_a_running_call_that_streams_nothing_is_finished_too() -> None:
    async with spawned(source(grace=5)) as server:
        answer = asyncio.create_task(post(server.base, call("quiet", {"seconds": 1.0})))
        async with raw_client(server.base) as client:  # Its answer shows that the call is under way.
            await client.send(request("server/discover"))
            await client.read_until(b"supportedVersions")
        server.process.send_signal(signal.SIGTERM)
        assert (await soon(answer)).json()["result"]["content"][0]["text"] == "finished"
        await server.ended()


async def test_a_call_that_runs_longer_than_the_grace_period_is_cut() -> None:
    async with spawned(source(grace=1)) as server, raw_client(server.base) as client:
        await client.send(call("work", {"seconds": 600}, progressToken=1))
        await client.read_until(b"notifications/progress")
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert b'"finished"' not in await client.read_to_end()
        await server.ended()
        assert time.monotonic() - started < 6
        assert b"work cancelled" in server.stderr
        assert b"lifespan left" in server.stderr


async def test_a_call_that_streamed_nothing_before_it_was_cut_is_told_to_be_sent_again() -> None:
    """In both eras, as a response like others: some clients give up everything for a status of 500."""
    async with spawned(source(grace=1)) as server:
        session = await OldSession.open(int(server.base.rpartition(":")[2]))
        old = session.request("tools/call", name="quiet", arguments={"seconds": 600})
        sent = {
            "2026": call("quiet", {"seconds": 600}, request_id="new"),
            "large": call("quiet", {"seconds": 600}, request_id="large", **{"x/filling": "x" * 10_000}),
        }
        answers = [asyncio.create_task(post(server.base, message)) for message in sent.values()]
        answers.append(asyncio.create_task(post_raw(server.base, json.dumps(old).encode(), session.headers)))
        async with raw_client(server.base) as client:  # Its answer shows that the calls are under way.
            await client.send(request("server/discover"))
            await client.read_until(b"supportedVersions")
        server.process.send_signal(signal.SIGTERM)
        cut = [await soon(answer) for answer in answers]
        told = [(response.status_code, response.json()["id"]) for response in cut]
        assert told == [(200, "new"), (200, "large"), (200, old["id"])]
        assert {response.json()["error"]["code"] for response in cut} == {-32603}
        assert all("send the request again" in response.json()["error"]["message"] for response in cut)
        await server.ended()


async def test_while_it_drains_no_new_client_is_taken() -> None:
    async with spawned(source(grace=5)) as server, raw_client(server.base) as client:
        await client.send(call("work", {"seconds": 1}, progressToken=1))
        await client.read_until(b"notifications/progress")
        server.process.send_signal(signal.SIGTERM)
        refused = False
        async with asyncio.timeout(30):
            while not refused:
                try:
                    async with raw_client(server.base):
                        await asyncio.sleep(0.01)
                except ConnectionRefusedError:
                    refused = True
        assert b'"finished"' in await client.read_to_end()
        await server.ended()


async def test_an_idle_server_ends_at_once() -> None:
    async with spawned(source(grace=10)) as server:
        await post(server.base, request("server/discover"))
        started = time.monotonic()
        await server.stop()
        assert time.monotonic() - started < 3
        assert b"Traceback" not in server.stderr
