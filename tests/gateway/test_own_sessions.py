"""Each principal has its own session with an upstream of 2025. Real processes, real sockets."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ekiden import Auth, Client, PendingCall, Principal, Server, ServerError, StaticTokens
from ekiden.gateway import Upstream, gateway, sessions
from tests.gateway.in_front import ERAS, KEYS, Era, elicit, text, until
from tests.serving import served, soon

SCRIPT = str(Path(__file__).with_name("old_server.py"))
NAMES = ("alice", "mallory", "bob")
YES = {"action": "accept", "content": {"ok": True}}


class Callers(NamedTuple):
    """A gateway with callers of its own names, and what they do."""

    client: Callable[..., Any]
    folder: Path

    def allow(self, what: str) -> None:
        (self.folder / what).touch()

    def has(self, what: str) -> bool:
        return (self.folder / what).exists()


def _old(folder: Path, **options: Any) -> Upstream:
    return Upstream(name="old", target=[sys.executable, SCRIPT, str(folder)], mode="legacy", **options)


def _auth() -> Auth:
    people = {name: Principal(name, "https://idp.example", "agent", frozenset()) for name in NAMES}
    return Auth("http://localhost/mcp", verifier=StaticTokens(people))


@asynccontextmanager
async def _callers(
    upstream: Upstream, folder: Path, auth: Auth | None = None
) -> AsyncGenerator[Callers, None]:
    server = gateway([upstream], keys=KEYS, auth=auth)
    async with served(server) as base, AsyncExitStack() as stack:

        async def client(name: str, **options: Any) -> Client:
            headers = {"Authorization": f"Bearer {name}"}
            many = httpx2.Limits(max_connections=None)
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=headers, trust_env=False, limits=many)
            )
            known = {"elicit": elicit, "mode": "modern", **options}
            return await stack.enter_async_context(Client(f"{base}/mcp", http_client=http, **known))

        yield Callers(client, folder)


@pytest.fixture
async def old(tmp_path: Path) -> AsyncGenerator[Callers, None]:
    async with _callers(_old(tmp_path), tmp_path, _auth()) as callers:
        yield callers


async def _answer(client: Client, call: object) -> str:
    assert isinstance(call, PendingCall), call
    (key,) = call.requests
    return text(await client.resume(call, {key: YES}))


def _processes() -> list[psutil.Process]:
    """The upstream's processes that run."""
    return [each for each in psutil.Process().children() if SCRIPT in _words(each)]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# Whose question, whose log


async def test_a_question_whose_call_gives_up_goes_to_no_other_principal(old: Callers) -> None:
    alice, mallory = await old.client("alice"), await old.client("mallory")
    slow = asyncio.create_task(mallory.start_tool("old_slow", {"who": "mallory"}))
    await until(lambda: old.has("slow-mallory"))
    asked = asyncio.create_task(alice.start_tool("old_pay", {"who": "alice"}))
    await asyncio.wait({asked}, timeout=1.0)  # Without a session of its own, the question waits now.
    old.allow("give-up")
    call = await soon(asked)
    assert isinstance(call, PendingCall), call
    (question,) = call.requests.values()
    assert question["params"]["message"] == "Pay from the account of alice?"
    old.allow("enough")
    assert text(await soon(slow)) == "slept"


async def test_what_a_server_says_after_its_call_goes_to_no_other_principal(old: Callers) -> None:
    heard: list[Any] = []
    alice, mallory = await old.client("alice"), await old.client("mallory", on_log=heard.append)
    slow = asyncio.create_task(mallory.start_tool("old_slow", {"who": "mallory"}))
    await until(lambda: old.has("slow-mallory"))
    assert text(await alice.call_tool("old_later", {"who": "alice"})) == "begun"
    await until(lambda: old.has("answered") or slow.done())
    old.allow("enough")
    assert text(await soon(slow)) == "slept"
    assert heard == []


