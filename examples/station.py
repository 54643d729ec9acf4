import os

from ekiden import Context, Server

server = Server("station")


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book seats in a train, after the user has said how many."""
    asker = await ctx.step(os.getpid)  # Run once: later rounds know its value.
    seats = await ctx.elicit(f"Process {asker} asks: how many seats to {city}?", int)
    if seats.action != "accept":
        return "Nothing was booked."
    return f"Booked {seats.data} seats to {city}. {asker} asked, {os.getpid()} answers."
