"""Gateways in front of servers of this process: what passes, what must not, and what is held."""

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from ekiden import Client, PendingCall, Server, ServerError, TaskHandle, TransportError, UsageError
from ekiden.client.connection import ServerConnection
from ekiden.client.sessions.session import ClientRequest
from ekiden.gateway import Upstream, gateway, proxies, proxy
from ekiden.wire.modern import Request
from tests.gateway.in_front import ERAS, KEYS, Era, elicit, in_front, listed, text, until
from tests.gateway.upstreams import shop
from tests.serving import served, soon

# Both eras, on both sides


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_an_upstream_of_ours_answers_as_if_it_were_called_itself(era: Era, client_era: Era) -> None:
    async with served(shop(keys=KEYS, store="memory:")) as base, AsyncExitStack() as stack:
        upstream = Upstream(name="shop", target=f"{base}/mcp", mode=era)
        server = await stack.enter_async_context(in_front(upstream))
        log, steps = list[Any](), list[Any]()
        client = await stack.enter_async_context(
            Client(server, mode=client_era, elicit=elicit, on_log=log.append)
        )
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert (tools["shop_add"].title, tools["shop_add"].description) == ("Add", "Add two numbers.")
        told = [
            text(await client.call_tool("shop_add", {"a": 1, "b": 2})),
            text(await client.call_tool("shop_ask")),
            text(await client.call_tool("shop_noisy", progress=lambda *step: steps.append(step))),
            text(await client.call_tool("shop_broken")),
            text(await client.call_tool("shop_add", {"a": "x", "b": 2})),
        ]
        assert told[:4] == ["3", "Ada accept", "done", "Tool 'broken' failed"]
        assert told[4].startswith("Invalid arguments for tool 'add'")
        assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert [(each["level"], each["data"], each["logger"]) for each in log] == [
            ("info", "halfway", "shop")
        ]
        prompt = await client.get_prompt("shop_greeting", {"name": "Bob"})
        assert prompt.messages[0].content.text == "Ada, Bob"  # type: ignore[union-attr]
        read = (await client.read_resource("shop+order://7")).contents[0]
        assert (str(read.uri), read.text) == ("shop+order://7", "order 7")  # type: ignore[union-attr]
        with pytest.raises(ServerError) as caught:
            await client.read_resource("shop+order://")
        assert caught.value.data == {"uri": "shop+order://"}
        values = (await client.complete(argument="name", value="x", prompt="shop_greeting")).values
        assert values == ["xa", "xb"]
        if era == "legacy" or client_era == "modern":
            assert text(await client.call_tool("shop_audit")) == "audited accept"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_be_asked_is_not_and_the_upstream_decides(era: Era) -> None:
    async with (
        in_front(Upstream(name="shop", target=shop(keys=KEYS), mode=era)) as server,
        Client(server) as client,
    ):
        try:
            told = text(await client.call_tool("shop_ask"))
        except ServerError as error:
            told = str(error)
        assert "elicitation" in told
        assert text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"


async def test_a_proxy_alone_is_a_server() -> None:
    async with Client(proxy(shop(), name="shop"), elicit=elicit) as client:
        assert (await client.discover()).instructions == "Be kind."
        assert text(await client.call_tool("ask")) == "Ada accept"
        outer = Server("outer", keys=KEYS)
        outer.mount(proxy(shop(), name="shop"), prefix="s")
        async with Client(outer, elicit=elicit) as mounted:
            assert text(await mounted.call_tool("s_ask")) == "Ada accept"


# Nothing is held


async def test_nothing_stays_in_the_gateway_between_the_rounds_of_a_call() -> None:
    async with (
        served(shop(keys=KEYS)) as base,
        in_front(Upstream(name="shop", target=f"{base}/mcp")) as server,
        Client(server, elicit=elicit) as client,
    ):
        first = await client.start_tool("shop_ask")
        assert isinstance(first, PendingCall)
        gc.collect()
        before = len(gc.get_objects())
        pending = [await client.start_tool("shop_ask") for _ in range(50)]
        states = {call.state for call in pending if isinstance(call, PendingCall)}
        assert len(states) == 50
        pending.clear()
        gc.collect()
        assert len(gc.get_objects()) - before < 50  # Not one object for each open call.