async def test_a_stream_without_a_call_is_heard_by_its_own_principal_alone(tmp_path: Path) -> None:
    """Over HTTP: what comes on the GET stream of a session."""
    upstream = _OldOverHttp()
    async with (
        served(upstream.app(), grace=1) as base,
        _callers(Upstream(name="old", target=f"{base}/mcp", mode="legacy"), tmp_path, _auth()) as callers,
    ):
        heard: list[Any] = []
        alice, mallory = await callers.client("alice"), await callers.client("mallory", on_log=heard.append)
        slow = asyncio.create_task(mallory.start_tool("old_slow"))
        await soon(upstream.slow.wait())
        assert text(await alice.call_tool("old_later")) == "begun"
        await until(lambda: upstream.answers or slow.done())
        upstream.enough.set()
        assert text(await soon(slow)) == "slept"
        assert heard == []
        assert [list(answer) for answer in upstream.answers] == [["jsonrpc", "id", "error"]]


class _OldOverHttp:
    """A server of 2025 over HTTP that asks and logs on the GET stream of the session."""

    def __init__(self) -> None:
        self.slow, self.enough = asyncio.Event(), asyncio.Event()
        self.answers: list[dict[str, Any]] = []
        self._streams: dict[str, asyncio.Queue[Any]] = {}

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self._take, methods=["GET", "POST", "DELETE"])])

    async def _take(self, request: Request) -> Response:
        session = request.headers.get("mcp-session-id", "")
        if request.method == "GET":
            return StreamingResponse(self._events(session), media_type="text/event-stream")
        if request.method == "DELETE":
            self._streams[session].put_nowait(None)
            return Response(status_code=200)
        message = await request.json()
        if "method" not in message:
            self.answers.append(message)
        if "id" not in message or "method" not in message:
            return Response(status_code=202)
        result, headers = await self._result(session, message)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    async def _events(self, session: str) -> AsyncGenerator[str, None]:
        while (message := await self._streams[session].get()) is not None:
            yield f"data: {json.dumps(message)}\n\n"

    async def _result(self, session: str, message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        method, schema = message["method"], {"type": "object"}
        if method == "initialize":
            name = f"session-{len(self._streams)}"
            self._streams[name] = asyncio.Queue()
            hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
            return {"protocolVersion": "2025-06-18", **hello}, {"mcp-session-id": name}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": schema} for name in ("later", "slow")]}, {}
        if method != "tools/call":
            return {}, {}
        said = "begun"
        if message["params"]["name"] == "slow":
            said = "slept"
            self.slow.set()
            await self.enough.wait()
        else:
            log = {"level": "error", "data": "balance"}
            ask = {"message": "Pay?", "requestedSchema": {"type": "object", "properties": {}}}
            send = self._streams[session].put_nowait
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
            asyncio.get_running_loop().call_later(
                0.1, send, {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": ask}
            )
        return {"content": [{"type": "text", "text": said}]}, {}


@pytest.mark.parametrize("era", ERAS)
async def test_each_principal_answers_its_own_questions(old: Callers, era: Era) -> None:
    async def yes(params: Any) -> Any:
        from mcp_types import ElicitResult

        asked.append(params.message)
        return ElicitResult(action="accept", content={"ok": True})

    asked: list[str] = []
    people = [await old.client(name, mode=era, elicit=yes) for name in NAMES]
    calls = [one.call_tool("old_pay", {"who": name}) for name, one in zip(NAMES, people, strict=True)]
    told = [text(result) for result in await soon(asyncio.gather(*calls))]
    assert told == [f"paid by {name}" for name in NAMES]
    assert sorted(asked) == sorted(f"Pay from the account of {name}?" for name in NAMES)


async def test_a_model_is_asked_without_the_context_of_other_upstreams(old: Callers) -> None:
    asked: list[Any] = []

    async def sample(params: Any) -> Any:
        asked.append(params)
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "well"}}

    alice = await old.client("alice", sample=sample)
    assert text(await soon(alice.call_tool("old_think"))) == "thought"
    assert [(params.max_tokens, params.include_context) for params in asked] == [(5, None)]


