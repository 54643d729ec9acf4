"""The cache of results that a server allows to keep (server/utilities: Caching).

Kept by method and parameters, for as long as `ttlMs` says, in the memory of one client, so of one
principal. The results of retries are never kept. A notification of a change drops what it is about.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from ekiden.wire.json import JsonObject, canonical, decode, encode

__all__ = ["ResultCache"]

_MOST: Final = 256
"""The most results that are kept; the least recently used is dropped first."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all results together."""
_LONGEST_SECONDS: Final = 24 * 3600.0
"""Longer times are cut to a day: a client that runs for weeks must notice a change at some time."""

_CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)

_ENDS: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}


class ResultCache:
    """Results by request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, bytes], tuple[float, bytes]] = OrderedDict()
        """When each ends, and its JSON: so its size is known, and no caller can change it."""
        self._size = 0

    def get(self, method: str, params: Mapping[str, Any]) -> JsonObject | None:
        """The kept result of a request, if it is still fresh."""
        if method not in _CACHEABLE:
            return None
        key = (method, canonical(params))
        kept = self._kept.get(key)
        if kept is None:
            return None
        if self._clock() >= kept[0]:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        result: JsonObject = decode(kept[1])
        return result

    def put(self, method: str, params: Mapping[str, Any], result: JsonObject) -> None:
        """Keep a result, if the server allows it."""
        ttl = result.get("ttlMs")
        if method not in _CACHEABLE or not isinstance(ttl, int) or ttl <= 0:
            return
        key, text = (method, canonical(params)), encode(result)
        if key in self._kept:
            self._drop(key)
        self._kept[key] = (self._clock() + min(ttl / 1000, _LONGEST_SECONDS), text)
        self._size += len(text)
        while len(self._kept) > _MOST or self._size > _MOST_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, bytes]) -> None:
        self._size -= len(self._kept.pop(key)[1])

    def notified(self, message: Mapping[str, Any]) -> None:
        """Drop the results that a notification is about."""
        method = str(message.get("method"))
        ended = _ENDS.get(method, ())
        params: Mapping[str, Any] = message.get("params") or {}
        uri = params.get("uri") if method == "notifications/resources/updated" else None
        read = None if uri is None else ("resources/read", canonical({"uri": uri}))
        for key in [key for key in self._kept if key[0] in ended or key == read]:
            self._drop(key)
