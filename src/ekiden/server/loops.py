"""Which event loop runs here, without asking the system.

Before Python 3.12, `asyncio.get_running_loop` asks the system for the number of the process, lest a
forked one take the loop of its parent for its own. In the middle of a round that is dear.
"""

import asyncio
import os
import sys
from threading import get_ident

__all__ = ["running_loop"]

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By thread. In a thread only one loop runs at a time: if the one that ran here still does, it is that."""


def _running_loop() -> asyncio.AbstractEventLoop:
    loop = _loops.get(get_ident())
    if loop is None or not loop.is_running():
        for thread, known in tuple(_loops.items()):
            if not known.is_running():
                _loops.pop(thread, None)
        loop = _loops[get_ident()] = asyncio.get_running_loop()
    return loop


if sys.version_info >= (3, 12):
    running_loop = asyncio.get_running_loop
else:
    running_loop = _running_loop
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_loops.clear)
