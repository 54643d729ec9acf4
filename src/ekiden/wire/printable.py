"""Words of a client as a log shows them: on one line, so that no client can add lines to it."""

from typing import Final

__all__ = ["printable"]

_MOST_SHOWN: Final = 200
"""Characters of a client's words that a log shows."""


def printable(text: str) -> str:
    """A client's words on one line, without control characters, shortened."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_SHOWN])
