"""The handshake of 2025, and what each version gets to see."""

import json
from typing import Any

import pytest

from ekiden import Server
from tests.serving import meta, served
from tests.serving import request as modern_request

from .handlers import make_server
from .old_client import VERSIONS, Message, call, hello, notification, old_client, raw_client, request, text

BEFORE_JUNE = ("2025-03-26", "2024-11-05")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_version_that_is_spoken_is_agreed_on(version: str) -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        welcome = await client.open(version)
        assert welcome["protocolVersion"] == version
        assert welcome["instructions"] == "Ask away."
        assert welcome["capabilities"] == {
            "logging": {},
            **({"completions": {}} if version != "2024-11-05" else {}),
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "tools": {"listChanged": True},
        }
        assert client.session is not None
        assert len(client.session) >= 32
        assert all(0x21 <= ord(letter) <= 0x7E for letter in client.session)


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "2026-06-XX", "2099-01-01", ""])
async def test_a_version_that_is_not_spoken_gets_the_newest_with_a_handshake(version: str) -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        assert (await client.open(version))["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("2025-11-25", {"name", "version", "title", "description", "websiteUrl", "icons"}),
        ("2025-06-18", {"name", "version", "title"}),
        ("2025-03-26", {"name", "version"}),
        ("2024-11-05", {"name", "version"}),
    ],
)
async def test_the_server_describes_itself_in_words_of_the_version(version: str, known: set[str]) -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        assert set((await client.open(version))["serverInfo"]) == known


async def test_every_session_has_an_id_of_its_own() -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        ids = set()
        for _ in range(20):
            await client.open()
            ids.add(client.session)
            client.session, client.version = None, ""
        assert len(ids) == 20


async def everything_listed(client: Any) -> dict[str, list[Message]]:
    fields = {
        "tools/list": "tools",
        "prompts/list": "prompts",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }
    found: dict[str, list[Message]] = {}
    for method, field in fields.items():
        result = (await client.ask(method))["result"]
        assert set(result) == {field}, "no field of 2026 and no cursor"
        found[field] = result[field]
    return found


def keys(value: Any) -> set[str]:
    """Every key anywhere in a value, but for those below schemas."""
    if isinstance(value, dict):
        inner = (keys(item) for key, item in value.items() if not key.endswith("Schema"))
        return set(value).union(*inner)
    return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("version", VERSIONS)
async def test_lists_have_the_fields_of_the_version_and_no_others(version: str) -> None:
    later = {
        "2025-11-25": set[str](),
        "2025-06-18": {"icons"},
        "2025-03-26": {"icons", "outputSchema", "_meta"},
        "2024-11-05": {"icons", "outputSchema", "_meta", "annotations"},
    }[version]
    of_2026 = {"resultType", "ttlMs", "cacheScope"}
    async with served(make_server()) as base, old_client(base, version=version) as client:
        listed = await everything_listed(client)
        assert keys(listed) & (later | of_2026) == set()
        add = next(tool for tool in listed["tools"] if tool["name"] == "add")
        hints = None if version == "2024-11-05" else {"title": "Adds", "readOnlyHint": True}
        assert add.get("annotations") == hints
        assert ("title" in add) == (version not in BEFORE_JUNE)
        assert ("outputSchema" in add) == (version not in BEFORE_JUNE)
        assert ("icons" in add) == (version == "2025-11-25")
        number = next(tool for tool in listed["tools"] if tool["name"] == "number")
        wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
        assert number.get("outputSchema") == (None if version in BEFORE_JUNE else wrapped)
        argument = next(prompt for prompt in listed["prompts"] if prompt["name"] == "greet")["arguments"][0]
        assert ("title" in argument) == (version not in BEFORE_JUNE)


