"""Nonces, drawn from the system many at a time.

Every token needs one, and to ask the system for each would cost more than to seal it. Whoever copies a
running machine copies those that are drawn already. That is harmless here, and only here: the cipher is
one that bears a nonce which comes twice.
"""

import os
from collections.abc import Iterator
from struct import iter_unpack
from typing import Final

__all__ = ["SIZE", "next_nonce"]

SIZE: Final = 12
_MANY: Final = 64

_drawn: Iterator[tuple[bytes]] = iter(())


def next_nonce() -> bytes:
    """The next one; no other thread, and no process that was forked, gets the same."""
    global _drawn
    found = next(_drawn, None)
    if found is None:
        drawn = _drawn = iter_unpack(f"{SIZE}s", os.urandom(SIZE * _MANY))
        found = next(drawn)
    return found[0]


def _forget() -> None:
    global _drawn
    _drawn = iter(())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