async def test_another_gateway_with_the_same_keys_goes_on_and_one_with_others_does_not() -> None:
    async with served(shop(keys=KEYS)) as base:
        upstream = Upstream(name="shop", target=f"{base}/mcp")
        strange = gateway([upstream], keys=[bytes(32)])
        async with (
            Client(gateway([upstream], keys=KEYS), elicit=elicit) as one,
            Client(gateway([upstream], keys=KEYS), elicit=elicit) as other,
            Client(strange, elicit=elicit) as stranger,
        ):
            pending = await one.start_tool("shop_ask")
            assert isinstance(pending, PendingCall)
            assert isinstance(await other.resume(pending), PendingCall)
            with pytest.raises(ServerError, match="restart the call"):
                await stranger.resume(pending)


async def test_a_state_is_good_for_one_caller_and_one_call() -> None:
    who = ["ada"]
    async with served(shop(keys=KEYS)) as base:
        server = gateway([Upstream(name="shop", target=f"{base}/mcp")], keys=KEYS, principal=lambda _: who[0])
        async with Client(server, elicit=elicit) as client:
            pending = await client.start_tool("shop_ask")
            assert isinstance(pending, PendingCall)
            who[0] = "bob"
            with pytest.raises(ServerError, match="restart the call"):
                await client.resume(pending)


async def test_a_state_that_is_too_large_to_carry_is_an_error_that_names_the_upstream() -> None:
    async def answer(request: Request, call_next: Any) -> Any:
        outcome = await call_next(request)
        if hasattr(outcome, "state"):
            outcome.state = "x" * 300_000
        return outcome

    huge = shop(keys=KEYS)
    huge.middleware(answer)
    async with (
        served(huge) as base,
        in_front(Upstream(name="shop", target=f"{base}/mcp")) as server,
        Client(server, elicit=elicit) as client,
    ):
        with pytest.raises(ServerError, match="behind 'shop' is not available: it does not keep to the"):
            await client.call_tool("shop_ask")


# Tasks


async def test_a_task_belongs_to_who_made_it_and_is_notified() -> None:
    who = ["ada"]
    async with served(shop(keys=KEYS, store="memory:")) as base:
        server = gateway([Upstream(name="shop", target=f"{base}/mcp")], keys=KEYS, principal=lambda _: who[0])
        async with Client(server, elicit=elicit) as client:
            handle = await client.start_tool("shop_audit")
            assert isinstance(handle, TaskHandle)
            notified: list[Any] = []
            client._connection.watchers.add(notified.append)
            wanted = {"notifications": {"taskIds": [handle.id]}}
            listening = asyncio.create_task(
                client._connection.exchange(ClientRequest("subscriptions/listen", wanted))
            )
            await until(lambda: any(m["method"] == "notifications/tasks" for m in notified))
            status = await handle.status()
            await handle.answer({key: {"action": "decline"} for key in status.input_requests})
            await until(lambda: notified[-1]["params"].get("status") == "completed")
            ended = notified[-1]["params"]
            assert ended["taskId"] == handle.id
            assert ended["result"]["content"][0]["text"] == "audited decline"
            listening.cancel()
            who[0] = "bob"
            with pytest.raises(ServerError, match="Unknown task"):
                await handle.status()


async def test_the_task_of_a_2025_upstream_goes_on_although_the_upstream_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may outlive the upstream's process: who was told that it failed would have it done twice."""
    failures = {"tasks/get": [False, True, True], "tasks/result": [True]}
    exchange, may_end, runs = ServerConnection.exchange, asyncio.Event(), list[str]()
    upstream = Server("shop", store="memory:", keys=KEYS)

    @upstream.tool(task="required")
    async def audit() -> str:
        runs.append("audited")
        await may_end.wait()
        return "audited"

    async def away_at_times(connection: ServerConnection, sent: ClientRequest) -> Any:
        if (plan := failures.get(sent.method)) and plan.pop(0):
            if not any(failures.values()):
                may_end.set()
            raise TransportError("the connection was lost")
        return await exchange(connection, sent)

    async with (
        served(upstream) as base,
        in_front(Upstream(name="shop", target=f"{base}/mcp", mode="legacy")) as server,
        Client(server) as client,
    ):
        monkeypatch.setattr(ServerConnection, "exchange", away_at_times)
        assert text(await soon(client.call_tool("shop_audit"))) == "audited"
    assert (runs, failures) == (["audited"], {"tasks/get": [], "tasks/result": []})


