"""Server-sent events: one JSON-RPC message per event, and comments that keep a stream alive."""

from typing import Final

__all__ = ["KEEP_ALIVE", "event"]

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment: proxies see traffic, clients see nothing."""


def event(message: bytes) -> bytes:
    """One message as one event. `message` is a single line, as everything from `wire.json` is."""
    return b"event: message\ndata: %b\n\n" % message
