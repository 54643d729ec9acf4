"""A server that asks people: whoever made the call, by a link, and somebody else, by name."""

import os
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ekiden import Context, Pages, Person, Server

ORIGIN = os.environ.get("PEOPLE_ORIGIN", "http://127.0.0.1:8000")
server = Server(
    "travel",
    title="Travel desk",
    store=os.environ.get("PEOPLE_STORE", "sqlite:///people.db"),
    pages=Pages(ORIGIN),
)


class Booking(BaseModel):
    name: Annotated[str, Field(title="Who travels?", min_length=2)]
    seats: Annotated[int, Field(title="Seats", ge=1, le=9)] = 2
    meal: Annotated[Literal["fish", "rice", "none"], Field(title="Meal on board")]
    quiet: Annotated[bool, Field(title="Quiet coach?", description="No calls, no music.")]


class Approval(BaseModel):
    approve: Annotated[bool, Field(title="Approve it?")]
    reason: Annotated[str, Field(title="Why", max_length=200)] = ""


@server.tool(title="Book a journey")
async def book(ctx: Context, to: str) -> str:
    """Book seats on a train, once the office has agreed."""
    booking = await ctx.elicit(f"A journey to {to}. Who travels, and how?", Booking)
    if booking.data is None:
        return "Nothing was booked."
    price = booking.data.seats * 110
    office = Person("office@example.com", remind=3600, deadline=86_400, default=Approval(approve=False))
    approval = await ctx.elicit(f"May {booking.data.name} go to {to} for {price} EUR?", Approval, who=office)
    if approval.data is None or not approval.data.approve:
        return "The office did not agree."
    return f"{booking.data.seats} seats to {to} for {booking.data.name}: {approval.data.reason}"


if __name__ == "__main__":
    server.run()
