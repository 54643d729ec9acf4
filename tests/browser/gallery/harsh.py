"""A server that is hard on a layout: long names, fifty fields, other scripts, pictures, failures, tasks."""

import os
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from ekiden import Context, Image, Pages, Person, Principal, Retry, Server, ToolError
from ekiden.pages.web.messages import WebRequest

ORIGIN = os.environ.get("HARSH_ORIGIN", "http://127.0.0.1:8000")
LONG_WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
PARAGRAPHS = "The invoice of the spring fair is 12 % above the estimate.\n\nThe hall was larger than planned."


async def identify(request: WebRequest) -> Principal | None:
    """Whoever the cookie says. A real site verifies a session."""
    user = request.cookies.get("user")
    return Principal(user) if user else None


server = Server(
    "harsh",
    title="Harsh & Söhne <Reisebüro>",
    version="1.2.3",
    record=True,
    keys=[b"k" * 32],
    pages=Pages(
        ORIGIN, wait_seconds=0.0, identify=identify if os.environ.get("HARSH_PEOPLE") == "known" else None
    ),
)


class Country(StrEnum):
    JP = "Japan"
    DE = "Deutschland"
    EG = "مصر"
    BR = "Brasil"
    TH = "ประเทศไทย"
    UK = "The United Kingdom of Great Britain and Northern Ireland"
    BO = "Plurinational State of Bolivia"


class Address(BaseModel):
    """Where it goes."""

    city: Annotated[str, Field(title="Town")]
    floor: Annotated[int, Field(ge=0)] | None = None


class Every(BaseModel):
    name: Annotated[str, Field(title="Your name", min_length=2, description="As in your passport.")]
    note: Annotated[str, Field(title="Anything else", max_length=500)] = ""
    mail: Annotated[str, Field(title="E-mail", json_schema_extra={"format": "email"})]
    site: Annotated[str, Field(title="Web site", json_schema_extra={"format": "uri"})] = "https://example.com"
    day: Annotated[date, Field(title="Day")]
    moment: Annotated[datetime, Field(title="Departure")]
    seats: Annotated[int, Field(title="Seats", ge=1, le=9)] = 2
    price: Annotated[float, Field(title="Price", description="In EUR.")]
    sure: Annotated[bool, Field(title="Insure it?")]
    quiet: Annotated[bool, Field(title="Quiet coach?")] = False
    size: Annotated[Literal["S", "M", "L"], Field(title="Size")]
    country: Annotated[Country, Field(title="Which country?")]
    extras: Annotated[list[Literal["window", "table", "quiet coach"]], Field(title="Extras")]


class Arabic(BaseModel):
    name: Annotated[str, Field(title="الاسم الكامل", description="كما في جواز السفر")]
    meal: Annotated[Literal["سمك", "أرز", "لا شيء"], Field(title="الوجبة")]
    sure: Annotated[bool, Field(title="هل أنت متأكد؟")]


