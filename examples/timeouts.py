"""A timeout that is part of a step: the code of "why replay"."""

import asyncio

from ekiden import Context, Server

server = Server("greetings")


class Directory:
    """A service that knows names, and is slow for some."""

    async def find(self, customer: str) -> str:
        await asyncio.sleep(60 if customer == "slow" else 0)
        return customer.title()


directory = Directory()


async def look_up(customer: str) -> str:
    """Ask a service that may be slow, but not for ever."""
    async with asyncio.timeout(0.2):
        return await directory.find(customer)


@server.tool
async def greet(customer: str, ctx: Context) -> str:
    """Greet by name where the name can be had."""
    try:
        name = await ctx.step(look_up, customer, raises=[TimeoutError])
    except TimeoutError:
        name = "you"
    answer = await ctx.elicit(f"Send greetings to {name}?", bool)
    return f"Greetings to {name}." if answer.data else "No greetings."


if __name__ == "__main__":
    server.run()
