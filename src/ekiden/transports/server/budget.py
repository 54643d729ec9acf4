"""What a request takes: memory for its head. What it takes for its body, `ekiden.transports.turns` says."""

from typing import Final

from ekiden.transports.turns import SMALL, BodyTurns, ByClient, weight_of
from ekiden.wire.incoming import Incoming

__all__ = ["PER_HEADER", "SMALL", "BodyTurns", "ByClient", "head_weight", "weight_of"]

PER_HEADER: Final = 128
"""What a header takes beside its own bytes: two objects, and a place in a dict or a list."""


def head_weight(incoming: Incoming) -> int:
    """The bytes that the headers of a request take in memory."""
    headers, repeating = incoming.headers, incoming.repeating
    if repeating is not None:
        return sum([len(name) + len(value) + PER_HEADER for name, value in repeating])
    return sum(map(len, headers)) + sum(map(len, headers.values())) + PER_HEADER * len(headers)
