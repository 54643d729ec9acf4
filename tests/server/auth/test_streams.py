"""Streams that last longer than what was known of their token: they end when it does not count any more."""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from ekiden import Auth, Context, Server, VerifiedToken
from ekiden.server.auth import known
from ekiden.server.auth.known import Known, Watch
from ekiden.signals import VerifierUnavailable
from ekiden.wire.principal import Principal
from tests.eras.old_client import OldClient
from tests.serving import PATIENCE, call, headers_for, post, request, served, soon

RESOURCE = "http://localhost/mcp"
LISTEN = request(
    "subscriptions/listen",
    {"notifications": {"resourceSubscriptions": ["secret://x"], "toolsListChanged": True}},
)
both_ways = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])


class Opaque:
    """Tokens without an expiry, of an issuer that is believed for a moment."""

    checks_audience = True

    def __init__(self, cache_seconds: float = 0.05) -> None:
        self.cache_seconds = cache_seconds
        self.scopes = ["read"]
        self.problem: Exception | None = None
        self.is_revoked = False
        self.asked = 0
        self.said = asyncio.Event()

    async def verify_token(self, token: str) -> VerifiedToken | None:
        self.asked += 1
        self.said.set()
        if self.problem is not None:
            raise self.problem
        return None if self.is_revoked else VerifiedToken(subject="zoe", scopes=self.scopes)

    async def asked_again(self, times: int = 1) -> None:
        """Wait until it has been asked so often from now on."""
        for _ in range(times):
            self.said.clear()
            await soon(self.said.wait())


def secrets(verifier: Any) -> Server:
    server = Server("s", auth=Auth(RESOURCE, verifier=verifier))

    @server.resource("secret://x", scopes=["read"])
    def secret() -> str:
        return "x"

    return server


class Heard:
    """What comes over a stream."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ended = asyncio.Event()
        self._more = asyncio.Event()

    def add(self, message: Any) -> None:
        self.messages.append(message)
        self._more.set()

    async def wait(self, method: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(message.get("method") == method for message in self.messages):
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def listening(base: str, token: str = "t") -> AsyncGenerator[Heard, None]:
    heard = Heard()

    async def read() -> None:
        headers = {**headers_for(LISTEN), "authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http,
            http.stream("POST", base + "/mcp", json=LISTEN, headers=headers) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    heard.add(json.loads(line[5:]))
        heard.ended.set()

    reading = asyncio.create_task(read())
    try:
        await heard.wait("notifications/subscriptions/acknowledged")
        yield heard
    finally:
        reading.cancel()
        await asyncio.wait([reading])


@both_ways
async def test_a_subscription_ends_with_its_result_when_its_token_is_revoked(mounted: bool) -> None:
    verifier = Opaque()
    server = secrets(verifier)
    async with served(server, mounted=mounted) as base, listening(base) as heard:
        server.resource_updated("secret://x")
        await heard.wait("notifications/resources/updated")
        verifier.is_revoked = True
        await soon(heard.ended.wait())
        server.resource_updated("secret://x")
        assert (await post(base, request("tools/list"), authorization="Bearer t")).status_code == 401
    methods = [message.get("method") for message in heard.messages]
    assert methods == ["notifications/subscriptions/acknowledged", "notifications/resources/updated", None]
    assert heard.messages[-1]["result"]["resultType"] == "complete"


async def test_a_subscription_ends_when_its_token_grants_less_than_it_did() -> None:
    verifier = Opaque()
    async with served(secrets(verifier)) as base, listening(base) as heard:
        verifier.scopes = ["read", "more"]
        await verifier.asked_again(2)
        assert not heard.ended.is_set()
        verifier.scopes = []
        await soon(heard.ended.wait())


@both_ways
async def test_the_stream_of_a_session_ends_when_its_token_is_revoked(mounted: bool) -> None:
    verifier = Opaque()
    server = secrets(verifier)
    async with (
        served(server, mounted=mounted) as base,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http,
    ):
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer t"}
        await old.open()
        async with old.listening() as stream:
            await verifier.asked_again(2)
            verifier.is_revoked = True
            rest = "".join([piece async for piece in stream.aiter_text()])
    assert "data: {" not in rest


async def test_a_call_that_runs_goes_on_to_its_end_when_its_token_is_revoked() -> None:
    verifier, go, running = Opaque(), asyncio.Event(), asyncio.Event()
    server = secrets(verifier)

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.info("begun")
        running.set()
        await go.wait()
        return "done"

    async with served(server) as base, listening(base) as heard:
        calling = asyncio.create_task(post(base, call("slow"), authorization="Bearer t"))
        await soon(running.wait())
        verifier.is_revoked = True
        await soon(heard.ended.wait())
        go.set()
        answer = await soon(calling)
    assert "done" in answer.text


async def test_a_verifier_that_is_away_for_a_moment_ends_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_RETRY_SECONDS", 0.01)
    verifier = Opaque()
    server = secrets(verifier)
    async with served(server) as base, listening(base) as heard:
        verifier.problem = VerifierUnavailable("a restart")
        await verifier.asked_again(3)
        verifier.problem = None
        await verifier.asked_again(3)
        server.resource_updated("secret://x")
        await heard.wait("notifications/resources/updated")
        assert not heard.ended.is_set()


@pytest.mark.parametrize("problem", [VerifierUnavailable("no network"), ZeroDivisionError()])
async def test_a_verifier_that_stays_away_keeps_no_streams_open(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    monkeypatch.setattr(known, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(known, "_DOUBT_SECONDS", 0.1)
    verifier = Opaque()
    async with served(secrets(verifier)) as base, listening(base) as heard:
        verifier.problem = problem
        await soon(heard.ended.wait())


async def test_all_streams_of_a_token_ask_together() -> None:
    verifier = Opaque(cache_seconds=0.2)
    async with (
        served(secrets(verifier)) as base,
        listening(base),
        listening(base),
        listening(base),
        listening(base),
    ):
        before, began = verifier.asked, time.monotonic()
        await verifier.asked_again(3)
        periods = (time.monotonic() - began) / 0.2
        assert verifier.asked - before <= periods + 1


async def test_a_verifier_whose_word_holds_until_the_token_expires_is_not_asked_again() -> None:
    class Lasting(Opaque):
        holds_until_expiry = True

    lasting, other = Lasting(), Opaque()
    async with (
        served(secrets(lasting)) as first,
        served(secrets(other)) as second,
        listening(first),
        listening(second),
    ):
        await other.asked_again(5)
        assert lasting.asked == 1


def watched(
    end: Callable[[], None], again: Callable[[], Any], *, lasts: bool = False, expires: float = math.inf
) -> Watch:
    now = time.time()
    return Watch(Known(Principal("zoe"), expires, now + 0.01, None, lasts), again, time.time, end)


async def test_a_stream_ends_at_the_expiry_of_its_token_while_the_verifier_says_nothing() -> None:
    ended = asyncio.Event()

    async def again() -> None:
        await asyncio.Event().wait()

    watched(ended.set, again, expires=time.time() + 0.05)
    await soon(ended.wait())


async def test_a_stream_that_has_ended_is_not_watched_any_more() -> None:
    ended, asked = asyncio.Event(), asyncio.Event()

    async def again() -> None:
        asked.set()
        await asyncio.Event().wait()

    watch, idle = watched(ended.set, again), watched(ended.set, again, lasts=True)
    await soon(asked.wait())
    watch.cancel()
    idle.cancel()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not ended.is_set()