# Credentials


def _seen(text: str) -> dict[str, Any]:
    seen: dict[str, Any] = eval(text.partition(" ")[2])
    return seen


async def test_no_credential_goes_to_another_upstream() -> None:
    async with (
        served(shop(keys=KEYS)) as one,
        served(shop(keys=KEYS)) as two,
        served(shop(keys=KEYS)) as three,
    ):
        server = gateway(
            [
                Upstream(
                    name="one", target=f"{one}/mcp", headers={"Authorization": "Bearer one", "X-Key": "1"}
                ),
                Upstream(name="two", target=f"{two}/mcp"),
                Upstream(name="three", target=f"{three}/mcp", forward_headers=("Authorization",)),
            ],
            keys=KEYS,
        )
        async with served(server) as base, AsyncExitStack() as stack:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers={"Authorization": "Bearer mine", "X-Other": "o", "X-Key": "c"})
            )
            client = await stack.enter_async_context(Client(f"{base}/mcp", http_client=http))
            seen = [_seen(text(await client.call_tool(f"{name}_whoami"))) for name in ("one", "two", "three")]
        assert seen == [
            {"authorization": "Bearer one", "x-key": "1", "x-other": None},
            {"authorization": None, "x-key": None, "x-other": None},
            {"authorization": "Bearer mine", "x-key": None, "x-other": None},
        ]


async def test_headers_are_not_forwarded_into_a_session_that_all_clients_share(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(shop()) as base:
        upstream = Upstream(name="s", target=f"{base}/mcp", mode="legacy", forward_headers=("Authorization",))
        async with in_front(upstream) as server, Client(server) as client:
            assert (await listed(client))["_meta"]["ekiden/unavailable"] == {"s": "it cannot be used"}
        assert "none of their headers can be sent on; leave forwardHeaders out" in caplog.text


# Changes


@pytest.mark.parametrize("era", ERAS)
async def test_changes_of_lists_and_resources_pass(era: Era) -> None:
    upstream = shop(keys=KEYS)
    async with served(upstream) as base, AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            in_front(Upstream(name="shop", target=f"{base}/mcp", mode=era))
        )
        client = await stack.enter_async_context(Client(server))
        stream = client.listen(tools=True, uris=("shop+config://app",))
        reading = asyncio.create_task(anext(stream))
        await until(lambda: "config://app" in upstream.endpoint.registry.hub.watched())
        upstream.resource_updated("config://app")
        change = await soon(reading)
        assert (change["method"], change["params"]["uri"]) == (
            "notifications/resources/updated",
            "shop+config://app",
        )
        upstream.add_tool(lambda: "late", name="late")
        assert (await soon(anext(stream)))["method"] == "notifications/tools/list_changed"
        assert text(await client.call_tool("shop_late")) == "late"
        await stream.aclose()
        await until(lambda: "config://app" not in upstream.endpoint.registry.hub.watched())


async def test_lists_are_read_again_although_no_change_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_REFRESH_SECONDS", 0.05)
    upstream = shop()
    async with in_front(Upstream(name="shop", target=upstream)) as server, Client(server) as client:
        upstream.endpoint.registry.hub.drain()
        upstream.add_tool(lambda: "late", name="late")
        await until(lambda: server.endpoint.registry.tools.get("shop_late") is not None)
        assert text(await client.call_tool("shop_late")) == "late"


@pytest.mark.parametrize("is_up", [True, False])
async def test_no_upstream_gets_the_calls_of_another_by_a_name_that_begins_like_its_prefix(
    is_up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def one(name: str, tool: str) -> Upstream:
        server = Server(name)
        server.add_tool(lambda: name, name=tool)
        return Upstream(name=name, target=server)

    other = one("a_b", "c") if is_up else Upstream(name="a_b", target=["/nowhere/server"])
    async with in_front(one("a", "b_c"), other) as server, Client(server) as client:
        if is_up:
            assert text(await client.call_tool("a_b_c")) == "a_b"
        else:
            with pytest.raises(ServerError, match="behind 'a_b' is not available"):
                await client.call_tool("a_b_c")
    assert "Tool 'a_b_c' belongs to the prefix 'a_b'" in caplog.text


def test_a_gateway_has_a_lifespan_of_its_own() -> None:
    with pytest.raises(UsageError, match="mount it in a server that has yours"):
        gateway([], lifespan=lambda _: None)
