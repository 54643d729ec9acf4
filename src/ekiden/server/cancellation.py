"""Whether a `CancelledError` is what it seems: somebody has cancelled the task, or code only raised it."""

import asyncio

__all__ = ["ends_more_than_a_call", "is_cancelled"]


def is_cancelled() -> bool:
    """Whether this task is being cancelled. If not, a `CancelledError` comes from the code that it runs."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def ends_more_than_a_call(error: BaseException) -> bool:
    """True for Ctrl-C and for cancellation of the request. False for `SystemExit`: it fails only the call."""
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    return isinstance(error, KeyboardInterrupt | GeneratorExit)
