"""Lists of many pages, read to the end."""

from collections.abc import Awaitable, Callable
from typing import Any

from ekiden.client.sessions.session import ClientRequest
from ekiden.errors import InvalidResult
from ekiden.wire.json import JsonObject, is_array

__all__ = ["read_list"]


async def read_list(
    request: Callable[[ClientRequest], Awaitable[JsonObject]], method: str, field: str, most_pages: int
) -> list[Any]:
    """All items of a list, page by page."""
    items: list[Any] = []
    cursor: str | None = None
    for _ in range(most_pages):
        result = await request(ClientRequest(method, {} if cursor is None else {"cursor": cursor}))
        page = result.get(field)
        if not is_array(page):
            raise InvalidResult(f"The server's {method} result has no list of {field}")
        items.extend(page)
        following = result.get("nextCursor")
        if following is None:
            return items
        if not isinstance(following, str) or following == cursor:
            raise InvalidResult(f"The server's {method} does not go on: its cursor is not a new one")
        cursor = following
    raise InvalidResult(f"The server's {method} does not end within {most_pages} pages")
