"""The official Python client signs in by itself, from nothing but a URL. Run by `.peers/mcp`.

    python signing_in.py URL < plan

The plan is a list of tools with their arguments. What they answered is printed as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types import ElicitResult


class Memory:
    """Keeps tokens for as long as the script runs."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """The user's browser: it opens the page, and is sent back at once."""

    def __init__(self) -> None:
        self.visited: list[str] = []
        self._back: dict[str, str] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as http:
            response = await http.get(url, follow_redirects=False)
        self.visited.append(httpx2.URL(url).params.get("scope", ""))
        self._back = dict(httpx2.URL(response.headers["location"]).params)

    async def come_back(self) -> AuthorizationCodeResult:
        back = self._back
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))


async def main(url: str, plan: list[tuple[str, dict[str, Any]]], mode: Any) -> None:
    browser, answers = Browser(), []
    about = {"client_name": "Agent", "redirect_uris": ["http://localhost:3000/callback"]}
    provider = OAuthClientProvider(
        url, OAuthClientMetadata.model_validate(about), Memory(), browser.open, browser.come_back
    )

    async def agree(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"ok": True})

    async with httpx2.AsyncClient(auth=provider, trust_env=False, timeout=30) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, elicitation_callback=agree, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            for name, arguments in plan:
                result = await client.call_tool(name, arguments)
                answers.append(result.content[0].text)
    print(json.dumps({"tools": tools, "answers": answers, "asked for": browser.visited}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.load(sys.stdin), sys.argv[2]))
