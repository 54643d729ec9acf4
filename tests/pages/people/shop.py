"""A server that asks, for the tests of the pages."""

import re
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

from ekiden import Context, Notice, Pages, Person, Server
from tests.pages.browsing import Browser, Seen

ORIGIN = "https://mcp.example"
LINK = re.compile(re.escape(ORIGIN) + r"(/ask/[0-9a-f]{32}\.[\w-]{43})")
KEYS = [b"k" * 32]


class Approval(BaseModel):
    approve: bool = Field(title="Approve it?")
    reason: str = Field("", title="Why", max_length=80)


class Size(BaseModel):
    size: Literal["small", "large"]


class Post:
    """Keeps what people were told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.is_broken = False

    async def __call__(self, notice: Notice) -> None:
        if self.is_broken:
            raise OSError("the post is on strike")
        self.notices.append(notice)

    def path(self, number: int = -1) -> str:
        return self.notices[number].link.removeprefix(ORIGIN)


def shop(
    store: Any,
    ran: list[str],
    *,
    post: Post | None = None,
    clock: Callable[[], float] | None = None,
    wait: float = 0.0,
    pages: dict[str, Any] | None = None,
    **options: Any,
) -> Server:
    if clock is not None:
        options["clock"] = clock
    server = Server(
        "shop",
        title="The Shop",
        keys=KEYS,
        store=store,
        pages=Pages(ORIGIN, notify=post or Post(), wait_seconds=wait, **(pages or {})),
        **options,
    )

    def note(what: str) -> None:
        ran.append(what)

    @server.tool
    async def refund(ctx: Context, order: int) -> str:
        """Give the money of an order back."""
        await ctx.step(note, f"look {order}", key="look")
        answer = await ctx.elicit(f"Refund order {order}?", Approval)
        if answer.action != "accept":
            return f"refund: {answer.action}"
        if not answer.data.approve:
            return "refused"
        await ctx.step(note, f"pay {order}", key="pay")
        return f"paid {order}, {answer.data.reason}"

    @server.tool
    async def buy(ctx: Context) -> str:
        approval = await ctx.elicit(
            "Buy it?",
            Approval,
            who=Person(
                "finance@example.com",
                remind=600,
                deadline=3600,
                escalate=("boss@example.com",),
                default=Approval(approve=False, reason="late"),
            ),
        )
        await ctx.step(note, "bought", key="buy")
        size = await ctx.elicit("Which size?", Size)
        said = (approval.data.approve, approval.data.reason) if approval.data else ()
        return " ".join(map(str, (*said, size.data.size if size.data else size.action)))

    @server.tool
    async def count(ctx: Context) -> dict[str, int]:
        pieces = await ctx.elicit("How many?", int)
        return {"pieces": pieces.data or 0}

    @server.prompt
    async def letter(ctx: Context) -> str:
        name = await ctx.elicit("To whom?", str)
        return f"Dear {name.data}"

    return server


def pages_of(server: Server) -> Browser:
    """A browser at the server's pages, over its own application."""
    return Browser(server.asgi(allowed_hosts=["mcp.example"]), host="mcp.example")


async def fill(browser: Browser, path: str, action: str = "accept", **fields: Any) -> Seen:
    """Open a page, and send its form."""
    page = await browser.get(path)
    assert page.status == 200, page.words
    form = {"form_code": page.hidden("form_code"), "action": action}
    form.update({f"/{name}": value for name, value in fields.items()})
    return await browser.post(path, form, origin=ORIGIN)


def link_in(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[1]
