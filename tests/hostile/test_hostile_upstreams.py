"""Upstreams of a gateway that want its memory, its time or its log: nobody else is to notice them."""

import asyncio
import contextlib
import json
import logging
from typing import Any, cast

import pytest

from ekiden import Client
from ekiden.gateway import Upstream, proxies
from ekiden.gateway.relay import Relay
from ekiden.server.context import Context
from tests.gateway.in_front import in_front, listed, until
from tests.serving import VERSION

from .evil import STREAM, Deed, answers, evil, says

CAN = answers({"supportedVersions": [VERSION], "capabilities": {"tools": {"listChanged": True}}})
SCHEMA = {"type": "object"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def spelled(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_of_a_list_without_an_end_only_so_much_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    too_large = tool("large", description="x" * 300_000)
    many = [too_large, *(tool(f"bad{number}", title=5) for number in range(500))]
    many += [tool(f"t{number}") for number in range(4000)]
    async with (
        evil({"server/discover": CAN}, many) as server,
        in_front(_named(server.url)) as front,
        Client(front) as client,
    ):
        names = [each["name"] for each in (await listed(client))["tools"]]
    assert names == [f"e_t{number}" for number in range(2000 - 501)]
    assert len(spelled(caplog)) < 30


async def test_an_upstream_that_always_tells_of_changes_is_not_read_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxies, "_REST", 1e6, raising=False)
    told = 0

    async def tell(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        nonlocal told
        writer.write(STREAM)
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        change = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": about}
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"data: " + json.dumps(change).encode() + b"\n\n")
                await writer.drain()
                await asyncio.sleep(0.01)
                told += 1

    deeds: dict[str, Deed] = {"server/discover": CAN, "subscriptions/listen": tell}
    async with evil(deeds) as server, in_front(_named(server.url)):
        await until(lambda: told >= 60)
        lists = [each for each in server.messages if each["method"] == "tools/list"]
    assert len(lists) <= 2


async def test_what_an_upstream_says_cannot_steer_the_log_nor_fill_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = "\x1b[2J\x1b[31mred\nERROR root: forged\u202e" + "A" * 100_000
    error = {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32000, "message": words}}
    refuses = says(json.dumps(error).encode())
    deeds: dict[str, Deed] = {"server/discover": CAN, "tools/list": refuses}
    async with evil(deeds) as server, in_front(_named(server.url)):
        pass
    assert len(spelled(caplog)) == 1
    assert spelled(caplog)[0].isprintable()
    assert len(spelled(caplog)[0]) < 500


def _named(url: str) -> Upstream:
    return Upstream(name="e", target=url)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("https://me:SECRET@mcp.example:8443/SECRET/mcp?key=SECRET", "https://mcp.example:8443"),
        ("uvx server --token SECRET", "uvx"),
        (["uvx", "server", "--token", "SECRET"], "uvx"),
    ],
)
def test_the_log_names_an_upstream_without_its_secrets(target: Any, told: str) -> None:
    assert Upstream(name="u", target=target).address == told


class _Slow:
    """The context of a call whose client does not read yet."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.taken: list[object] = []

    async def log(self, level: str, data: object, *, logger: str | None) -> None:
        await self.reads.wait()
        self.taken.append(data)


async def test_log_messages_for_a_client_that_does_not_read_take_little_memory() -> None:
    slow = _Slow()
    relay = Relay(cast("Context[Any]", slow))
    for number in range(50):
        relay.log({"level": "error", "data": f"{number} " + "x" * 600_000})
        await asyncio.sleep(0)
    slow.reads.set()
    await relay.flush()
    assert [str(data).split()[0] for data in slow.taken] == ["0", "49"]
