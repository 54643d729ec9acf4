"""One client that takes all there is of something keeps nobody else out."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from ekiden import Auth, Context, HttpLimits, Principal, RoundLimits, Server, SessionLimits, StaticTokens
from ekiden.server import subscription_room
from ekiden.server.rounds.parked import ParkingLot
from ekiden.transports.server.shares import Shares
from tests.serving import PATIENCE, call, headers_for, post, post_raw, raw_client, request, served, soon

TOKENS = {name: Principal(name) for name in ("eve", "bob")}
OLD = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


# Counting


def test_one_client_may_take_all_and_others_still_get_some() -> None:
    shares = Shares(32)
    assert all(shares.take("eve") for _ in range(32))
    assert not shares.take("eve")
    assert shares.take("bob")
    assert not shares.take("bob")  # An eighth of the eight that are left for all others.
    assert all(shares.take(f"other {n}") for n in range(7))
    assert not shares.take("one more")
    shares.give_back("bob")
    assert shares.take("one more")


def test_what_is_given_back_can_be_taken_again() -> None:
    shares = Shares(10)
    assert shares.take("eve", 10)
    assert not shares.take("eve")
    shares.give_back("eve", 4)
    assert (shares.of("eve"), shares.take("eve", 4), shares.take("eve", 1)) == (6, True, False)
    shares.give_back("eve", 10)
    shares.give_back("nobody", 3)
    assert shares.of("eve") == 0
    assert shares.take("bob", 10)


# Over HTTP


class Guarded:
    """A server with a tool that waits, and clients of it that are told apart by their tokens."""

    def __init__(self, **options: Any) -> None:
        auth = Auth("http://127.0.0.1/mcp", verifier=StaticTokens(TOKENS))
        self.server = Server("s", version="1", auth=auth, **options)
        self.go, self.begun = asyncio.Event(), asyncio.Queue[None]()

        @self.server.tool
        async def wait(text: str = "") -> str:
            """Wait until it is let go."""
            self.begun.put_nowait(None)
            await self.go.wait()
            return "done"

        @self.server.tool
        async def echo(text: str) -> str:
            """Say it."""
            return text[:1]

        @self.server.resource("note://{name}")
        async def note(name: str) -> str:
            """A note."""
            return name


class Old:
    """A client of 2025."""

    def __init__(self, base: str, who: str) -> None:
        self.base, self.number = base, 0
        self.headers = {**OLD, "authorization": f"Bearer {who}"}

    async def post(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        return await post_raw(self.base, json.dumps(message).encode(), self.headers)

    async def call(self, name: str, text: str) -> httpx2.Response:
        return await self.post("tools/call", {"name": name, "arguments": {"text": text}})

    async def open(self) -> int:
        opened = await self.post("initialize", HELLO)
        if opened.status_code == 200:
            self.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        return opened.status_code

    async def anew(self) -> int:
        """Open another session."""
        self.headers.pop("mcp-session-id", None)
        return await self.open()

    async def begin(self, text: str) -> None:
        """Begin a call, and leave."""
        self.number += 1
        params = {"name": "wait", "arguments": {"text": text}}
        message = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        body = json.dumps(message).encode()
        async with raw_client(self.base) as client:
            await client.send_head(self.headers | {"content-length": str(len(body))})
            client.writer.write(body)
            await client.writer.drain()
            await asyncio.sleep(0.02)

    async def listen(self) -> None:
        """Open the stream for changes, and leave."""
        async with raw_client(self.base) as client:
            lines = [f"{name}: {value}" for name, value in self.headers.items()]
            client.writer.write(
                "\r\n".join(["GET /mcp HTTP/1.1", "host: 127.0.0.1", *lines, "", ""]).encode()
            )
            await client.read_until(b"\r\n\r\n")


@asynccontextmanager
async def _running(guarded: Guarded, **limits: Any) -> AsyncGenerator[Callable[[str], Old], None]:
    async with served(guarded.server, limits=HttpLimits(**limits)) as base:
        try:
            yield lambda who: Old(base, who)
        finally:
            guarded.go.set()


async def test_calls_of_2025_of_one_client_leave_room_for_those_of_others() -> None:
    guarded = Guarded()
    async with _running(guarded, running_2025=64) as client:
        eve, bob = client("eve"), client("bob")
        assert [await eve.open(), await bob.open()] == [200, 200]
        for _ in range(64):
            await eve.begin("")
            await soon(guarded.begun.get())
        assert (await eve.call("echo", "mine")).status_code == 503
        assert (await bob.call("echo", "mine")).status_code == 200


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_large_bodies_of_one_client_leave_room_for_those_of_others(era: str) -> None:
    guarded = Guarded()
    async with _running(guarded, bodies=4_000_000) as client:
        eve, bob = client("eve"), client("bob")
        assert [await eve.open(), await bob.open()] == [200, 200]
        for _ in range(39):
            await eve.begin("x" * 100_000)
            await soon(guarded.begun.get())
        if era == "2025":
            answers = [await each.call("echo", "x" * 100_000) for each in (eve, bob)]
        else:
            large = call("echo", {"text": "x" * 100_000})
            answers = [await post(eve.base, large, authorization=f"Bearer {who}") for who in ("eve", "bob")]
        assert [answer.status_code for answer in answers] == [503, 200]


@pytest.mark.parametrize("mounted", [False, True])
async def test_uploads_of_one_principal_leave_room_for_those_of_another_at_the_same_address(
    mounted: bool,
) -> None:
    large = call("echo", {"text": "x" * 400_000})
    application = Guarded().server.asgi(limits=HttpLimits(bodies=16_000_000))
    async with served(application, mounted=mounted) as base, AsyncExitStack() as stack:
        about = {**headers_for(large), "authorization": "Bearer eve", "content-length": "4000000"}
        for _ in range(4):
            upload = await stack.enter_async_context(raw_client(base))
            await upload.send_head(about)
            upload.writer.write(b" " * 3_950_000)
            await soon(upload.writer.drain())
        async with asyncio.timeout(PATIENCE):
            while application.bodies._total < 15_500_000:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.01)
        answers = [await post(base, large, authorization=f"Bearer {who}") for who in ("eve", "bob")]
        assert [answer.status_code for answer in answers] == [503, 200]


# Sessions and subscriptions


@pytest.mark.parametrize("stored", [False, True])
async def test_sessions_of_one_address_leave_room_for_those_of_others(stored: bool, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/s.db" if stored else None
    server = Server("s", version="1", store=store, sessions=SessionLimits(sessions=64))
    async with served(server, trusted_proxies=["127.0.0.1"]) as base:
        clients = [Old(base, "-") for _ in range(66)]
        for each in clients:
            each.headers["x-forwarded-for"] = "192.0.2.1"
        opened = [await each.open() for each in clients]
        assert opened == [200] * 64 + [503] * 2
        patient = Old(base, "-")
        patient.headers["x-forwarded-for"] = "192.0.2.2"
        assert await patient.open() == 200
        assert (await patient.post("ping", {})).status_code == 200


@pytest.mark.parametrize("stored", [False, True])
async def test_whoever_opens_many_sessions_ends_only_its_own(stored: bool, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/s.db" if stored else None
    limits = SessionLimits(sessions=8, busy_seconds=0)
    server = Server("s", version="1", store=store, sessions=limits)
    async with served(server, trusted_proxies=["127.0.0.1"]) as base:
        patient = Old(base, "-")
        patient.headers["x-forwarded-for"] = "192.0.2.2"
        assert await patient.open() == 200
        greedy = Old(base, "-")
        greedy.headers["x-forwarded-for"] = "192.0.2.1"
        assert [await greedy.anew() for _ in range(20)] == [200] * 20
        assert (await patient.post("ping", {})).status_code == 200
        assert (await greedy.post("ping", {})).status_code == 200


async def test_subscriptions_of_sessions_that_were_left_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_room, "_MOST_SUBSCRIPTIONS", 32)
    guarded = Guarded()
    async with _running(guarded) as client:
        eve = client("eve")
        for _ in range(33):
            assert await eve.anew() == 200
            await eve.listen()
        listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        for who, said in (("eve", b"Too many subscriptions"), ("bob", b"subscriptions/acknowledged")):
            async with raw_client(eve.base) as each:
                body = json.dumps(listen).encode()
                about = {"authorization": f"Bearer {who}", "content-length": str(len(body))}
                await each.send_head(headers_for(listen) | about)
                each.writer.write(body)
                await each.read_until(said)


async def test_resources_that_sessions_subscribe_to_are_bounded_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_room, "_MOST_BYTES_EACH", 20_000)
    guarded = Guarded()
    async with _running(guarded) as client:
        eve, answers = client("eve"), list[dict[str, Any]]()
        for _ in range(10):
            assert await eve.anew() == 200
            for number in range(10):
                answers.append((await eve.post("resources/subscribe", {"uri": f"note://{number}"})).json())
        assert 60 < sum("result" in answer for answer in answers) < 80  # Each takes 256 bytes and its own.
        assert answers[-1]["error"]["message"] == "Too many of your subscriptions are open"
        bob = client("bob")
        assert await bob.open() == 200
        assert "result" in (await bob.post("resources/subscribe", {"uri": "note://1"})).json()


async def test_what_a_session_watched_is_not_counted_when_it_has_ended() -> None:
    guarded = Guarded()
    async with _running(guarded) as client:
        room = guarded.server.endpoint.registry.hub.room
        eve = client("eve")
        assert await eve.open() == 200
        for number in range(3):
            await eve.post("resources/subscribe", {"uri": f"note://{number}"})
        await eve.post("resources/subscribe", {"uri": "note://1"})
        await eve.post("resources/unsubscribe", {"uri": "note://2"})
        await eve.post("resources/unsubscribe", {"uri": "note://2"})
        held = room.held(Principal("eve").id)
        assert held == 2 * (256 + len("note://1"))
        await post_raw(eve.base, b"", eve.headers, method="DELETE")
        assert room.held(Principal("eve").id) == 0


# Parked calls


async def test_calls_that_are_let_in_together_do_not_park_in_excess() -> None:
    server = Server("s", version="1", rounds=RoundLimits(parked_calls=5))

    @server.tool(resume="parked")
    async def ask(ctx: Context) -> str:
        """Ask after a while."""
        await asyncio.sleep(0.2)
        await ctx.elicit("Go?", bool)
        return "gone"

    asking: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    message = call("ask", **asking)
    async with served(server) as base:
        answers = await asyncio.gather(*(post(base, message) for _ in range(20)))
        parked = [each.json() for each in answers if "result" in each.json()]
        assert len(parked) == 5
        lot: ParkingLot = server._rounds.parking  # pyright: ignore[reportPrivateUsage]
        assert len(lot._legs) == 5  # pyright: ignore[reportPrivateUsage]
        refused = [each.json()["error"]["message"] for each in answers if "error" in each.json()]
        assert set(refused) == {"Too many calls are waiting for an answer; try again later"}
        result = parked[0]["result"]  # Those that were parked first go on.
        (key,) = result["inputRequests"]
        answered = {key: {"action": "accept", "content": {"value": True}}}
        said = call("ask", **asking)
        said["params"] |= {"requestState": result["requestState"], "inputResponses": answered}
        assert (await post(base, said)).json()["result"]["content"][0]["text"] == "gone"
