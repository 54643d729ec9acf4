"""A server with stories, and its pages in a browser without a screen."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from ekiden import Context, Retry, Server
from ekiden.pages.desk import Desk, Everybody, Viewer
from ekiden.pages.web import Site
from ekiden.stores.memory import MemoryStore
from tests.pages.browsing import Browser
from tests.stories.telling import stories_of

OPERATOR = Viewer("ann", values=True, acts=True)
ONLY_LOOKS = Viewer("bob")


def site_of(server: Server, viewer: Viewer = OPERATOR) -> Site:
    store: Any = server._store
    assert server.stories is not None
    desk = Desk(
        stories=server.stories, tasks=None if store is None else store.tasks, access=Everybody(viewer)
    )
    site = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(site)
    return site


tries: list[int] = []


def charge(amount: int) -> str:
    tries.append(amount)
    if amount < 0 and len(tries) < 3:
        raise OSError("the bank is away")
    return f"receipt {amount}"


def shop(store: Any = None) -> Server:
    """`pay` asks twice, `ship` is a task that sleeps and asks, `retry` is a task with a step that fails."""
    server = Server("shop", keys=[bytes(32)], record=True, store=store or MemoryStore())
    tries.clear()

    @server.tool
    async def pay(amount: int, ctx: Context) -> str:
        receipt = await ctx.step(charge, amount)
        await ctx.info("charged <b>")
        await ctx.elicit("Send the receipt?", bool)
        size = await ctx.elicit("Which size?", Literal["small", "large"])
        return f"{receipt} {size.action}"

    @server.tool(task="required")
    async def ship(parcel: str, ctx: Context) -> str:
        await ctx.step(charge, 1, key="charge")
        await ctx.sleep(3600)
        answer = await ctx.elicit(f"Send {parcel}?", bool)
        return f"sent {answer.action}"

    @server.tool(task="required")
    async def retry(ctx: Context) -> str:
        receipt = await ctx.step(charge, -1, retry=Retry(seconds=0.01))
        answer = await ctx.elicit("Well?", bool)
        return f"{receipt} {answer.action}"

    return server


async def settled(server: Server) -> None:
    """All that has happened is written."""
    await asyncio.sleep(0)
    await stories_of(server)


@asynccontextmanager
async def opened(
    viewer: Viewer = OPERATOR, store: Any = None
) -> AsyncGenerator[tuple[Server, Browser], None]:
    server = shop(store)
    async with server.running():
        yield server, Browser(site_of(server, viewer))


def links(text: str, below: str) -> list[str]:
    """The paths of links below a path, in order and once each."""
    return list(dict.fromkeys(re.findall(rf'href="({below}/[^"?]+)"', text)))
