"""Upstream servers for the tests of the gateway."""

from typing import Any

from ekiden import Accepted, Context, Server


def shop(**options: Any) -> Server:
    """A server with one of everything. `ask` has two questions, one after the other."""
    server = Server("shop", version="7", instructions="Be kind.", **options)
    _add_tools(server)
    _add_others(server)
    if "store" in options:

        @server.tool(task="required")
        async def audit(ctx: Context[Any]) -> str:
            sure = await ctx.elicit("Audit?", bool)
            return f"audited {sure.action}"

    return server


def _add_tools(server: Server) -> None:

    @server.tool(title="Add")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        name = await ctx.elicit("Your name?", str)
        if not isinstance(name, Accepted):
            return name.action
        sure = await ctx.elicit(f"Sure, {name.data}?", bool)
        return f"{name.data} {sure.action}"

    @server.tool
    async def noisy(ctx: Context[Any]) -> str:
        for done in (1, 2, 3):
            await ctx.progress(done, 3, f"step {done}")
        await ctx.info("halfway", logger="shop")
        return "done"

    @server.tool
    def broken() -> str:
        raise RuntimeError("secret")

    @server.tool
    async def whoami(ctx: Context[Any]) -> str:
        seen = {name: ctx.request.header(name) for name in ("authorization", "x-key", "x-other")}
        return f"{ctx.meta.client_info and ctx.meta.client_info['name']} {seen}"


def _add_others(server: Server) -> None:
    @server.prompt
    async def greeting(name: str, ctx: Context[Any]) -> str:
        style = await ctx.elicit("Which style?", str)
        return f"{style.data}, {name}" if isinstance(style, Accepted) else name

    @server.resource("config://app", mime_type="text/plain")
    def config() -> str:
        return "currency=EUR"

    @server.resource("order://{number}")
    def order(number: str) -> str:
        return f"order {number}"

    @server.completion(argument="name", prompt="greeting")
    def names(value: str) -> list[str]:
        return [value + "a", value + "b"]
