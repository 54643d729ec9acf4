"""Servers of 2025, and servers that change while the client runs."""

import asyncio
import json
from typing import Any

import pytest
from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)

from ekiden import CannotAnswer, Client, InvalidResult, Server, ServerError
from ekiden.client.sessions import eras
from tests.client.sessions.old import VERSION, OldServer
from tests.serving import PATIENCE, served, soon


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


async def test_a_server_of_2025_is_found_and_greeted() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", elicit=agree, name="me") as client:
        assert (client.session.era, client.session.version) == ("legacy", VERSION)
        assert client.session.server_info["name"] == "old"
        assert client.session.instructions == "Be kind."
        assert [tool.name for tool in await client.list_tools()] == ["ask"]
        discovered = await client.discover()
        assert discovered.supported_versions == [VERSION]
        assert discovered.instructions == "Be kind."
    assert old.methods() == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "DELETE",
    ]
    hello = old.heard[1]["params"]
    assert hello["capabilities"] == {"elicitation": {"form": {}}}
    assert hello["clientInfo"]["name"] == "me"
    for headers in old.headers[2:]:
        assert headers["mcp-session-id"] == "session-1"
        assert headers["mcp-protocol-version"] == VERSION


async def test_the_era_of_an_origin_is_remembered() -> None:
    old = OldServer()
    async with served(old.app) as base:
        for _ in range(2):
            async with Client(f"{base}/mcp") as client:
                assert client.session.era == "legacy"
    assert old.methods().count("server/discover") == 1


async def test_what_it_pushes_is_answered_by_the_same_callbacks() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", elicit=agree) as client:
        answer = json.loads(text(await client.call_tool("ask")))
        assert answer == {"action": "accept", "content": {"value": True}}
        assert json.loads(text(await client.call_tool("ping"))) == {}
        assert json.loads(text(await client.call_tool("strange")))["code"] == -32601


async def test_what_no_callback_answers_is_refused_and_what_fails_is_told() -> None:
    async def fail(params: ElicitRequestFormParams) -> ElicitResult:
        raise LookupError("secret")

    old = OldServer()
    async with served(old.app) as base:
        async with Client(f"{base}/mcp") as silent:
            assert json.loads(text(await silent.call_tool("ask")))["code"] == -32601
        async with Client(f"{base}/mcp", elicit=fail) as failing:
            told = json.loads(text(await failing.call_tool("ask")))
            assert told == {"code": -32603, "message": "The client's callback failed"}


async def test_a_question_outside_of_calls_is_answered_too() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", roots=["file:///home"]):
        number, question = await old.ask("roots/list", {})
        await old.stream.put(question)
        assert (await old.answer(number))["result"] == {"roots": [{"uri": "file:///home"}]}