@pytest.mark.parametrize("version", VERSIONS)
async def test_results_have_the_fields_of_the_version_and_no_others(version: str) -> None:
    async with served(make_server()) as base, old_client(base, version=version) as client:
        added = (await client.answered(call("add", a=1, b=2)))["result"]
        assert json.loads(added["content"][0]["text"]) == {"total": 3}
        assert added.get("structuredContent") == (None if version in BEFORE_JUNE else {"total": 3})
        numbered = (await client.answered(call("number")))["result"]
        structured = {} if version in BEFORE_JUNE else {"structuredContent": {"result": 42}}
        assert numbered == {"content": [{"type": "text", "text": "42"}], **structured}
        (linked,) = (await client.answered(call("link")))["result"]["content"]
        if version in BEFORE_JUNE:
            assert linked == {"type": "text", "text": "The paper: eras://paper"}
        else:
            assert (linked["type"], "icons" in linked) == ("resource_link", version == "2025-11-25")
        read = (await client.ask("resources/read", {"uri": "eras://page/3"}))["result"]
        assert read == {"contents": [{"uri": "eras://page/3", "mimeType": "text/plain", "text": "page 3"}]}
        got = (await client.ask("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}}))["result"]
        assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello, Ann"}}]
        assert keys([added, numbered, read, got]) & {"resultType", "ttlMs", "cacheScope", "_meta"} == set()
        ref = {"type": "ref/prompt", "name": "greet"}
        completed = await client.ask(
            "completion/complete", {"ref": ref, "argument": {"name": "who", "value": "A"}}
        )
        assert completed["result"]["completion"]["values"] == ["Ann", "Anna"]
        assert (await client.ask("ping"))["result"] == {}


async def test_a_list_that_changes_is_listed_anew() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as client:
        before = (await client.ask("tools/list"))["result"]["tools"]

        async def late() -> str:
            """Come late."""
            return "here"

        server.add_tool(late)
        after = (await client.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in after] == [*(tool["name"] for tool in before), "late"]


async def test_pages_have_cursors_of_their_own() -> None:
    async with served(make_server(page_size=3)) as base, old_client(base) as client:
        names: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            result = (await client.ask("tools/list", cursor))["result"]
            names += [tool["name"] for tool in result["tools"]]
            assert len(result["tools"]) <= 3
            if "nextCursor" not in result:
                break
            cursor = {"cursor": result["nextCursor"]}
        assert len(names) == len(set(names)) > 10


async def test_errors_have_the_codes_of_the_time() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        missing = await client.ask("resources/read", {"uri": "eras://nothing"})
        assert (missing["error"]["code"], missing["error"]["data"]) == (-32002, {"uri": "eras://nothing"})
        assert (await client.answered(call("no such tool")))["error"]["code"] == -32602
        for method in ("server/discover", "subscriptions/listen", "no/such/method"):
            assert (await client.ask(method))["error"]["code"] == -32601
        assert (await client.ask("tools/call", {"arguments": {}}))["error"]["code"] == -32602
        broken = (await client.answered(call("add", a="x")))["result"]
        assert broken["isError"] is True


async def test_an_argument_that_clients_of_2026_mirror_needs_no_header() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        assert text(await client.answered(call("mirrored", region="eu"))) == "eu"


async def test_both_eras_are_served_at_once_by_one_process() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        body = modern_request("tools/list")
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list", "accept": "*/*"}
        for _ in range(3):
            modern = await client.http.post(client.url, json=body, headers=headers)
            assert modern.json()["result"]["resultType"] == "complete"
            assert "resultType" not in (await client.ask("tools/list"))["result"]


async def test_middleware_sees_what_is_called_in_a_session() -> None:
    server = make_server()
    seen: list[tuple[str, str]] = []

    @server.middleware
    async def note(request: Any, call_next: Any) -> Any:
        seen.append((request.method, request.meta.protocol_version))
        return await call_next(request)

    async with served(server) as base, old_client(base, version="2025-06-18") as client:
        await client.ask("tools/list")
        await client.ask("ping")
        await client.answered(call("add", a=1, b=1))
    called = ("initialize", "notifications/initialized", "tools/list", "ping", "tools/call")
    assert seen == [(method, "2025-06-18") for method in called]


# On one channel


async def test_on_a_channel_the_opening_message_decides() -> None:
    server = make_server()
    async with server.connect() as channel:
        await channel.send(modern_request("server/discover"))
        assert (await channel.receive())["result"]["resultType"] == "complete"
        await channel.send(hello("2025-06-18"))
        assert (await channel.receive())["result"]["protocolVersion"] == "2025-06-18"
        await channel.send(notification("notifications/initialized"))
        await channel.send(request("tools/list", id="a"))
        listed = await channel.receive()
        assert (listed["id"], set(listed["result"])) == ("a", {"tools"})
        await channel.send(modern_request("tools/list", request_id=9))
        assert set((await channel.receive())["result"]) == {"tools"}
        await channel.send(hello())
        assert (await channel.receive())["error"]["code"] == -32600


async def test_on_a_channel_nobody_asks_whose_session_it_is() -> None:
    def who(request: Any) -> str:
        return str(request.headers[b"authorization"])

    async with make_server(principal=who).connect() as channel:
        await channel.send(hello())
        assert "result" in await channel.receive()


async def test_an_initialize_that_is_refused_decides_nothing() -> None:
    async with make_server().connect() as channel:
        await channel.send(request("initialize", {"protocolVersion": "2025-11-25"}))
        assert (await channel.receive())["error"]["code"] == -32602
        await channel.send(modern_request("tools/list"))
        assert (await channel.receive())["result"]["resultType"] == "complete"


async def test_an_initialize_of_2026_is_no_handshake() -> None:
    async with make_server().connect() as channel:
        await channel.send(request("initialize", {"_meta": meta()}))
        assert (await channel.receive())["error"]["code"] == -32601


async def test_a_session_on_a_channel_hears_of_changes() -> None:
    server = make_server()
    async with server.connect() as channel:
        await channel.send(hello())
        await channel.receive()
        await channel.send(notification("notifications/initialized"))
        await channel.send(request("resources/subscribe", {"uri": "eras://paper"}))
        assert (await channel.receive())["result"] == {}
        server.resource_updated("eras://paper")
        server.resource_updated("eras://page/1")
        server.remove_tool("number")
        heard = [await channel.receive(), await channel.receive()]
        assert [(note["method"], note["params"]) for note in heard] == [
            ("notifications/resources/updated", {"uri": "eras://paper"}),
            ("notifications/tools/list_changed", {}),
        ]


def test_only_one_experimental_version_exists() -> None:
    from ekiden import Client, UsageError

    with pytest.raises(UsageError, match="2026-06-XX"):
        Server("x", experimental_protocol_version="2026-06-YY")
    with pytest.raises(UsageError, match="2026-06-XX"):
        Client("http://127.0.0.1:1/mcp", experimental_protocol_version="later")
