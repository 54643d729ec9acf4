"""A fast way to identify plain JSON arguments, which nearly all steps have."""

import functools
import math
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, Final, cast

from ekiden.wire.json import ENCODE_ERRORS, canonical

__all__ = ["is_context", "kind_of", "plain_spelling"]

kind_of: Final = cast("Callable[[object], type[Any]]", type)
"""`type`, for type checkers: the class of a value of which nothing is known."""

_SCALARS: Final = frozenset({str, int, bool, NoneType})
_MOST_PLAIN: Final = 1_000_000


def plain_spelling(values: Iterable[object]) -> bytes | None:
    """The canonical JSON of the values, without contexts; None if one of them is not plain JSON."""
    kept: list[Any] = []
    for value in values:
        if type(value) not in _SCALARS:
            if is_context(value):
                continue
            if not _is_plain(value):
                return None
        kept.append(value)
    try:
        return canonical(kept)
    except ENCODE_ERRORS:
        return None


def _is_plain(whole: Any) -> bool:
    pending = [whole]
    for value in pending:  # The list grows while it is read.
        kind = kind_of(value)
        if kind is dict:
            for key in value:
                if type(key) is not str:
                    return False
            pending += value.values()
        elif kind is list:
            pending += value
        elif kind not in _SCALARS and (kind is not float or not math.isfinite(value)):
            return False
        if len(pending) > _MOST_PLAIN:
            return False  # It is too large, or a list that contains itself.
    return True


def is_context(value: object) -> bool:
    """Whether a value is a `Context`, which does not count as an argument of a step."""
    return _is_context_class(value.__class__)


def _has_step_key(kind: type[Any]) -> bool:
    return getattr(kind, "step_key", None) is not None


_is_context_class: Final = cast(
    "Callable[[type[Any]], bool]", functools.lru_cache(maxsize=1024)(_has_step_key)
)
