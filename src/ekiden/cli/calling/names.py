"""Names that the user mistyped."""

import difflib
import itertools
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol, TypeVar

from ekiden.cli.terminal.screen import one_line
from ekiden.errors import MethodNotFound, ProtocolError, UsageError

__all__ = ["find_named", "listed", "no_such"]

T = TypeVar("T")

_MOST_SHOWN: Final = 100


class Named(Protocol):
    """Something that a server lists: a tool, a prompt."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


N = TypeVar("N", bound=Named)


async def listed(fetch: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """A list of the server; empty if the server does not know the method."""
    try:
        return await fetch()
    except ProtocolError as error:
        if error.code != MethodNotFound.default_code:
            raise
        return []


async def find_named(kind: str, name: str, fetch: Callable[[], Awaitable[list[N]]]) -> N:
    """The tool or prompt of this name; if there is none, the error names one that looks like it."""
    found = {item.name: item for item in await listed(fetch)}
    if name not in found:
        raise no_such(kind, name, found)
    return found[name]


def no_such(kind: str, name: str, names: Collection[str]) -> UsageError:
    """The error for a name that the server does not have."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {_some(names)}"
    return UsageError(f"the server has no {kind} {name!r}; {hint}")


def _some(names: Collection[str]) -> str:
    """Names to choose from; not all, if there are very many."""
    shown = ", ".join(one_line(name) for name in itertools.islice(names, _MOST_SHOWN))
    return f"{shown} and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else shown or "none"
