"""Nonces, drawn from the system many at a time.

Every token needs one, and asking the system for each would cost more than sealing the token. A snapshot of
a running machine may duplicate nonces that are drawn already. AES-GCM-SIV tolerates that; do not use them
with another cipher.
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
    """The next nonce. Other threads and forked processes get different ones."""
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
