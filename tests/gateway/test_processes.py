"""Real gateways in front of real servers: ours, the official SDKs of both eras, FastMCP; over HTTP and stdio.

One upstream is ours, over HTTP, behind two gateways. The first gateway has three more, on stdio.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import pytest_asyncio

from ekiden import Client, LeftOut, PendingCall, ServerError, TaskHandle
from ekiden.client.sessions.session import ClientRequest
from tests.peers import running as peers
from tests.peers.foreign import PEERS, Person

from .processes import ROOT, Running, config, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("gateway")]

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
FOREIGN = {"official": "mcp-2.3", "fast": "fastmcp-4.1", "old": "mcp-1.30"}
KEY = "q3Yp0m8vQm1xk2bN7c5tZr9wLhJ4sXe6uVgTdA1yBfo"


class House(NamedTuple):
    shop: Running
    first: Running
    second: Running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House, None]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    commands = {name: next(p for p in PEERS if p.name == peer).command() for name, peer in FOREIGN.items()}
    on_stdio = {
        name: {"command": command[0], "args": [*command[1:], "stdio"]} for name, command in commands.items()
    }
    served = str(Path(__file__).with_name("served.py"))
    async with running(["run", served], folder / "shop.log", EKIDEN_KEYS=KEY) as shop:
        in_front = {"shop": {"type": "http", "url": "${SHOP_URL}"}}
        settings = {"EKIDEN_KEYS": KEY, "SHOP_URL": shop.url}
        async with (
            running(
                ["gateway", config(folder, **in_front, **on_stdio)], folder / "1.log", **settings
            ) as first,
            running(["gateway", config(folder, **in_front)], folder / "2.log", **settings) as second,
        ):
            yield House(shop, first, second)
            started = first.children()
            assert len(started) == len(FOREIGN)
            assert first.stop() in (0, -signal.SIGTERM), first.log.read_text()
            assert [child for child in started if child.is_running()] == []


def _client(server: Running, era: Era, **callbacks: Any) -> Client:
    person = Person()
    known = {"elicit": person.elicit, "sample": person.sample, "roots": person.roots}
    return Client(server.url, mode=era, timeout=30, **{**known, **callbacks})


def _text(result: Any) -> str:
    assert not result.is_error, result
    return str(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", FOREIGN)
async def test_what_any_upstream_asks_reaches_the_client_and_the_answer_the_upstream(
    house: House, name: str, era: Era
) -> None:
    async with _client(house.first, era) as client:
        told = [
            _text(await client.call_tool(f"{name}_order", {"item": "tea"})),
            _text(await client.call_tool(f"{name}_order", {"item": "salt"})),
            _text(await client.call_tool(f"{name}_poem")),
            _text(await client.call_tool(f"{name}_journey")),
        ]
        assert told == ["tea: 2", "salt: decline", "old pond", "Sendai, 3 days: Walk."]
        briefing = await client.get_prompt(f"{name}_briefing", {"topic": "trains"})
        assert briefing.messages[0].content.text == "Explain trains to children."  # type: ignore[union-attr]
        vault = await client.read_resource(f"{name}+vault://mio")
        assert vault.contents[0].text == "opened with sesame"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", FOREIGN)
async def test_lists_results_errors_progress_and_log_pass(house: House, name: str) -> None:
    log: list[Any] = []
    async with _client(house.first, "modern", on_log=log.append) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools[f"{name}_order"].input_schema["required"] == ["item"]
        templates = {template.uri_template for template in await client.list_resource_templates()}
        assert f"{name}+vault://{{name}}" in templates
        result = await client.call_tool(f"{name}_add", {"a": 40, "b": 2})
        assert result.structured_content == {"total": 42}
        failed = await client.call_tool(f"{name}_fails")
        assert failed.is_error
        assert "The ticket office is closed." in str(failed.content)
        with pytest.raises(ServerError, match=r"nope://x"):
            await client.read_resource(f"{name}+nope://x")
        steps: list[Any] = []
        assert (
            _text(await client.call_tool(f"{name}_travels", progress=lambda *s: steps.append(s))) == "arrived"
        )
        assert steps == [(1, 3, "left"), (2, 3, "half way"), (3, 3, "there")]
        assert _text(await client.call_tool(f"{name}_talks")) == "said"
        assert [message["level"] for message in log] == ["info", "warning"]
        completion = await client.complete(prompt=f"{name}_briefing", argument="topic", value="tra")
        assert completion.values == ["trains", "trams"]


async def test_questions_of_a_2025_server_on_stdio_find_their_calls_when_many_run_at_once(
    house: House,
) -> None:
    async with _client(house.first, "modern") as one, _client(house.first, "legacy") as other:
        calls = [
            (one, other)[number % 2].call_tool("old_order", {"item": f"lot {number}"}) for number in range(8)
        ]
        told = [_text(result) for result in await asyncio.gather(*calls)]
        assert told == [f"lot {number}: {number}" for number in range(8)]


async def test_another_gateway_answers_the_next_round(house: House) -> None:
    async with _client(house.first, "modern") as one, _client(house.second, "modern") as other:
        pending = await one.start_tool("shop_ask")
        assert isinstance(pending, PendingCall)
        (key,) = pending.requests
        again = await other.resume(pending, {key: {"action": "accept", "content": {"value": "Ada"}}})
        assert isinstance(again, PendingCall)
        (key,) = again.requests
        assert again.requests[key]["params"]["message"] == "Sure, Ada?"
        done = await one.resume(again, {key: {"action": "accept", "content": {"value": True}}})
        assert _text(done) == "Ada accept"


async def test_a_task_goes_through_either_gateway(house: House) -> None:
    async with _client(house.first, "modern") as one, _client(house.second, "modern") as other:
        handle = await one.start_tool("shop_audit")
        assert isinstance(handle, TaskHandle)
        seen = other.task(handle.id)
        async with asyncio.timeout(20):
            while (status := await seen.status()).status == "working":
                await asyncio.sleep(0.05)
        assert (status.status, status.task_id) == ("input_required", handle.id)
        (key,) = status.input_requests
        told: list[str] = []
        waiting = asyncio.create_task(
            handle.wait(timeout=20, on_status=lambda s: told.append(s.status), answer=_leave_open)
        )
        await seen.answer({key: {"action": "accept", "content": {"value": True}}})
        assert _text(await waiting) == "audited accept"
        assert told[-1] == "completed"
        again = await one.start_tool("shop_audit")
        assert isinstance(again, TaskHandle)
        await other.task(again.id).cancel()
        async with asyncio.timeout(20):
            while (await again.status()).status != "cancelled":
                await asyncio.sleep(0.05)
        with pytest.raises(ServerError, match="Unknown task"):
            await one.task(handle.id[:-4] + "AAAA").status()


async def _leave_open(questions: Any) -> Any:
    return {key: LeftOut() for key in questions}


async def test_the_official_client_is_asked_through_the_gateway(house: House) -> None:
    python = ROOT / ".peers" / "mcp" / "bin" / "python"
    peers.require(ROOT / ".peers" / "mcp")
    names = [f"{name}_order" for name in FOREIGN]
    script = str(Path(__file__).with_name("official_client.py"))
    process = await asyncio.create_subprocess_exec(
        str(python), script, house.first.url, *names, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    printed, log = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, log.decode()
    seen = json.loads(printed)
    assert seen["told"] == dict.fromkeys(names, "tea: 2")
    assert "shop_add" in seen["listed"]


async def test_an_upstream_that_dies_is_named_fails_clearly_and_comes_back(house: House) -> None:
    async with _client(house.second, "modern") as client:
        assert _text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"
        house.shop.kill()
        try:
            with pytest.raises(ServerError, match="The server behind 'shop' is not available: it cannot be"):
                await client.call_tool("shop_add", {"a": 1, "b": 2})
            async with asyncio.timeout(20):
                while (await _list_meta(client)).get("ekiden/unavailable") is None:
                    await asyncio.sleep(0.05)
            assert (await _list_meta(client))["ekiden/unavailable"] == {"shop": "it cannot be reached"}
            assert "shop_add" in [tool.name for tool in await client.list_tools()]
        finally:
            await house.shop.start()
        async with asyncio.timeout(30):
            while "ekiden/unavailable" in await _list_meta(client):
                await asyncio.sleep(0.05)
        assert _text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"


async def _list_meta(client: Client) -> dict[str, Any]:
    result = await client._connection.exchange(ClientRequest("tools/list", {}))
    meta: dict[str, Any] = result["_meta"]
    return meta
