"""Gateways in front of servers of this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, Server
from ekiden.client.sessions.session import ClientRequest
from ekiden.gateway import Upstream, gateway
from tests.serving import PATIENCE

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
KEYS = [bytes(range(32))]


async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
    kind = params.requested_schema["properties"]["value"]["type"]
    return ElicitResult(action="accept", content={"value": True if kind == "boolean" else "Ada"})


def text(result: Any) -> str:
    return str(result.content[0].text)


@asynccontextmanager
async def in_front(*upstreams: Upstream, **options: Any) -> AsyncGenerator[Server, None]:
    """A running gateway."""
    server = gateway(upstreams, keys=KEYS, **options)
    async with server.running():
        yield server


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


async def listed(client: Client) -> dict[str, Any]:
    """The result of `tools/list`, with its `_meta`."""
    return await client._connection.exchange(ClientRequest("tools/list", {}))
