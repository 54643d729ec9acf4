"""Describes a step in logs: its function, the line where it is defined, and its arguments, shortened."""

from collections.abc import Callable
from typing import Any, Final

from ekiden.errors import UsageError
from ekiden.server.steps.identity import digest_of_value, line_of, taken_apart
from ekiden.server.steps.plain import kind_of, plain_spelling
from ekiden.server.steps.spelling import ATOMS, SECRETS
from ekiden.signals import Unidentified

__all__ = ["words_for"]

_MOST_OF_ONE: Final = 40
_MOST_OF_ALL: Final = 120


def words_for(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Describe the step of this name. Only a digest of a secret is shown, of a long value its beginning."""
    function, given = taken_apart(function, arguments)
    shown = _shortened(", ".join(map(_shown, given)), _MOST_OF_ALL)
    module = getattr(function, "__module__", None) or type(function).__module__
    captured = _captured(function) if getattr(function, "__closure__", None) else ""
    return f"{module}.{name}({shown}){captured}{line_of(function)}"


def _captured(function: Callable[..., Any]) -> str:
    """The constants that a function captured: functions that differ only in these must look different."""
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    shown: list[str] = []
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # It is not set yet.
        if type(value) in ATOMS:
            shown.append(f"{name}={_shown(value)}")
    return f" with {_shortened(', '.join(shown), _MOST_OF_ALL)}" if shown else ""


def _shown(value: object) -> str:
    if type(value) in ATOMS:
        return _shortened(repr(value), _MOST_OF_ONE)
    kind: str = value.__class__.__qualname__
    try:
        plain = None if issubclass(kind_of(value), SECRETS) else plain_spelling([value])
        if plain is not None:
            return _shortened(plain[1:-1].decode(), _MOST_OF_ONE)
        return f"{kind}#{digest_of_value(value)}"
    except (Unidentified, UsageError):
        return kind


def _shortened(text: str, most: int) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"