async def test_a_question_that_is_withdrawn_stops_its_callback() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def think(params: ElicitRequestFormParams) -> ElicitResult:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        raise AssertionError

    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", elicit=think):
        number, question = await old.ask(
            "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        )
        await old.stream.put(question)
        await soon(begun.wait())
        await old.stream.put(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        )
        await soon(stopped.wait())


async def test_questions_without_end_do_not_become_callbacks_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = 0

    async def think(params: ElicitRequestFormParams) -> ElicitResult:
        nonlocal asked
        asked += 1
        await asyncio.sleep(3600)
        raise AssertionError

    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", elicit=think) as client:
        for _ in range(150):
            _, question = await old.ask(
                "elicitation/create",
                {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
            )
            await old.stream.put(question)
        async with asyncio.timeout(PATIENCE):
            while not old.stream.empty() or asked < 100:
                await asyncio.sleep(0.005)
        assert text(await client.call_tool("still there")) == "still there"
    assert asked == 100
    assert "more than 100 things at once" in caplog.text


async def test_a_callback_that_fails_does_not_end_the_listening() -> None:
    logged: list[Any] = []

    def log(params: dict[str, Any]) -> None:
        logged.append(params)
        if len(logged) == 1:
            raise LookupError("no file to log to")

    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp", on_log=log):
        async with asyncio.timeout(PATIENCE):
            while len(logged) < 2:
                params = {"level": "info", "data": len(logged)}
                await old.stream.put({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
                await asyncio.sleep(0.05)


async def test_an_error_that_wants_a_page_becomes_an_ask() -> None:
    old = OldServer()

    async def visit(params: ElicitRequestURLParams) -> ElicitResult:
        assert params.url == "https://rail.example/"
        old.logged_in = True
        return ElicitResult(action="accept")

    async def refuse(params: ElicitRequestURLParams) -> ElicitResult:
        return ElicitResult(action="decline")

    async with served(old.app) as base:
        async with Client(f"{base}/mcp", elicit_url=refuse) as client:
            with pytest.raises(ServerError, match="Log in first") as caught:
                await client.call_tool("login")
            assert caught.value.code == -32042
        async with Client(f"{base}/mcp") as client:
            with pytest.raises(CannotAnswer, match="url"):
                await client.call_tool("login")
        async with Client(f"{base}/mcp", elicit_url=visit) as client:
            assert text(await client.call_tool("login")) == "login"


async def test_progress_log_level_and_subscriptions_are_spoken_as_they_were() -> None:
    old = OldServer()
    seen: list[Any] = []
    async with (
        served(old.app) as base,
        Client(f"{base}/mcp", log_level="warning", on_log=seen.append) as client,
    ):
        assert old.heard[-1]["params"] == {"level": "warning"}
        await client.call_tool("progress", progress=lambda *step: seen.append(step))
        assert seen == [(1, 2, "half")]
        changes = client.listen(tools=True, uris=("a://b",))
        following = asyncio.ensure_future(anext(changes))
        await soon(_until(lambda: "resources/subscribe" in old.methods()))
        await old.stream.put({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hi"}})
        await old.stream.put(
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a://b"}}
        )
        assert (await soon(following))["params"] == {"uri": "a://b"}
        assert seen[-1] == {"data": "hi"}
        await changes.aclose()
        assert old.methods()[-1] == "resources/unsubscribe"


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp") as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await soon(_until(lambda: old.methods()[-1] == "tools/call"))
        asked = old.heard[-1]["id"]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await soon(old.cancelled.wait())
        assert old.heard[-1]["params"] == {"requestId": asked}
        with pytest.raises(Exception, match="did not end within"):
            await client.call_tool("hang", timeout=0.1)


async def test_a_stream_that_breaks_off_is_resumed_where_it_was() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp") as client:
        assert text(await client.call_tool("break off")) == "resumed"
        assert old.resumed == [str(old.heard[-1]["id"])]


async def test_a_session_that_is_gone_is_begun_anew() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp") as client:
        await client.call_tool("a")
        old.sessions.clear()
        results = await asyncio.gather(*(client.call_tool(name) for name in ("b", "c", "d")))
        assert [text(result) for result in results] == ["b", "c", "d"]
        assert old.methods().count("initialize") == 2, "one new session for all three"


async def test_an_interim_result_on_an_old_session_is_refused() -> None:
    old = OldServer()
    async with served(old.app) as base, Client(f"{base}/mcp") as client:
        with pytest.raises(InvalidResult, match=f"A server of {VERSION} must not send interim results"):
            await client.call_tool("interim")


# Servers that change while we run


class Changing:
    """One address, behind which the server is replaced."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            return await send({"type": "lifespan.shutdown.complete"})
        return await self.app(scope, receive, send)


def modern_server() -> Server:
    server = Server("new")

    @server.tool
    async def ask() -> str:
        """Not ask."""
        return "modern"

    return server


async def test_an_upgrade_is_noticed() -> None:
    changing = Changing(OldServer().app)
    async with served(changing) as base, Client(f"{base}/mcp") as client:
        await client.call_tool("a")
        assert client.session.era == "legacy"
        changing.app = modern_server().asgi()
        assert text(await client.call_tool("ask")) == "modern"
        assert client.session.era == "modern"
        assert eras.known_era(f"{base}/mcp") == "modern"


async def test_an_upgrade_between_two_clients_is_noticed() -> None:
    changing = Changing(OldServer().app)
    async with served(changing) as base:
        async with Client(f"{base}/mcp") as client:
            assert client.session.era == "legacy"
        changing.app = Changing(_only_modern(modern_server().asgi()))
        async with Client(f"{base}/mcp") as client:
            assert client.session.era == "modern"
            assert text(await client.call_tool("ask")) == "modern"


def _only_modern(app: Any) -> Any:
    """A server that knows no handshake."""

    async def choose(scope: Any, receive: Any, send: Any) -> None:
        if b"mcp-method" in dict(scope["headers"]):
            return await app(scope, receive, send)
        await send({"type": "http.response.start", "status": 400, "headers": []})
        return await send({"type": "http.response.body", "body": b""})

    return choose


async def test_a_downgrade_is_noticed() -> None:
    old = OldServer()
    changing = Changing(modern_server().asgi())
    async with served(changing) as base, Client(f"{base}/mcp") as client:
        assert text(await client.call_tool("ask")) == "modern"
        changing.app = old.app
        assert text(await client.call_tool("b")) == "b"
        assert client.session.era == "legacy"


async def test_a_server_that_only_refuses_is_not_taken_for_another_era() -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    modern = modern_server().asgi()
    calls = 0

    async def choosy(scope: Any, receive: Any, send: Any) -> None:
        nonlocal calls
        name = dict(scope["headers"]).get(b"mcp-name")
        calls += name == b"bad"
        await (refuse if name == b"bad" else modern)(scope, receive, send)

    async with served(Changing(choosy)) as base, Client(f"{base}/mcp") as client:
        with pytest.raises(Exception, match="HTTP status 400"):
            await client.call_tool("bad")
        assert client.session.era == "modern"
        assert calls == 1, "a call that was refused is not sent again"
        assert text(await client.call_tool("ask")) == "modern"


async def test_only_the_wanted_era_is_spoken_if_one_is_named() -> None:
    old = OldServer()
    async with served(old.app) as base:
        with pytest.raises(ServerError, match="Missing session"):
            await Client(f"{base}/mcp", mode="modern").__aenter__()
        async with Client(f"{base}/mcp", mode="legacy") as client:
            assert client.session.era == "legacy"
    assert "server/discover" not in old.methods()[1:]
