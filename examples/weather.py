"""A small server: one tool with structured output, one resource, one prompt.

Run it with `python examples/weather.py --port 8000` or, for stdio, `python examples/weather.py --stdio`.
"""

import argparse
from typing import Annotated

from pydantic import BaseModel, Field

from ekiden import Context, ResourceNotFound, Server, ToolError

server = Server("weather", version="1.0.0", instructions="Weather along the Hakone course.")

STATIONS = {"Tokyo": 18, "Yokohama": 17, "Odawara": 16, "Hakone": 9}


class Day(BaseModel):
    day: int
    celsius: int


@server.tool
async def forecast(city: str, ctx: Context, days: Annotated[int, Field(ge=1, le=7)] = 1) -> list[Day]:
    """Forecast the temperature of the next days.

    Args:
        city: A station of the course.
        days: How many days, at most a week.
    """
    if city not in STATIONS:
        raise ToolError(f"There is no station in {city}. Stations: {', '.join(STATIONS)}.")
    await ctx.progress(1, 1, "asked the station")
    return [Day(day=day, celsius=STATIONS[city] - day) for day in range(1, days + 1)]


@server.resource("weather://{city}/now", mime_type="text/plain")
async def now(city: str) -> str:
    """The temperature of a station right now."""
    if city not in STATIONS:
        raise ResourceNotFound(f"weather://{city}/now")
    return f"{STATIONS[city]} °C"


@server.prompt
async def pack(city: str) -> str:
    """Ask what to wear."""
    return f"What should I wear for a run in {city} today?"


@server.completion(prompt="pack", argument="city")
async def cities(value: str) -> list[str]:
    return [city for city in STATIONS if city.lower().startswith(value.lower())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--stdio", action="store_true")
    arguments = parser.parse_args()
    server.run("stdio" if arguments.stdio else "http", port=arguments.port, log_level="warning")
