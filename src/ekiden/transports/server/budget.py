"""What a request takes in memory: its head, and a large body."""

from typing import Final

from ekiden.wire.incoming import Incoming
from ekiden.wire.json import MAX_VALUES, count_values

__all__ = ["PER_HEADER", "SMALL", "head_weight", "weight_of"]

SMALL: Final = 4 * 1024
"""Bytes of a body that is never looked at for what it takes: that is a hundred KB at most. A larger one is
forgotten when it is read, before it is answered."""

PER_HEADER: Final = 128
"""What a header takes beside its own bytes: two objects, and a place in a dict or a list."""

_PER_VALUE: Final = 128
"""What a value takes beside its text, about. An object of one member takes 240 bytes, and is two values."""

_HALVES: Final = tuple(f"\\u{digits}".encode() for digits in ("d8", "d9", "da", "db", "D8", "D9", "DA", "DB"))
"""How the escapes of characters begin that take four bytes."""


def head_weight(incoming: Incoming) -> int:
    """The bytes that the headers of a request take in memory."""
    headers, repeating = incoming.headers, incoming.repeating
    if repeating is not None:
        return sum([len(name) + len(value) + PER_HEADER for name, value in repeating])
    return sum(map(len, headers)) + sum(map(len, headers.values())) + PER_HEADER * len(headers)


def weight_of(body: bytes, most_values: int = MAX_VALUES) -> int:
    """The bytes that a body may take in memory when it is read: its texts, and its values beside them."""
    return _text_weight(body) + _PER_VALUE * count_values(body, most_values)


def _text_weight(body: bytes) -> int:
    """The bytes that the texts in a body may take.

    In a text, every character takes as much as the widest one: a single emoji makes four bytes of each
    letter. Python may keep such a text as UTF-8 besides.
    """
    is_escaped = b"\\u" in body
    if not is_escaped and body.isascii():
        return len(body)
    if any(bytes([lead]) in body for lead in range(0xF0, 0xF5)) or (
        is_escaped and any(half in body for half in _HALVES)
    ):
        return 5 * len(body)
    return 3 * len(body)
