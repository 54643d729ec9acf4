"""Everything that a tool can ask for, in one place: the code of the tutorial "a tool that asks"."""

import asyncio
from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ekiden import Accepted, Cancelled, Context, Declined, Server, ToolError

server = Server("trips")


class Train(Enum):
    NOZOMI = "nozomi"
    KODAMA = "kodama"

    @property
    def label(self) -> str:
        return {"nozomi": "Nozomi, fast", "kodama": "Kodama, slow and cheap"}[self.value]


class Booking(BaseModel):
    seats: Annotated[int, Field(ge=1, le=4, description="How many seats")] = 1
    train: Train = Train.NOZOMI
    email: Annotated[str, Field(json_schema_extra={"format": "email"})]


bookings: list[str] = []


async def reserve(city: str, seats: int, train: str) -> str:
    bookings.append(city)
    return f"R{len(bookings):03}"


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a train."""
    match await ctx.elicit(f"A trip to {city}: what do you need?", Booking):
        case Accepted(data=booking):
            number = await ctx.step(reserve, city, booking.seats, booking.train.value)
            return f"Reserved {booking.seats} seats as {number}; the ticket goes to {booking.email}."
        case Declined():
            return "Nothing was booked."
        case Cancelled():
            raise ToolError("The question was dismissed. Ask the user whether the trip is still wanted.")


@server.tool
async def plan(city: str, ctx: Context) -> str:
    """Plan a day: the user, the model and the client are asked at the same time."""
    mood, idea, roots = await asyncio.gather(
        ctx.elicit("What are you in the mood for?", Literal["walking", "eating"]),
        ctx.sample(f"Name one sight in {city}.", max_tokens=30),
        ctx.list_roots(),
    )
    chosen = mood.data if mood.action == "accept" else "anything"
    sight = " ".join(block.text for block in idea.content_as_list if block.type == "text")
    return f"{chosen} near {sight}, saved to {roots[0].uri if roots else 'nowhere'}"


@server.tool
async def connect_account(ctx: Context) -> str:
    """Let the user log in on a page of ours; secrets never pass through a form."""
    visits = 0
    while not await ctx.step(is_logged_in, visits):
        answer = await ctx.elicit_url("Please log in to the railway.", "https://rail.example/login")
        if answer.action != "accept":
            return "Not connected."
        visits += 1
    return "Connected."


@server.tool(cannot_ask="result")
async def souvenir(ctx: Context) -> str:
    """Choose a souvenir: the user if possible, else the usual one."""
    if not ctx.can_ask("elicitation"):
        return "A paper fan, as usual."
    answer = await ctx.elicit("What shall it be?", Literal["fan", "tea"])
    return f"A {answer.data}." if answer.action == "accept" else "Nothing."


async def is_logged_in(visits: int) -> bool:
    """Ask the railway whether the user has logged in. Here, one visit to the page is enough."""
    return visits > 0


if __name__ == "__main__":
    server.run()
