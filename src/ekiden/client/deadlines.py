"""Time limits: what does not end in time is cancelled, at the server too."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ekiden.errors import CallTimeout

__all__ = ["within"]


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncGenerator[asyncio.Timeout, None]:
    """Cancel the body after so many seconds and raise a `CallTimeout` that names `what`.

    The body gets the `asyncio.Timeout`, and may reschedule it.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield deadline
    except TimeoutError:
        if not deadline.expired():
            raise
        raise CallTimeout(f"{what} did not end within {seconds:g} seconds") from None