class Wide(BaseModel):
    word: Annotated[str, Field(title=LONG_WORD, description=f"Such as {LONG_WORD}.")] = LONG_WORD
    choice: Annotated[
        Literal["a", "b"], Field(title="A label that is a whole sentence, because somebody liked it so")
    ]
    which: list[
        Literal["Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "b"]
    ]


class Party(BaseModel):
    guests: Annotated[int, Field(title="👩‍👩‍👧‍👦 Guests", ge=1, le=50)]
    cake: Annotated[Literal["🍰 Cake", "🍣 Sushi", "🍕 Pizza"], Field(title="🎂 Food")]


fifty: dict[str, Any] = {
    f"field_{n}": (str, Field(title=f"Question {n}")) if n % 5 else (bool, Field(title=f"Yes or no, {n}"))
    for n in range(1, 51)
}
Fifty = create_model("Fifty", **fifty)

FORMS: dict[str, tuple[str, Any]] = {
    "every": ("A journey to Sendai. Who travels, and how?", Every),
    "bool": ("Delete the branch release-2026-07?", bool),
    "one-text": (f"Why is it more?\n\n{PARAGRAPHS}", str),
    "choice": ("Which coach?", Literal["first class", "second class", "sleeper"]),
    "many": ("Which country?", Country),
    "several": ("Which extras?", list[Literal["window", "table", "quiet coach", "bicycle"]]),
    "fifty": ("A survey of fifty questions", Fifty),
    "arabic": ("رحلة إلى القاهرة. من يسافر، وكيف؟", Arabic),
    "wide": (f"The {LONG_WORD} asks whether {LONG_WORD} may.", Wide),
    "emoji": ("🎉 A party for 👩‍🚀 Aiko: how many, and what to eat?", Party),
}


@server.tool(title="Ask anything")
async def ask(which: str, ctx: Context) -> str:
    """Ask one of the questions of this server."""
    message, schema = FORMS[which]
    answer = await ctx.elicit(message, schema)
    return f"{which}: {answer.action}"


@server.tool(title="Open a page of somebody else")
async def elsewhere(ctx: Context) -> str:
    """Has the user sign in at the bank."""
    answer = await ctx.elicit_url(
        "Sign in at your bank, and come back.", "https://bank.example/sign-in?next=" + "x" * 80
    )
    return answer.action


@server.tool
async def every(
    form: Every, to: Address, tags: list[str], again: Address | None = None, left: str = "a default"
) -> dict[str, Any]:
    """One field of every kind."""
    return {
        "form": form.model_dump(mode="json"),
        "to": to.model_dump(),
        "tags": tags,
        "left": left,
        "again": again,
    }


@server.tool(title="Survey with fifty questions")
async def survey(form: Fifty) -> str:  # type: ignore[valid-type]
    """Fifty fields."""
    return "thank you"


@server.tool(name="a_tool_with_a_name_that_is_as_long_as_names_may_become_in_large_companies_with_many_teams")
async def long_name(ctx: Context, word: str = LONG_WORD) -> str:
    """Says a long word, and answers with long lines."""
    await ctx.info({"word": word, "again": [word] * 3})
    return " ".join([word] * 30)


@server.tool(title="حجز رحلة")
async def arabic(ctx: Context, name: Annotated[str, Field(title="الاسم الكامل")] = "ليلى") -> str:
    """احجز مقعدًا في القطار."""
    answer = await ctx.elicit(*FORMS["arabic"])
    return f"تم الحجز باسم {name}: {answer.action}"


@server.tool(title="🎉 Plan a party")
async def party() -> list[str | Image]:
    """Draws 🍰 for 👩‍👩‍👧‍👦."""
    drawn = "".join(
        f'<rect x="{40 * n}" y="{9 * n}" width="36" height="{180 - 9 * n}" fill="#2a527c"/>'
        for n in range(12)
    )
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="480" height="180">{drawn}</svg>'
    return ["🎈 Twelve guests:", Image(data=picture.encode(), format="svg")]


def look_up(order: str) -> dict[str, Any]:
    return {"order": order, "lines": [{"item": LONG_WORD, "price": 12.5 * n} for n in range(4)]}


tries: list[str] = []


def pay(order: str) -> str:
    tries.append(order)
    if tries.count(order) < 3:
        raise OSError(f"the bank of {LONG_WORD} does not answer (try {tries.count(order)})")
    return f"paid {order}"


def refuse(order: str) -> str:
    raise ToolError(f"Order {order} is closed: only its owner can open it again.")


@server.tool
async def order(number: str, ctx: Context) -> str:
    """Looks an order up, asks, pays with retries, and reports how far it is."""
    found = await ctx.step(look_up, number)
    await ctx.info(f"looked up {number}")
    await ctx.progress(1, 3, "looking up")
    await ctx.warning("the stock is low", logger="shop.stock")
    how = await ctx.elicit(f"Refund {number} how?", Literal["card", "voucher"])
    await ctx.progress(2, 3, "paying")
    await ctx.step(pay, number, retry=Retry(seconds=0.01))
    return f"{len(found['lines'])} lines of {number} by {how.data}"


@server.tool
async def fail(number: str, ctx: Context) -> str:
    """Fails for good."""
    await ctx.step(look_up, number)
    return await ctx.step(refuse, number)


@server.tool(task="required", title="Publish the report")
async def report(title: str, ctx: Context) -> str:
    """Waits for the user of the client."""
    await ctx.step(pay, title, retry=Retry(seconds=0.01))
    answer = await ctx.elicit(f"Publish {title}?", bool)
    return f"published {title}: {answer.action}"


@server.tool(task="required")
async def approve(title: str, ctx: Context) -> str:
    """Waits for somebody else, by name."""
    office = Person(
        "finance.department@very-long-company-name.example",
        remind=3600,
        deadline=86_400,
        escalate=("boss@example.com",),
    )
    answer = await ctx.elicit(f"May we spend 12,400 EUR on {title}?", Every, who=office)
    return f"{title}: {answer.action}"


@server.tool(task="required")
async def nap(hours: float, ctx: Context) -> str:
    """Waits for a time."""
    await ctx.sleep(hours * 3600)
    return "slept"


@server.tool(task="required")
async def doomed(ctx: Context) -> str:
    """A task that fails."""
    return await ctx.step(refuse, "A-7")


@server.prompt(title="Greet somebody")
def greet(name: str, tone: str = "friendly") -> str:
    """Greets somebody."""
    return f"Say hello to {name}, {tone}."


@server.resource("harsh://terms", title="Terms")
def terms() -> str:
    """The terms."""
    return f"{PARAGRAPHS}\n{LONG_WORD}"


@server.resource("harsh://orders/{number}", title="An order")
def one_order(number: str) -> str:
    """One order."""
    return f"order {number}"
