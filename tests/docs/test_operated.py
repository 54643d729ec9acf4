"""The server of the page on operations does what the page says."""

import sys
from pathlib import Path

import httpx2
import pytest

from ekiden import Server
from tests.serving import PATIENCE, call, post, served

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))


@pytest.fixture
def server() -> Server:
    made = __import__("operated").server
    assert isinstance(made, Server)
    return made


async def test_its_pages_are_served_and_its_tools_are_limited(server: Server) -> None:
    async with (
        served(server) as base,
        httpx2.AsyncClient(base_url=base, timeout=PATIENCE, trust_env=False) as client,
    ):
        index = await client.get("/")
        assert (index.text, index.headers["content-type"]) == (
            "<h1>Tools</h1>The endpoint is /mcp.",
            "text/html",
        )
        hook = await client.post("/hooks/deploy?dry=1", json={"version": "1.2"})
        assert hook.json() == {"seen": "1.2", "dry": True}
        replies = [await post(base, call("greet", {"name": "Ada"})) for _ in range(3)]
        assert {reply.status_code for reply in replies} <= {200, 429}
        assert replies[0].json()["result"]["content"][0]["text"] == "Hello, Ada!"
