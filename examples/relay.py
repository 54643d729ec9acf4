"""A tool that asks twice and pays once, whichever process serves which round. `make demo` runs it.

Serve it with `ekiden run examples/relay.py --workers 3`. If `RELAY_LOG` names a file, every round and every
step that runs writes a line there: what it is, and the process that it ran in. With `RELAY_RECORD` set,
what happens is also kept in the store, for `ekiden ui`.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from ekiden import CallNext, Context, Outcome, Request, Server

server = Server("relay", record=bool(os.environ.get("RELAY_RECORD")))


class Seats(BaseModel):
    seats: Annotated[int, Field(ge=1, le=4, description="how many")] = 2


class Payment(BaseModel):
    pay: Annotated[bool, Field(description="charge the card")]


def note(kind: str, name: str) -> None:
    if log := os.environ.get("RELAY_LOG"):
        with Path(log).open("a") as lines:
            lines.write(f"{kind} {name} {os.getpid()}\n")


async def find_train(city: str) -> str:
    note("step", "find_train")
    return f"the 9:03 to {city}"


async def charge(amount: int) -> str:
    note("step", "charge")
    return f"receipt over {amount}"


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a train, after the user has chosen the seats and agreed to the price."""
    train = await ctx.step(find_train, city)  # once in the whole call, not once a round
    wanted = await ctx.elicit(f"Seats in {train}?", Seats)
    if wanted.action != "accept":
        return "Nothing was booked."
    price = 120 * wanted.data.seats
    agreed = await ctx.elicit(f"Pay {price} for {wanted.data.seats} seats in {train}?", Payment)
    if agreed.action != "accept" or not agreed.data.pay:
        return "Nothing was booked."
    receipt = await ctx.step(charge, price)
    return f"Booked {wanted.data.seats} seats in {train}: {receipt}."


@server.middleware
async def note_rounds(request: Request, call_next: CallNext) -> Outcome:
    """Every round of a call is a request of its own."""
    if request.method == "tools/call":
        note("round", "book")
    return await call_next(request)


if __name__ == "__main__":
    server.run()
