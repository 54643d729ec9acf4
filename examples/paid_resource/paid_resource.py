"""A tool that spends money: it quotes the cost, asks, quotes again before it pays, and pays once.

ekiden run examples/paid_resource/paid_resource.py --workers 3
"""

import os

from cloud import Cloud, NoSuchRegion, Project, Quote, of_environment
from pydantic import BaseModel, Field

from ekiden import Context, Server, ToolError

MOST_QUOTES = 3
"""How often a user is asked about a price that moves. After that, somebody should look at it."""


class Agree(BaseModel):
    """What the user says to a price."""

    create: bool = Field(title="Create it, and pay")


def make_server(cloud: Cloud, store: str = "memory:") -> Server:
    """A server that creates projects of this provider."""
    server = Server("paid resource", version="1.0.0", store=store)

    async def create(name: str, quote: Quote, ctx: Context) -> Project:
        # The step runs once. If a worker dies between the provider's answer and ours, it begins again with
        # the same key, so that the provider charges once, too.
        return await cloud.create(name, quote, idempotency_key=ctx.step_key)

    @server.tool(once=True)
    async def create_project(name: str, region: str, ctx: Context) -> str:
        """Create a project, after the user has agreed to what it costs."""
        try:
            quote = await ctx.step(cloud.quote, region, key="quote 1", raises=[NoSuchRegion])
        except NoSuchRegion:
            raise ToolError(f"There is no region {region}.") from None
        for number in range(1, MOST_QUOTES + 1):
            answer = await ctx.elicit(f"{name} in {region} costs {quote}. Create it?", Agree)
            if answer.action != "accept" or not answer.data.create:
                return f"{name} was not created."
            # The user may have thought for minutes. What counts is the price now.
            now = await ctx.step(cloud.quote, region, key=f"quote {number + 1}")
            if now.cents <= quote.cents:
                project = await ctx.step(create, name, now, ctx=ctx, key="create")
                return f"{project.name} was created in {project.region}, for {now}."
            quote = now
        raise ToolError(f"The price in {region} went up {MOST_QUOTES} times: nothing was created.")

    return server


server = make_server(
    of_environment(),
    store=os.environ.get("STORE", "sqlite:///rounds.db"),  # An approval counts once, whoever gets it.
)

if __name__ == "__main__":
    server.run()
