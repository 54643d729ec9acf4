"""The gate: who sends a request is found out by its head, on all connections and for both eras."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from ekiden import CallNext, Outcome, Principal, Request, Server, StatusError
from ekiden.errors import UsageError
from ekiden.transports.server.gate import Gate
from ekiden.transports.server.guard import Guard
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.proxies import TrustedProxies
from ekiden.transports.server.reply import Receive, Send, respond
from ekiden.wire.incoming import Incoming, Refusal
from tests.eras.old_client import OldClient
from tests.eras.old_client import call as old_call
from tests.requirements.marks import requirement
from tests.serving import call, headers_for, post, post_raw, raw_client, request, served, soon

NOBODY = Refusal(401, "Who are you?", ((b"www-authenticate", b"Bearer"),))


class Doorkeeper:
    """Admits whoever has a name. `slow` has to be let go before it decides."""

    def __init__(self, *, slow: bool = False) -> None:
        self.seen: list[tuple[str, str]] = []
        self.asked = asyncio.Event()
        self.may_decide = asyncio.Event()
        self._slow = slow

    def admit(self, incoming: Incoming) -> Refusal | Coroutine[Any, Any, Refusal | None] | None:
        self.seen.append((incoming.method, incoming.query.decode()))
        return self._later(incoming) if self._slow else self._decide(incoming)

    async def _later(self, incoming: Incoming) -> Refusal | None:
        self.asked.set()
        await self.may_decide.wait()
        return self._decide(incoming)

    def _decide(self, incoming: Incoming) -> Refusal | None:
        name = incoming.headers.get(b"authorization")
        if name is None:
            return NOBODY
        incoming.principal = Principal(name.decode())
        return None


def whoami() -> Server:
    server = Server("gated")

    @server.middleware
    async def see(request: Request, call_next: CallNext) -> Outcome:
        if request.header("X-Stop"):
            raise StatusError(429, "Too many requests", headers={"Retry-After": "7"})
        return await call_next(request)

    @server.tool
    async def me() -> str:
        return "called"

    return server


@asynccontextmanager
async def gated(doorkeeper: Doorkeeper, *, mounted: bool) -> AsyncGenerator[str, None]:
    application = whoami().asgi()
    application.gate.doorkeeper = doorkeeper
    async with served(application, mounted=mounted) as base:
        yield base


@requirement("AUTH-08")
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
@pytest.mark.parametrize("slow", [False, True], ids=["at once", "later"])
async def test_every_message_of_both_eras_passes_the_doorkeeper(mounted: bool, slow: bool) -> None:
    doorkeeper = Doorkeeper(slow=slow)
    doorkeeper.may_decide.set()
    async with gated(doorkeeper, mounted=mounted) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        old.more = {"authorization": "me"}
        await old.open()
        session = {**old.headers, "accept": "text/event-stream"}
        nameless = {name: value for name, value in session.items() if name != "authorization"}
        refused = [
            await post(base, call("me")),
            await post(base, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}),
            await http.post(base + "/mcp", json=old_call("me"), headers=nameless),
            await http.get(base + "/mcp", headers=nameless),
            await http.delete(base + "/mcp", headers=nameless),
            await http.put(base + "/mcp"),
            await http.post(base + "/mcp", content=b"{}", headers={"content-type": "text/plain"}),
        ]
        assert [(r.status_code, r.headers["www-authenticate"]) for r in refused] == [(401, "Bearer")] * 7
        served_all = [
            (await post(base, call("me"), authorization="me")).status_code,
            (await http.post(base + "/mcp", json=old_call("me"), headers=old.headers)).status_code,
            (await http.put(base + "/mcp", headers={"authorization": "me"})).status_code,
            (await http.delete(base + "/mcp", headers=session)).status_code,
        ]
        assert served_all == [200, 200, 405, 200]
    methods = {method for method, _ in doorkeeper.seen}
    assert methods == {"POST", "GET", "DELETE", "PUT"}


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_what_is_refused_by_its_head_is_not_shown_to_the_doorkeeper(mounted: bool) -> None:
    doorkeeper = Doorkeeper()
    async with gated(doorkeeper, mounted=mounted) as base:
        answers = [
            await post(base, call("me"), host="evil.example"),
            await post(base, call("me"), origin="https://evil.example"),
            await post(base, call("me"), path="/other"),
            await post_raw(
                base,
                b"",
                {"origin": "http://localhost", "access-control-request-method": "POST"},
                method="OPTIONS",
            ),
        ]
    assert [answer.status_code for answer in answers] == [421, 403, 404, 405]
    assert doorkeeper.seen == []


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
@pytest.mark.parametrize("slow", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-type", "mcp-session-id"])
async def test_a_header_that_comes_twice_is_refused_however_long_the_doorkeeper_takes(
    name: str, slow: bool, mounted: bool
) -> None:
    doorkeeper = Doorkeeper(slow=slow)
    doorkeeper.may_decide.set()
    body = json.dumps(call("me")).encode()
    own = {
        **headers_for(call("me")),
        "host": "127.0.0.1",
        "origin": "http://127.0.0.1",
        "authorization": "me",
        "mcp-session-id": "own",
        "content-length": str(len(body)),
    }
    lines = ["POST /mcp HTTP/1.1", f"{name}: other", *(f"{k}: {v}" for k, v in own.items())]
    async with gated(doorkeeper, mounted=mounted) as base, raw_client(base) as client:
        client.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        assert b" 400 " in await client.read_until(b"\r\n")


async def test_a_body_is_not_read_before_the_doorkeeper_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    doorkeeper = Doorkeeper(slow=True)
    read: list[int] = []
    take = Connection.data_received

    def counted(self: Connection, data: bytes) -> None:
        read.append(len(data))
        take(self, data)

    monkeypatch.setattr(Connection, "data_received", counted)
    async with gated(doorkeeper, mounted=False) as base:
        host, _, port = base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b" " * 3_000_000
        head = f"POST /mcp?a=b HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"content-type: application/json\r\n\r\n")
        await soon(doorkeeper.asked.wait())
        writer.write(body)
        async with httpx2.AsyncClient(trust_env=False) as other:  # The loop has had its turns meanwhile.
            assert (await other.get(base + "/nothing")).status_code == 404
        assert sum(read) < 1000
        doorkeeper.may_decide.set()
        answer = await soon(reader.readuntil(b"\r\n\r\n"))
        assert b" 401 " in answer
        assert b"www-authenticate: Bearer" in answer
        writer.transport.abort()
    assert doorkeeper.seen == [("POST", "a=b")]


async def test_a_body_is_asked_for_once_the_doorkeeper_has_decided() -> None:
    doorkeeper = Doorkeeper(slow=True)
    async with gated(doorkeeper, mounted=False) as base:
        host, _, port = base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(call("me")).encode()
        headers = {**headers_for(call("me")), "authorization": "me", "expect": "100-continue"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: {len(body)}\r\n\r\n".encode()
        )
        await soon(doorkeeper.asked.wait())
        doorkeeper.may_decide.set()
        assert b"100 Continue" in await soon(reader.readuntil(b"\r\n\r\n"))
        writer.write(body)
        assert b" 200 " in await soon(reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()


async def test_requests_in_a_row_wait_for_their_verdicts_in_order() -> None:
    doorkeeper = Doorkeeper(slow=True)
    async with gated(doorkeeper, mounted=False) as base:
        host, _, port = base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in range(3):
            message = call("me", request_id=number)
            body = json.dumps(message).encode()
            headers = {**headers_for(message), "authorization": "me"}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        await soon(doorkeeper.asked.wait())
        doorkeeper.may_decide.set()
        ids: list[int] = []
        while len(ids) < 3:
            head = await soon(reader.readuntil(b"\r\n\r\n"))
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            ids.append(json.loads(await soon(reader.readexactly(length)))["id"])
        writer.transport.abort()
    assert ids == [0, 1, 2]


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_a_route_is_served_to_everybody(mounted: bool) -> None:
    async def echo(incoming: Incoming, receive: Receive, send: Send) -> None:
        await respond(send, 200, incoming.method.encode() + b" " + incoming.body)

    application = whoami().asgi()
    application.gate.doorkeeper = Doorkeeper()
    application.gate.routes["/other"] = echo
    async with served(application, mounted=mounted) as base:
        answers = [
            await post_raw(base, b"", {}, path="/other", method="GET"),
            await post_raw(base, b"a body", {}, path="/other"),
            await post_raw(base, b"", {"host": "evil.example"}, path="/other", method="GET"),
        ]
    assert [(answer.status_code, answer.text) for answer in answers[:2]] == [
        (200, "GET "),
        (200, "POST a body"),
    ]
    assert answers[2].status_code == 421


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_a_middleware_answers_with_a_status_and_headers(mounted: bool) -> None:
    async with served(whoami(), mounted=mounted) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        await old.open()
        stopped = {"x-stop": "yes"}
        session = {**old.headers, **stopped}
        answers = [
            await post(base, call("me"), x_stop="yes"),
            await post(base, {"jsonrpc": "2.0", "method": "notifications/x", "params": {}}, x_stop="yes"),
            await http.post(base + "/mcp", json=old_call("me"), headers=session),
            await http.get(base + "/mcp", headers=session),
        ]
    told = [(answer.status_code, answer.headers.get("retry-after")) for answer in answers]
    assert told == [(429, "7")] * 4
    assert answers[0].json()["error"]["message"] == "Too many requests"


async def test_a_request_knows_where_it_comes_from() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.middleware
    async def look(request: Request, call_next: CallNext) -> Outcome:
        where = None if request.asgi is None else request.asgi["path"]
        seen.append((request.address, where, request.header("X-Name"), request.header("nothing")))
        return await call_next(request)

    async with served(server, mounted=True) as base:
        await post(base, request("server/discover"), x_name="Zoe", x_forwarded_for="9.9.9.9")
    async with served(server) as base:
        await post(base, request("server/discover"), x_forwarded_for="9.9.9.9", x_ekiden_address="8.8.8.8")
    async with served(server, trusted_proxies=["127.0.0.0/8"]) as base:
        await post(base, request("server/discover"), x_forwarded_for="6.6.6.6, 9.9.9.9, 127.0.0.2")
    assert seen == [
        ("9.9.9.9", "/mcp", "Zoe", None),  # uvicorn's own settings trust 127.0.0.1.
        ("127.0.0.1", None, None, None),
        ("9.9.9.9", None, None, None),
    ]


@pytest.mark.parametrize(
    ("peer", "sent", "client"),
    [
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "1.2.3.4:5555, 10.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "[2001:db8::1]:99", "2001:db8::1"),
        ("10.0.0.1", "6.6.6.6, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("11.0.0.1", "1.2.3.4", "11.0.0.1"),
        (None, "1.2.3.4", None),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, ::ffff:10.0.0.9", "1.2.3.4"),
        ("10.0.0.1", "10.6.6.6, " * 30 + "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.2\t,\t[::1", "::1"),
    ],
)
def test_only_trusted_proxies_say_whose_request_it_is(
    peer: str | None, sent: str, client: str | None
) -> None:
    incoming = Incoming("POST", "/", {b"x-forwarded-for": sent.encode()}, None, b"", None, peer)
    assert TrustedProxies(["10.0.0.0/8"]).client_of(incoming) == client


@pytest.mark.parametrize("sent", ["1.2.3.4", "6.6.6.6, 1.2.3.4", "127.0.0.1, 10.0.0.1, 1.2.3.4:99"])
def test_who_trusts_whoever_connects_does_not_trust_what_a_client_wrote_before_it(sent: str) -> None:
    incoming = Incoming("POST", "/", {b"x-forwarded-for": sent.encode()}, None, b"", None, "9.9.9.9")
    assert TrustedProxies(["*"]).client_of(incoming) == "1.2.3.4"
    incoming.headers, incoming.address = {}, "9.9.9.9"
    assert TrustedProxies(["*"]).client_of(incoming) == "9.9.9.9"


def test_proxies_are_addresses_and_networks() -> None:
    with pytest.raises(UsageError, match="addresses and networks"):
        TrustedProxies(["proxy.example"])
    with pytest.raises(UsageError, match="is a list"):
        Server("s").asgi(trusted_proxies="10.0.0.0/8")


def test_a_gate_without_a_path_still_has_routes() -> None:
    gate = Gate(None, Guard(["*"]), 100)

    async def nothing(incoming: Incoming, receive: Receive, send: Send) -> None:
        raise AssertionError

    gate.routes["/a"] = nothing
    json_body = {b"host": b"x", b"content-type": b"application/json"}
    assert [gate.refusal("POST", path, "/app", json_body) for path in ("/app/a", "/app/b")] == [
        Refusal(0, ""),
        None,
    ]
