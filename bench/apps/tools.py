"""The tools that every SDK registers: `greet`, those that ask, and as many others as are wanted.

What asks is written in each SDK's own way: `ekiden_app` has ekiden's, `guards` the peers'. There are
two: `confirm` asks once, `survey` as often as it is told to.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

Tool = Callable[..., Awaitable[Any]]


async def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


def tools(count: int, asking: Sequence[Tool]) -> Iterator[Tool]:
    """`count` tools: `greet`, those that ask, and others, each a function of its own with its own name."""
    yield greet
    yield from asking
    for number in range(1, count - len(asking)):
        yield _forecast(number)


def _forecast(number: int) -> Tool:
    async def forecast(city: str, days: int = 3, metric: bool = True) -> str:
        """Tell what the weather will be in a city over the next days."""
        return f"{number}: {city}, {days}, {metric}"

    forecast.__name__ = forecast.__qualname__ = f"forecast_{number}"
    return forecast
