"""The event loop of a process that serves. Knows nothing of HTTP, which a server on stdio does not need."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator

__all__ = ["new_event_loop", "on_hangup"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@contextlib.contextmanager
def on_hangup(call: Callable[[], None] | None) -> Generator[None, None, None]:
    """Call a function on SIGHUP while the block runs, where there is such a signal."""
    number = getattr(signal, "SIGHUP", None)
    if call is None or number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
