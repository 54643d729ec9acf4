"""How an exception of a step is stored.

An exception of a listed class, or of a subclass of one, is rebuilt: the same class, arguments and
attributes, without calling its `__init__`. Any other becomes `StepFailed`.
"""

import base64
import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final, cast
from uuid import UUID

from ekiden.errors import StepFailed
from ekiden.server.steps.likeness import difference
from ekiden.server.steps.plain import kind_of
from ekiden.wire.json import decode, encode, is_array, is_object

__all__ = ["rebuilt", "remembered", "text_of"]

_log = logging.getLogger(__name__)

_MOST_TEXT: Final = 10_000


def text_of(error: BaseException) -> str:
    """The text of an exception, also if its `str` raises."""
    try:
        text = str(error)
    except Exception as problem:
        text = f"({type(error).__qualname__}, whose `str` raised {type(problem).__qualname__})"
    return text[:_MOST_TEXT].encode(errors="replace").decode()


def remembered(error: BaseException, listed: Sequence[type[BaseException]], what: str) -> list[Any]:
    """An exception as a journal keeps it: its class and text and, if it is listed, all of it."""
    kind = type(error)
    base = next((allowed for allowed in listed if isinstance(error, allowed)), None)
    kept: Any = None
    if base is not None:
        try:
            kept = decode(encode(_whole(error, base)))
            problem = _difference(error, _remade(kind, kept))
        except Exception as trouble:
            problem = f"{type(trouble).__qualname__}: {text_of(trouble)}"
        if problem is not None:
            _log.warning(
                "%s raised %s, which cannot be stored (%s); it becomes StepFailed",
                what,
                kind.__qualname__,
                problem,
            )
            kept = None
    return [kind.__qualname__, text_of(error), kept]


def rebuilt(failure: Sequence[Any], listed: Sequence[type[BaseException]]) -> BaseException:
    """The exception to raise for what `remembered` kept."""
    kind, message, kept = failure
    if kept is not None:
        found = _found(kept, listed)
        if found is not None:
            try:
                return _remade(found, kept)
            except Exception as problem:
                _log.warning("%s cannot be rebuilt: %r; it becomes StepFailed", kind, text_of(problem))
    return StepFailed(kind, message)


def _whole(error: BaseException, base: type) -> list[Any]:
    return [_names(type(error)), _names(base), _packed(list(error.args)), _packed(dict(vars(error)))]


def _names(kind: type) -> list[str]:
    return [kind.__module__, kind.__qualname__]


def _remade(kind: type[BaseException], kept: Sequence[object]) -> BaseException:
    arguments = _unpacked(kept[2])
    error = kind.__new__(kind, *arguments)
    error.args = tuple(arguments)
    vars(error).update(_unpacked(kept[3]))
    return error


def _difference(error: BaseException, copy: BaseException) -> str | None:
    return difference(error.args, copy.args, exact=True) or difference(vars(error), vars(copy), exact=True)


def _found(kept: Sequence[Any], listed: Sequence[type[BaseException]]) -> type[BaseException] | None:
    """The exception's own class, or the listed class that replaces it; None if neither is listed now."""
    own, base = kept[0], kept[1]
    stands_in: type[BaseException] | None = None
    for allowed in listed:
        for kind in _with_subclasses(allowed):
            if _names(kind) == own:
                return kind
        if _names(allowed) == base:
            stands_in = allowed
    return _imported(own, listed) or stands_in


def _with_subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


def _imported(names: Sequence[str], listed: Sequence[type[BaseException]]) -> type[BaseException] | None:
    try:
        found: Any = importlib.import_module(names[0])
        for part in names[1].split("."):
            found = getattr(found, part)
    except Exception:
        return None  # It was defined inside a function, or a new version has removed it.
    is_listed = isinstance(found, type) and issubclass(found, tuple(listed))
    return cast("type[BaseException]", found) if is_listed else None


# The arguments and attributes of exceptions have no annotations, so each value is stored with its type

_SCALARS: Final = (str, int, float, bool, NoneType)
_WAYS: Final[dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    Decimal: (str, Decimal),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda of: timedelta(*of)),
    UUID: (str, UUID),
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    dict: (lambda value: [list(pair) for pair in value.items()], lambda pairs: dict(pairs)),
}
"""How a value is expressed by simpler ones, and read back."""
_BY_NAME: Final = {kind.__name__: read for kind, (_, read) in _WAYS.items()}


def _packed(value: Any) -> Any:
    kind = kind_of(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [_packed(item) for item in value]
    if kind in _WAYS:
        return {kind.__name__: _packed(_WAYS[kind][0](value))}
    raise TypeError(f"it holds a {kind.__qualname__}, which is not plain data")


def _unpacked(value: object) -> Any:
    if is_array(value):
        return [_unpacked(item) for item in value]
    if is_object(value):
        ((name, inner),) = value.items()
        return _BY_NAME[name](_unpacked(inner))
    return value
