"""A subscription to tasks in an `MCPServer` ends when the host's verifier refuses its token."""

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from ekiden import Context
from ekiden.engine import admission
from ekiden.integrations.mcp import Durable
from tests.serving import PATIENCE, headers_for, post, request, served, soon

ALL = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


class Verifier:
    """A verifier of the host, whose tokens can be revoked, or expire."""

    def __init__(self) -> None:
        self.is_revoked = False
        self.expires: int | None = None

    async def verify_token(self, token: str) -> AccessToken | None:
        if self.is_revoked:
            return None
        return AccessToken(token=token, client_id="app", scopes=[], subject="zoe", expires_at=self.expires)


def shop(verifier: Verifier, **options: Any) -> MCPServer[Any]:
    where = AnyHttpUrl("http://127.0.0.1:1")
    auth = AuthSettings(
        issuer_url=where, resource_server_url=where, required_scopes=[], validate_token_resource=False
    )
    server = MCPServer("shop", auth=auth, token_verifier=verifier, **options)
    durable = Durable(server, keys=["bqMJ8Ow9t3d0DPSLtXsMOGN0yGFoC9wVLNeUl4hJH9E="], store="memory:")

    @durable.tool(task="required")
    async def waiting(ctx: Context) -> str:
        await ctx.sleep(3600)
        return "done"

    return server


@pytest.mark.parametrize("ends", ["revoked", "expired"])
@pytest.mark.parametrize("subscriptions", [None, False], ids=["with the host's", "alone"])
async def test_a_subscription_to_tasks_ends_with_its_token(
    ends: str, subscriptions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_SECONDS", 0.05)
    verifier = Verifier()
    server = shop(verifier, **({} if subscriptions is None else {"subscriptions": subscriptions}))
    async with served(server.streamable_http_app()) as base:
        creating = request("tools/call", {"name": "waiting", "arguments": {}}, **ALL)
        created = (await post(base, creating, authorization="Bearer t")).json()["result"]
        wanted = {"taskIds": [created["taskId"]], "toolsListChanged": True}
        message = request("subscriptions/listen", {"notifications": wanted}, **ALL)
        verifier.expires = int(time.time()) + 2 if ends == "expired" else None
        headers = {**headers_for(message), "authorization": "Bearer t"}
        said: list[Any] = []
        async with (
            asyncio.timeout(PATIENCE),
            httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http,
            http.stream("POST", base + "/mcp", json=message, headers=headers) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    said.append(json.loads(line[5:]))
                    verifier.is_revoked = ends == "revoked"
        verifier.is_revoked = True
        refused = await soon(post(base, request("tools/list"), authorization="Bearer t"))
    assert said[0]["method"] == "notifications/subscriptions/acknowledged"
    assert "result" in said[-1]
    assert refused.status_code == 401
