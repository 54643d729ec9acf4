"""`gateway`: many upstreams behind one server."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ekiden.client.target import ClientLimits
from ekiden.errors import UsageError
from ekiden.gateway.config import read_config
from ekiden.gateway.proxies import Proxy
from ekiden.gateway.upstream import Upstream
from ekiden.server.server import Server

__all__ = ["gateway"]


def gateway(
    upstreams: str | Path | Sequence[Upstream],
    *,
    name: str = "gateway",
    limits: ClientLimits | None = None,
    wait_seconds: float = 10.0,
    **options: Any,
) -> Server:
    """A server that offers what all upstreams have, each under its name as a prefix.

    `upstreams` is a file of `mcpServers`, or a list. `limits` are what is accepted from each of them,
    `wait_seconds` how long the start waits for them. All other options are those of `Server`: `auth`, `keys`,
    `store` for sessions of 2025, and so on.
    """
    listed = read_config(upstreams) if isinstance(upstreams, str | Path) else list(upstreams)
    if "lifespan" in options:
        raise UsageError("gateway() has a lifespan of its own: mount it in a server that has yours")
    proxies = [Proxy(upstream, limits=limits, wait_seconds=0) for upstream in listed]

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        waiting = [asyncio.ensure_future(each.connector.first_attempt()) for each in proxies]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_seconds)
        for task in waiting:
            task.cancel()
        yield

    server = Server(name, lifespan=lifespan, **options)
    for each in proxies:
        server.mount(each, prefix=each.name)
    server.endpoint.registry.declare_all()
    return server
