"""The tools that every SDK registers: `greet`, which is called, and as many others as are wanted."""

from collections.abc import Awaitable, Callable, Iterator


async def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


def tools(count: int) -> Iterator[Callable[..., Awaitable[str]]]:
    """`greet` and `count - 1` others, each a function of its own with a name of its own."""
    yield greet
    for number in range(1, count):
        yield _forecast(number)


def _forecast(number: int) -> Callable[..., Awaitable[str]]:
    async def forecast(city: str, days: int = 3, metric: bool = True) -> str:
        """Tell what the weather will be in a city over the next days."""
        return f"{number}: {city}, {days}, {metric}"

    forecast.__name__ = forecast.__qualname__ = f"forecast_{number}"
    return forecast
