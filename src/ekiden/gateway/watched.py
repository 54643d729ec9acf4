"""Which resources are watched at an upstream, if clients want more than it may be asked for.

Clients take turns: so no client can have so many, or so long ones, that others hear of nothing.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from ekiden.wire.json import encode

__all__ = ["chosen"]

_MOST: Final = 1000
_MOST_BYTES: Final = 96 * 1024
"""Resources that are watched at one upstream, and the bytes of their URIs: ekiden's own servers take no more
than 128 KiB, and refuse the whole subscription beyond it."""


def chosen(watched: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Those of the resources that clients watch which are watched at the upstream."""
    found: dict[str, None] = {}
    taken = 0
    for turn in zip_longest(*(sorted(watched[client]) for client in sorted(watched))):
        for uri in turn:
            if uri is None or uri in found:
                continue
            size = len(encode(uri))
            if taken + size <= _MOST_BYTES:
                found[uri] = None
                taken += size
            if len(found) == _MOST:
                return tuple(sorted(found))
    return tuple(sorted(found))
