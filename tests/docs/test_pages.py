"""The code in the documentation is the code of files that are run, and every link leads somewhere."""

import asyncio
import base64
import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, Context, Server, ServerError
from ekiden.testing import CANCEL, DECLINE, CallFailed, ScriptedClient
from scripts.ports import free_port
from tests.docs.blocks import blocks
from tests.inside.processes import interpreter
from tests.peers.running import await_listening
from tests.serving import served

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!http)([^)#]+)")

sys.path.insert(0, str(ROOT / "examples"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_code_stands_in_a_file_that_is_run(page: Path) -> None:
    for language, title, code in blocks(page.read_text()):
        if language == "python":
            assert title, f"a block without a title in {page.name}"
        if title:
            assert code in (ROOT / title).read_text(), f"{page.name}: {title} has other code"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_leads_to_every_page() -> None:
    docs = ROOT / "docs"
    linked = set(LINK.findall((docs / "README.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert linked == pages


def text(result: dict[str, object]) -> str:
    content = result["content"]
    assert isinstance(content, list)
    return str(content[0]["text"])


def server_of(module: str) -> Server:
    loaded = __import__(module)
    server = loaded.server
    assert isinstance(server, Server)
    return server


def test_the_readme_is_short_and_has_what_a_user_of_fastmcp_can_paste() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 120
    assert any("durable = Durable(mcp" in code for _, _, code in blocks(readme))


async def test_the_refund_of_the_readme_asks_and_pays_once(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(server_of("refund"), {"Refund 120 to Aiko?": {"ok": True}})
    assert text(await client.call_tool("refund", {"order_id": "7"})) == "Refunded 120."
    assert capsys.readouterr().out == "paid 120 back to Aiko\n"
    declined = ScriptedClient(server_of("refund"), {"Refund 120 to Aiko?": DECLINE})
    assert text(await declined.call_tool("refund", {"order_id": "7"})) == "Not refunded."


async def test_the_weather_of_the_first_tutorial_answers() -> None:
    client = ScriptedClient(server_of("weather"))
    result = await client.call_tool("forecast", {"city": "Hakone", "days": 2})
    assert result["structuredContent"] == [{"day": 1, "celsius": 8}, {"day": 2, "celsius": 7}]
    assert (await client.read_resource("weather://Tokyo/now"))["contents"][0]["text"] == "18 °C"
    assert (
        "Odawara" in (await client.get_prompt("pack", {"city": "Odawara"}))["messages"][0]["content"]["text"]
    )
    with pytest.raises(CallFailed):
        await client.read_resource("weather://..%2Fsecret/now")


async def test_the_trip_of_the_second_tutorial_asks_for_everything() -> None:
    server = server_of("trip")
    booked = ScriptedClient(server, {"what do you need?": {"train": "kodama", "email": "a@example.com"}})
    assert "Reserved 1 seats" in text(await booked.call_tool("book", {"city": "Nara"}))
    schema = next(iter(booked.rounds[0].requests.values()))["params"]["requestedSchema"]
    assert schema["properties"]["train"]["oneOf"][1] == {"const": "kodama", "title": "Kodama, slow and cheap"}
    dismissed = await ScriptedClient(server, {"what do you need?": CANCEL}).call_tool(
        "book", {"city": "Nara"}
    )
    assert dismissed["isError"]
    answers = {"mood": "eating", "one sight": "the castle", "roots": ["file:///home/aiko"]}
    planned = ScriptedClient(server, answers)
    assert text(await planned.call_tool("plan", {"city": "Odawara"})) == (
        "eating near the castle, saved to file:///home/aiko"
    )
    assert len(planned.rounds) == 2
    for answer, ends in ((CANCEL, "Not connected."), (DECLINE, "Not connected."), (None, "Connected.")):
        for _ in range(2):
            visitor = ScriptedClient(server, {"log in": answer})
            assert text(await visitor.call_tool("connect_account")) == ends
    asked = ScriptedClient(server, {"What shall it be?": "tea"})
    assert text(await asked.call_tool("souvenir")) == "A tea."
    silent = ScriptedClient(server, capabilities={})
    assert text(await silent.call_tool("souvenir")) == "A paper fan, as usual."


async def test_the_approval_of_the_why_page_counts_once() -> None:
    server = server_of("once")
    client = ScriptedClient(server, {"Pay 30?": True})
    assert text(await client.call_tool("pay", {"amount": 30})) == "Paid 30."
    retry = client.answer(client.rounds[0])
    again = await client.round("tools/call", {"name": "pay", "arguments": {"amount": 30}, **retry})
    assert text(again.result) == "Paid 30."
    payments = __import__("once").payments
    assert list(payments.charges.values()) == [30]
    wizard = ScriptedClient(server, {"What is your name?": "Aiko", "Hi Aiko! How old are you?": "30"})
    assert text(await wizard.call_tool("wizard")) == "Welcome, Aiko! You are 30 years old."


async def test_the_engine_of_the_reference_answers_without_a_transport() -> None:
    assert await __import__("engine").main() == "Refunded."


async def test_the_refund_inside_an_mcpserver_asks_and_goes_on_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EKIDEN_KEYS", base64.b64encode(bytes(range(32))).decode())
    server = __import__("in_mcpserver").server

    async def agree(params: ElicitRequestFormParams) -> ElicitResult:
        assert params.message == "Refund 7?"
        return ElicitResult(action="accept", content={"ok": True})

    async with served(server.streamable_http_app()) as base, Client(f"{base}/mcp", elicit=agree) as client:
        refunded = await client.call_tool("refund", {"order_id": "7"})
        hours = await client.call_tool("opening_hours")
    assert [block.text for block in (*refunded.content, *hours.content)] == ["receipt of 7", "9 to 5"]
    assert capsys.readouterr().out == "paid 7 back\n"


async def test_the_refund_inside_fastmcp_asks_and_goes_on_in_the_background(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "EKIDEN_KEYS": base64.b64encode(bytes(range(32))).decode(),
        "FASTMCP_PORT": str(port := free_port()),
        "FASTMCP_SHOW_SERVER_BANNER": "false",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [interpreter("fastmcp"), str(ROOT / "examples" / "in_fastmcp.py")]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)

    async def agree(params: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"ok": True})

    try:
        await asyncio.to_thread(await_listening, process, port, log)
        async with Client(f"http://127.0.0.1:{port}/mcp", elicit=agree) as client:
            refunded = await client.call_tool("refund", {"order_id": "7"})
            hours = await client.call_tool("opening_hours")
    finally:
        process.terminate()
        process.wait(20)
    assert [block.text for block in (*refunded.content, *hours.content)] == ["receipt of 7", "9 to 5"]
    assert log.read_text().count("paid 7 back") == 1


async def test_the_pictures_of_the_reference_are_drawn() -> None:
    client = ScriptedClient(server_of("pictures"))
    told, drawn = (await client.call_tool("chart", {"values": [3, 5]}))["content"]
    assert (told["text"], drawn["type"], drawn["mimeType"]) == ("2 bars:", "image", "image/svg+xml")
    assert base64.b64decode(drawn["data"]).count(b"<rect") == 2
    (file,) = (await client.call_tool("export", {"values": [3, 5]}))["content"]
    assert file["resource"] == {"uri": "file:///values.csv", "mimeType": "text/csv", "text": "3\n5"}


async def test_an_order_uses_both_ways_of_asking_as_a_task_and_without() -> None:
    server = server_of("once")
    asked: list[str] = []

    async def answer(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": "Ramen" if len(asked) == 1 else True})

    async with server.running(), Client(server, elicit=answer) as client:
        result = await client.call_tool("order")
    assert result.content[0].text == "Soup."  # type: ignore[union-attr]
    assert asked == ["Which dish?", "Ramen is out. Take the soup?"]
    plain = ScriptedClient(server, {"Which dish?": "Udon", "Udon is out. Take the soup?": False})
    assert text(await plain.call_tool("order")) == "Nothing."


async def test_the_refund_that_takes_longer_becomes_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EKIDEN_STORE", f"sqlite:///{tmp_path}/returns.db")
    server = server_of("returns")
    asked: list[str] = []

    async def answer(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": "late" if params.message == "Why?" else True})

    async with server.running():
        async with Client(server, elicit=answer) as client:
            result = await client.call_tool("refund", {"order_id": "42"})
        assert result.content[0].text == "Refunded 59.9 to Ada (late)."  # type: ignore[union-attr]
        plain = ScriptedClient(server, {"Refund 59.9": True, "Why?": "other", "boss": False})
        assert text(await plain.call_tool("refund", {"order_id": "43"})) == "The boss did not agree."
    assert asked == ["Refund 59.9 to Ada?", "Why?", "Does the boss agree?"]


def test_the_blocks_of_the_page_on_longer_work_are_a_file_that_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial" / "longer-work.md").read_text()
    parts = [code for _, title, code in blocks(page) if title == "examples/returns.py"]
    assert len(parts) == 4
    (tmp_path / "returns.py").write_text("\n\n".join(parts))
    answers = ["--answer", "Refund=yes", "--answer", "Why=late", "--answer", "boss=yes"]
    command = [sys.executable, "-m", "ekiden.cli", "call", "returns.py", "refund", "order_id=42", *answers]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "Refunded 59.9 to Ada (late).\n", done.stderr
    assert (tmp_path / "returns.db").exists()


async def test_the_tasks_of_the_client_page_are_handed_in_and_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EKIDEN_STORE", f"sqlite:///{tmp_path}/returns.db")
    monkeypatch.delitem(sys.modules, "returns", raising=False)  # Its store is named when it is loaded.
    client = __import__("client")
    async with served(server_of("returns")) as base:
        handle = await client.hand_in(f"{base}/mcp", "42")
        assert handle is not None
        assert await client.collect(f"{base}/mcp", handle) == "Refunded 59.9 to Ada (late)."


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(("action", "told"), [("accept", "sda is empty."), ("decline", "Nothing was wiped.")])
async def test_the_mounted_server_asks_before_it_wipes(mode: Any, action: Any, told: str) -> None:
    mounted = __import__("mounted")

    async def answer(_: object) -> ElicitResult:
        return ElicitResult(action=action)

    async with Client(mounted.server, elicit=answer, mode=mode) as client:
        (block,) = (await client.call_tool("wipe", {"disk": "sda"})).content
    assert block.type == "text"
    assert block.text == told


async def test_the_mounted_server_answers_under_its_path() -> None:
    import httpx2

    mounted = __import__("mounted")
    mounted.counts.clear()
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    transport = httpx2.ASGITransport(app=mounted.api)
    base = "http://tools.example"
    async with mounted.server.running(), httpx2.AsyncClient(transport=transport, base_url=base) as client:
        response = await client.post("/tools/mcp", json=body, headers=headers)
    assert response.json()["result"]["structuredContent"] == 3
    assert mounted.counts["tools/call", "Complete"] == 1
    assert response.json()["result"]["_meta"]["tools.example/region"] == "eu-1"


async def test_the_examples_of_the_client_page_do_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    client = __import__("client")
    weather = ROOT / "examples" / "weather.py"
    days = await client.forecast([sys.executable, str(weather), "--stdio"])
    assert [(day.day, day.celsius) for day in days] == [(1, 8), (2, 7)]
    assert await client.plan(server_of("trip")) == "anything near the castle, saved to file:///home/aiko"
    async with served(server_of("refund")) as base:
        text = await client.begin(f"{base}/mcp", "7")
        assert text is not None
        assert await client.finish(f"{base}/mcp", text, {"ok": True})
    assert capsys.readouterr().out == "paid 120 back to Aiko\n"


async def test_the_client_page_overhears_what_a_server_logs() -> None:
    client = __import__("client")
    async with served(__import__("test_trip").make_bakery()) as base:
        assert await client.overheard(f"{base}/mcp") == ["info: the oven is hot"]


async def test_a_prompt_of_the_client_page_is_begun_here_and_finished_there() -> None:
    server = Server("kitchen", keys=[b"a key of at least thirty-two bytes!"])

    @server.prompt
    async def menu(dish: str, ctx: Context) -> str:
        guests = await ctx.elicit("How many guests?", int)
        return f"{dish} for {guests.data}"

    client = __import__("client")
    async with served(server) as base:
        pending = await client.begin_prompt(f"{base}/mcp", "soba")
        assert pending is not None
        assert "soba for 4" in await client.finish_prompt(f"{base}/mcp", pending, {"value": 4})


async def test_the_client_page_follows_signs_in_and_is_careful() -> None:
    client, server = __import__("client"), server_of("weather")
    tools = ["forecast"]
    async with served(server) as base:
        following = asyncio.ensure_future(client.follow(f"{base}/mcp", 1))
        async with asyncio.timeout(10):
            while not following.done():
                server.resource_updated("weather://Tokyo/now")
                await asyncio.sleep(0.05)
        assert following.result() == ["notifications/resources/updated"]
        assert await client.careful(f"{base}/mcp") == tools
        assert await client.signed_in(f"{base}/mcp") == tools


async def test_the_shop_of_the_page_on_extensions_hands_out_receipts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import receipts

    await receipts.main()
    assert capsys.readouterr().out.splitlines() == [
        "the shop says: {'currency': 'EUR'}",
        "the shop has printed receipt 1",
        "One tea.",
        "printed: receipt 1",
        "One cup.",
        "printed: ",
    ]
    async with Client(receipts.server) as client, asyncio.timeout(10):
        receipts.goods[5] = {}
        await client.notify("notifications/receipts/lost", {"number": 5})
        while 5 in receipts.goods:
            await asyncio.sleep(0)
        with pytest.raises(ServerError, match="There is no receipt 5"):
            await client.request("receipts/redeem", {"number": 5})


async def test_the_shop_of_the_page_on_skills_publishes_them_and_a_card(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import skilled

    await skilled.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" - ")[0] for line in lines[:3]] == [
        "skill://shop/refunds/SKILL.md",
        "skill://shop/greeting/SKILL.md",
        "skill://shop/today/SKILL.md",
    ]
    assert lines[3:5] == ["['SKILL.md', 'examples/email.md']", "Dear customer,"]
    async with Client(skilled.server) as client:
        assert "tea is half the price" in (await client.load_skill("skill://shop/today/SKILL.md")).text
    async with served(skilled.server) as base, httpx2.AsyncClient(trust_env=False) as http:
        card = (await http.get(f"{base}/mcp/server-card")).json()
    assert card["remotes"][0]["url"] == "https://shop.example.com/mcp"


def test_the_page_on_traces_shows_the_spans_that_its_example_prints() -> None:
    example = [sys.executable, str(ROOT / "examples" / "trace.py")]
    done = subprocess.run(example, capture_output=True, text=True, timeout=60, check=True)
    said, _, spans = done.stdout.partition("\n")
    assert said == "Booked from Tokyo to Kyoto."
    page = (ROOT / "docs" / "how-to" / "trace.md").read_text()
    assert spans == next(code for language, _, code in blocks(page) if language == "text")


ENDS = {"sign_up": "Welcome, Aiko!", "slogan": "A SLOGAN FOR TEA.", "where": "file:///srv/tea"}


@pytest.mark.parametrize("mode", ["modern", "legacy"])
@pytest.mark.parametrize("question", ENDS)
async def test_both_styles_of_a_question_end_alike_on_both_sides_and_on_both_wires(
    question: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = __import__("styles_client"), server_of("styles")
    monkeypatch.setattr(client, "Client", functools.partial(Client, mode=mode))
    async with served(server) as base:
        ways = [getattr(client, name) for name in (question, f"{question}_by_hand")]
        ends = [await way(f"{base}/mcp", tool) for way in ways for tool in (question, f"{question}_by_hand")]
    assert ends == [ENDS[question]] * 4


@pytest.mark.parametrize("tool", ["sign_up", "sign_up_by_hand"])
async def test_a_form_that_is_filled_in_wrongly_is_asked_again_in_both_styles(tool: str) -> None:
    client = ScriptedClient(server_of("styles"))
    first = await client.round("tools/call", {"name": tool, "arguments": {}})
    (key,) = first.requests
    retry: dict[str, Any] = {"inputResponses": {key: {"action": "accept", "content": {"name": 5}}}}
    if first.state is not None:
        retry["requestState"] = first.state
    second = await client.round("tools/call", {"name": tool, "arguments": {}, **retry})
    assert "Who are you?" in str(second.requests)


async def test_both_eras_are_greeted(capsys: pytest.CaptureFixture[str]) -> None:
    await __import__("both_eras").main()
    assert capsys.readouterr().out.splitlines() == [
        "2026-07-28 Hello, Aiko! That took a round.",
        "2025-11-25 Hello, Aiko! That took a pushed request.",
    ]


def test_the_tests_of_the_testing_page_pass(pytester: pytest.Pytester) -> None:
    for name in ("test_trip.py", "trip.py"):
        pytester.makepyfile(**{name.removesuffix(".py"): (ROOT / "examples" / name).read_text()})
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=8)


@pytest.mark.parametrize(("customer", "name"), [("aiko", "Aiko"), ("slow", "you")])
async def test_a_timeout_in_a_step_is_remembered(customer: str, name: str) -> None:
    client = ScriptedClient(server_of("timeouts"), {f"Send greetings to {name}?": True})
    assert text(await client.call_tool("greet", {"customer": customer})) == f"Greetings to {name}."
