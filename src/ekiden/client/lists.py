"""Lists of many pages, read to the end."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ekiden.client.sessions.session import ClientRequest
from ekiden.client.target import ClientLimits
from ekiden.errors import InvalidResult, TooMuch
from ekiden.wire.json import JsonObject, count_values, encode, is_array

__all__ = ["read_list"]

_PAGES: Final = 4
"""How many times the values of one message a list may have, over all its pages."""


async def read_list(
    request: Callable[[ClientRequest], Awaitable[JsonObject]],
    method: str,
    field: str,
    limits: ClientLimits,
    params: JsonObject | None = None,
) -> list[Any]:
    """All items of a list, page by page."""
    items: list[Any] = []
    size = values = 0
    cursor: str | None = None
    for _ in range(limits.pages):
        page_params = {**(params or {}), **({} if cursor is None else {"cursor": cursor})}
        result = await request(ClientRequest(method, page_params))
        page = result.get(field)
        if not is_array(page):
            raise InvalidResult(f"The server's {method} result has no list of {field}")
        items.extend(page)
        if len(items) > limits.list_items:
            raise TooMuch(f"The server's {method} lists more than {limits.list_items} {field}")
        following = result.get("nextCursor")
        if following is None:
            return items
        if not isinstance(following, str) or following == cursor:
            raise InvalidResult(f"The server's {method} does not go on: its cursor is not a new one")
        spelled = encode(result)
        size += len(spelled)  # One page alone is limited as a message.
        values += count_values(spelled, limits.values)
        if values > _PAGES * limits.values:
            raise TooMuch(f"The server's {method} lists more than {_PAGES * limits.values} values")
        if size > limits.list_bytes:
            raise TooMuch(f"The server's {method} lists more than {limits.list_bytes} bytes")
        cursor = following
    raise InvalidResult(f"The server's {method} does not end within {limits.pages} pages")