async def test_without_principals_a_question_that_may_be_of_a_call_that_ended_is_refused(
    tmp_path: Path,
) -> None:
    async with _callers(_old(tmp_path), tmp_path) as old:
        heard: list[Any] = []
        one, other = await old.client("one"), await old.client("other", on_log=heard.append)
        slow = asyncio.create_task(other.start_tool("old_slow", {"who": "other"}))
        await until(lambda: old.has("slow-other"))
        assert len(_processes()) == 1  # They are one caller, with one session.
        asked = asyncio.create_task(one.start_tool("old_pay", {"who": "one"}))
        await asyncio.wait({asked}, timeout=1.0)
        old.allow("give-up")
        result = await soon(asked)
        await asyncio.wait({slow}, timeout=0.5)
        assert not isinstance(result, PendingCall), result
        assert not slow.done()
        old.allow("enough")
        assert text(await soon(slow)) == "slept"
        assert heard == []
        (tmp_path / "give-up").unlink()
        call = await one.start_tool("old_pay", {"who": "one"})  # It runs alone from its beginning.
        assert await soon(_answer(one, call)) == "paid by one"


# Who holds up whom


async def test_an_open_question_and_many_calls_of_one_principal_hold_up_nobody_else(old: Callers) -> None:
    alice, mallory = await old.client("alice"), await old.client("mallory")
    assert isinstance(await mallory.start_tool("old_pay", {"who": "mallory"}), PendingCall)
    more = [asyncio.create_task(mallory.call_tool("old_process")) for _ in range(110)]
    await until(lambda: sum(each.done() for each in more) == 10)
    refused = [str(each.exception()) for each in more if each.done()]
    assert refused == ["Too many calls wait for 'old': try again later"] * 10  # Those beyond a hundred.
    call = await soon(alice.start_tool("old_pay", {"who": "alice"}))
    assert await soon(_answer(alice, call)) == "paid by alice"
    for each in more:
        each.cancel()
    await asyncio.wait(more)


async def test_a_call_that_was_given_up_leaves_a_doubt_for_its_own_principal_alone(old: Callers) -> None:
    alice, mallory = await old.client("alice"), await old.client("mallory")
    slow = asyncio.create_task(mallory.call_tool("old_slow", {"who": "mallory"}))
    await until(lambda: old.has("slow-mallory"))
    slow.cancel()
    await asyncio.wait({slow})
    call = await soon(alice.start_tool("old_pay", {"who": "alice"}))
    assert await soon(_answer(alice, call)) == "paid by alice"


# How many there are


async def test_the_session_that_is_idle_makes_room_and_one_that_is_in_use_does_not(tmp_path: Path) -> None:
    async with _callers(_old(tmp_path, sessions=1), tmp_path, _auth()) as old:
        alice, bob = await old.client("alice"), await old.client("bob")
        waiting = await alice.start_tool("old_pay", {"who": "alice"})
        with pytest.raises(
            ServerError, match=r"All 1 sessions .* are in use by other callers: .*`sessions`"
        ) as no:
            await bob.call_tool("old_process")
        assert no.value.data == {"upstream": "old"}
        assert await soon(_answer(alice, waiting)) == "paid by alice"
        of_alice = int(text(await alice.call_tool("old_process")))
        of_bob = int(text(await soon(bob.call_tool("old_process"))))
        assert of_alice not in [each.pid for each in _processes()]
        assert of_bob in [each.pid for each in _processes()]
        assert len(_processes()) == 2  # The other one is for the lists.


