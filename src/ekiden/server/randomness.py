"""Random bytes for names and nonces, drawn from the system many at a time.

Every round needs some. To ask the system for each of them would cost a round more than anything that is
done with them.
"""

import os
from collections.abc import Iterator
from struct import iter_unpack
from typing import Final

__all__ = ["SIZE", "random_bytes"]

SIZE: Final = 12
"""96 bits: no two are ever the same, and nobody guesses one."""
_MANY: Final = 64

_drawn: Iterator[tuple[bytes]] = iter(())


def random_bytes() -> bytes:
    """The next `SIZE` bytes; nobody else gets them, in whatever thread or process."""
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
