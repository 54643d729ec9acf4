"""What cannot work inside a host is refused when it is registered, with what to do instead."""

import importlib.metadata
import inspect
import logging
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final

from ekiden import RegistrationError, UsageError
from ekiden.engine import has_lasting_keys

__all__ = ["check_context", "check_parts", "require", "stable_name", "warn_of_keys"]

_log = logging.getLogger(__name__)

_FOREIGN: Final = ("mcp", "fastmcp")
_DRAWN_NAME: Final = re.compile(r"(\w+)-[0-9a-f]{4}")
"""What FastMCP calls a server that has no name: other letters in every process."""


def require(package: str, least: tuple[int, int], before: int, *, who: str = "") -> None:
    """Refuse a host that is not installed, or of a version that these integrations do not know.

    `who` needs it, by default the integration that is named like it.
    """
    who = who or f"ekiden.integrations.{package}"
    wanted = f"{package} {'.'.join(map(str, least))} or later, before {before}"
    install = f"pip install 'ekiden[{package}]'"
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"{who} needs {wanted}, which is not installed: {install}") from None
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in found.split(".")[:2])
    if numbers < least:
        raise UsageError(
            f"{who} needs {wanted}, and {found} is too old: {install}. "
            "A server that must stay on it can be served beside ekiden, as another process"
        )
    if numbers[0] >= before:
        raise UsageError(
            f"{who} needs {wanted}, and {found} is newer than it knows: {install}, or a newer ekiden"
        )


def check_parts(package: str, missing: Iterable[str]) -> None:
    """Refuse a host in which a private part is gone that these integrations use."""
    if gone := sorted(missing):
        found = importlib.metadata.version(package)
        raise UsageError(
            f"{package} {found} has no {', '.join(gone)}, which ekiden.integrations.{package} uses: "
            f"install another version of {package} (`pip install 'ekiden[{package}]'`), or a newer ekiden"
        )


def check_context(function: Callable[..., Any]) -> None:
    """Refuse a handler whose `Context` is the host's: it would be taken for an argument."""
    for name, annotation in _annotations(function).items():
        for part in (annotation, *typing.get_args(annotation)):
            origin = typing.get_origin(part) or part
            module, named = str(getattr(origin, "__module__", "")), str(getattr(origin, "__name__", ""))
            # A generic model has its parameters in its name.
            if named.partition("[")[0] == "Context" and module.partition(".")[0] in _FOREIGN:
                shown = getattr(function, "__name__", repr(function))
                raise RegistrationError(
                    f"{shown}({name}: {module}.Context) is durable, so it gets ekiden's Context: write "
                    f"`from ekiden import Context`, or register it with the host"
                )


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # Names that cannot be resolved are reported by whoever needs them.
        found = inspect.signature(function).parameters.values()
        return {each.name: each.annotation for each in found if each.annotation is not each.empty}


def warn_of_keys(keys: object, *, shared: bool) -> None:
    """Warn of a store that several processes can use, while each of them would seal with a key of its own."""
    if shared and not has_lasting_keys(keys):
        _log.warning(
            "Durable has a store that several workers can share, but no keys that they share: a round that "
            "one worker began is refused by the others, and by itself after a restart. Set EKIDEN_KEYS "
            "(`ekiden keys new` makes one), or pass keys=[...]."
        )


def stable_name(name: str) -> str:
    """A name that is the same in all processes of a server: states are valid only under the same name."""
    drawn = _DRAWN_NAME.fullmatch(name)
    return name if drawn is None else drawn[1]
