"""The code in the documentation is the code of files that are run, and every link leads somewhere."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, Server
from ekiden.testing import CANCEL, DECLINE, CallFailed, ScriptedClient
from tests.serving import served

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\S+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http)([^)#]+)")

sys.path.insert(0, str(ROOT / "examples"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_code_stands_in_a_file_that_is_run(page: Path) -> None:
    for language, title, code in BLOCK.findall(page.read_text()):
        if language == "python":
            assert title, f"a block without a title in {page.name}"
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
    connected = ScriptedClient(server, {"log in": None})
    assert text(await connected.call_tool("connect_account")) == "Connected."


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
    blocks = [code for _, title, code in BLOCK.findall(page) if title == "examples/returns.py"]
    assert len(blocks) == 4
    (tmp_path / "returns.py").write_text("\n\n".join(blocks))
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


async def test_the_mounted_server_answers_under_its_path() -> None:
    import httpx2

    mounted = __import__("mounted")
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
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


@pytest.mark.parametrize(("customer", "name"), [("aiko", "Aiko"), ("slow", "you")])
async def test_a_timeout_in_a_step_is_remembered(customer: str, name: str) -> None:
    client = ScriptedClient(server_of("timeouts"), {f"Send greetings to {name}?": True})
    assert text(await client.call_tool("greet", {"customer": customer})) == f"Greetings to {name}."