async def test_a_session_is_closed_when_nothing_has_hung_on_it_for_a_while(
    old: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_IDLE_SECONDS", 0.05)
    alice, bob = await old.client("alice"), await old.client("bob")
    waiting = await alice.start_tool("old_pay", {"who": "alice"})
    assert text(await bob.call_tool("old_process"))
    await until(lambda: len(_processes()) == 2)
    assert await soon(_answer(alice, waiting)) == "paid by alice"
    await until(lambda: len(_processes()) == 1)
    assert text(await soon(alice.call_tool("old_process")))  # And opened again.


async def test_every_process_ends_with_the_gateway(tmp_path: Path) -> None:
    async with _callers(_old(tmp_path), tmp_path, _auth()) as old:
        people = [await old.client(name) for name in NAMES]
        for one in people:
            await one.start_tool("old_pay", {"who": "somebody"})
        running = _processes()
        assert len(running) == 1 + len(NAMES)
    assert [each for each in running if each.is_running()] == []


async def test_a_process_that_is_just_being_started_ends_with_the_gateway(tmp_path: Path) -> None:
    async with _callers(_old(tmp_path), tmp_path, _auth()) as old:
        alice = await old.client("alice")
        old.allow("silent")
        call = asyncio.create_task(alice.call_tool("old_process"))
        await until(lambda: len(_processes()) == 2)
        call.cancel()
        await asyncio.wait({call})
        running = _processes()
        assert len(running) == 2  # Another call of the same principal would wait for it.
    assert [each for each in running if each.is_running()] == []


# When one is lost


async def test_a_process_that_ends_fails_the_calls_of_its_principal_and_the_next_one_has_another(
    old: Callers,
) -> None:
    alice, bob = await old.client("alice"), await old.client("bob")
    of_bob = text(await bob.call_tool("old_process"))
    of_alice = text(await alice.call_tool("old_process"))
    waiting = await alice.start_tool("old_pay", {"who": "alice"})
    psutil.Process(int(of_alice)).kill()
    with pytest.raises(ServerError, match="behind 'old' is not available: it cannot be reached"):
        await _answer(alice, waiting)
    again = text(await soon(alice.call_tool("old_process")))
    assert again not in (of_alice, of_bob)
    with pytest.raises(ServerError, match="behind 'old' is not available: it cannot be reached"):
        await soon(alice.call_tool("old_die"))
    assert text(await soon(alice.call_tool("old_process"))) not in (again, of_alice, of_bob)
    assert await soon(_answer(alice, await alice.start_tool("old_pay", {"who": "alice"}))) == "paid by alice"
    assert text(await bob.call_tool("old_process")) == of_bob


async def test_a_process_that_hangs_is_ended_when_a_call_had_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_ALIVE_SECONDS", 0.1)
    async with _callers(_old(tmp_path, timeout=2.0), tmp_path, _auth()) as old:
        alice, bob = await old.client("alice"), await old.client("bob")
        hung = psutil.Process(int(text(await alice.call_tool("old_process"))))
        hung.send_signal(signal.SIGSTOP)
        with pytest.raises(ServerError, match="it did not answer in time"):
            await soon(alice.call_tool("old_process"))
        assert text(await soon(bob.call_tool("old_process")))
        await until(lambda: not hung.is_running())
        assert text(await soon(alice.call_tool("old_process"))) != str(hung.pid)


async def test_a_server_that_cannot_run_twice_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "only-once").touch()
    async with _callers(_old(tmp_path), tmp_path, _auth()) as old:
        alice = await old.client("alice")
        assert "old_process" in [tool.name for tool in await alice.list_tools()]
        with pytest.raises(ServerError, match="behind 'old' is not available: it cannot be reached"):
            await soon(alice.call_tool("old_process"))
        (tmp_path / "only-once").unlink()
        assert text(await soon(alice.call_tool("old_process")))


async def test_a_session_lasts_as_long_as_a_task_that_its_principal_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_IDLE_SECONDS", 0.01)
    begun, may_end, opened = asyncio.Event(), asyncio.Event(), list[str]()
    upstream = Server("jobs", store="memory:", keys=KEYS)

    @upstream.tool(task="required")
    async def job() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    make = sessions.Sessions._make
    monkeypatch.setattr(sessions.Sessions, "_make", lambda own, who: (opened.append(who), make(own, who))[1])
    async with served(upstream) as base:
        server = gateway(
            [Upstream(name="jobs", target=f"{base}/mcp", mode="legacy")], keys=KEYS, principal=lambda _: "ada"
        )
        async with Client(server) as client:
            call = asyncio.create_task(client.call_tool("jobs_job"))
            await soon(begun.wait())
            await asyncio.wait({call}, timeout=0.2)  # Far longer than a session may be idle.
            may_end.set()
            assert text(await soon(call)) == "done"
    assert opened == ["ada"]
