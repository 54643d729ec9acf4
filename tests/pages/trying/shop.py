"""A server with something of every kind, and the page Try about it."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ekiden import Audio, Client, Context, Image, Server, ToolError
from ekiden.pages.trying.kinds import ClientKind
from ekiden.pages.trying.page import TryPages
from ekiden.pages.trying.status import ServerStatus
from ekiden.pages.web import Site
from ekiden.stores.memory import MemoryStore
from tests.pages.browsing import Browser, Seen
from tests.serving import PATIENCE, served

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""One pixel, as a PNG."""


class Address(BaseModel):
    """Where it goes."""

    city: str
    floor: Annotated[int, Field(ge=0)] | None = None


def shop() -> Server:  # noqa: C901  one function for each kind of thing
    server = Server("shop", version="1.2", keys=[b"k" * 32], store=MemoryStore())

    @server.tool
    async def refund(
        ctx: Context, order: Annotated[str, Field(description="The number on the receipt.")]
    ) -> str:
        """Refund an order, after asking how."""
        await ctx.info(f"looking up {order}")
        how = await ctx.elicit(f"Refund {order} how?", Literal["card", "voucher"])
        pieces = await ctx.elicit("How many pieces?", Annotated[int, Field(ge=1, le=10)])
        return f"{pieces.data} of {order} by {how.data}"

    @server.tool
    async def ship(to: Address, size: Literal["S", "M"], gift: bool = False) -> dict[str, Any]:
        """Ship something."""
        return {"city": to.city, "size": size, "gift": gift}

    @server.tool
    async def summarize(ctx: Context, text: str) -> str:
        reply = await ctx.sample(f"Summarize {text}", max_tokens=100)
        return "".join(block.text for block in reply.content_as_list if block.type == "text")

    @server.tool
    async def where(ctx: Context) -> str:
        return ", ".join(str(root.uri) for root in await ctx.list_roots())

    @server.tool
    async def pay(ctx: Context) -> str:
        done = await ctx.elicit_url("Pay at the bank", "https://bank.example/pay")
        return done.action

    @server.tool(task="optional")
    async def slow(ctx: Context) -> str:
        await ctx.progress(1, 2, "half of it")
        sure = await ctx.elicit("Go on?", bool)
        return f"sure: {sure.data}"

    @server.tool
    async def show() -> list[Image | Audio | str]:
        return [Image(data=PICTURE), Audio(data=b"RIFF....WAVE"), "<b>text</b>"]

    @server.tool
    async def fail() -> str:
        raise ToolError("closed <today>")

    @server.prompt
    def greet(name: str, tone: str = "kind") -> str:
        """Greets somebody."""
        return f"Say hello to {name}, {tone}"

    @server.resource("shop://prices")
    def prices() -> str:
        return "apple 1"

    @server.resource("shop://orders/{number}")
    def order(number: str) -> str:
        return f"order {number}"

    return server


class Tester(Browser):
    """Uses the page as a person does."""

    async def call(self, kind: str, name: str, form: dict[str, Any] | None = None, **how: Any) -> str:
        """Post the form; the address of the page that shows the call."""
        seen = await self.send(kind, name, form, **how)
        assert seen.status == 303, seen.words
        return seen.headers["location"].partition("#")[0]

    async def send(self, kind: str, name: str, form: dict[str, Any] | None = None, **how: Any) -> Seen:
        """Post the form."""
        code = (await self.get(f"/?kind={kind}&name={name}")).hidden("form_code")
        able = how.get("able", ["forms", "links", "models", "roots", "tasks"])
        told = {"form_code": code, "kind": kind, "name": name, "era": how.get("era", "modern"), "able": able}
        return await self.post("/try", {**told, **(form or {})})

    async def until(self, where: str, words: str) -> Seen:
        """The page, once it has these words."""
        async with asyncio.timeout(PATIENCE):
            while words not in (seen := await self.get(where)).words:
                await asyncio.sleep(0.02)
        return seen

    async def answer(self, where: str, number: int, form: dict[str, Any], action: str = "accept") -> Seen:
        """Answer a question of a call."""
        code = (await self.get(where)).hidden("form_code")
        run = where.partition("run=")[2]
        told = {"form_code": code, "answer": action, **form}
        return await self.post(f"/try/runs/{run}/questions/{number}", told)


@asynccontextmanager
async def trying(server: Server | None = None) -> AsyncGenerator[tuple[Tester, TryPages]]:
    """A browser at the page Try of a server."""
    async with served(shop() if server is None else server) as base:
        status = ServerStatus(f"{base}/mcp")
        status.serving()

        @asynccontextmanager
        async def open_client(kind: ClientKind, **callbacks: Any) -> AsyncGenerator[Client]:
            async with Client(status.where, mode=kind.era, timeout=None, **callbacks) as client:
                yield client

        site = Site(secure=False, shared={"site_name": "ekiden dev", "tabs": (("/", "Try"),)})
        pages = TryPages(site, status, open_client, folder="file:///work")
        try:
            yield Tester(site), pages
        finally:
            await pages.close()
