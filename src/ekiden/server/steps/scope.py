"""Whether a captured variable belongs to the running handler or to its surroundings.

A list that the handler creates in every run is part of the identity of its steps. A list that existed before
the handler began, in the function that built the server, is not: it is like a client or a cache.
"""

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

__all__ = ["Scope"]

_LOCALS: Final = ".<locals>."

_LOOPS: Final = ("asyncio.events", "asyncio.base_events", "asyncio.runners", "uvloop")
"""Modules whose frames run tasks: frames above them on the stack do not belong to the call."""


class Scope:
    """The functions that run between the engine and `ctx.step`, and the handler that they belong to."""

    def __init__(self, within: str | Callable[..., Any]) -> None:
        """`within` is the handler's own function, or its name.

        In a branch the handler is not on the stack. If only its name is known, variables of the handler that
        a step captured there count as surroundings.
        """
        self._codes: dict[tuple[str, str], CodeType] = {}
        if not isinstance(within, str):
            handler = inspect.unwrap(within)
            handler = getattr(handler, "__func__", handler)
            if isinstance(handler, FunctionType):
                self._add(handler.__code__, handler.__globals__)
        for frame in _frames_of_the_call():
            self._add(frame.f_code, frame.f_globals)

    def _add(self, code: CodeType, names: dict[str, Any]) -> None:
        self._codes.setdefault((names.get("__name__", ""), code.co_qualname), code)

    def owns(self, function: FunctionType, variable: str) -> bool:
        """Whether a captured variable was created by a function that runs now."""
        # Not `__module__` and `__qualname__`: a decorated function has copies of those.
        module: str = function.__globals__.get("__name__", "")
        for definer in _definers(function.__code__.co_qualname):
            code = self._codes.get((module, definer))
            # A function that does not run now is skipped: the variable may belong to the next one outside.
            if code is not None and variable not in code.co_freevars:
                return True
        return False


def _definers(qualname: str) -> Iterator[str]:
    """The functions that a function was defined in, from the inside out."""
    while True:
        qualname, found, _ = qualname.rpartition(_LOCALS)
        if not found:
            return
        yield qualname


def _frames_of_the_call() -> Iterator[FrameType]:
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    while frame is not None and not _is_ours(frame) and not _is_loop(frame):
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith("ekiden.")


def _is_loop(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith(_LOOPS)
