"""The arguments that nearly all steps have: plain JSON, which is identified fast."""

import functools
import math
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, Final, cast

from ekiden.wire.json import UNSPEAKABLE, canonical

__all__ = ["is_context", "kind_of", "plain_spelling"]

kind_of: Final = cast("Callable[[object], type[Any]]", type)
"""The class of a value, of which nothing is known yet."""

_SCALARS: Final = frozenset({str, int, bool, NoneType})
_MOST_PLAIN: Final = 1_000_000


def plain_spelling(values: Iterable[Any]) -> bytes | None:
    """JSON values by their canonical JSON, which is fast; None if there is anything else among them."""
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
    except UNSPEAKABLE:
        return None


def _is_plain(whole: Any) -> bool:
    left = [whole]
    for value in left:  # Which grows on the way.
        kind = kind_of(value)
        if kind is dict:
            for key in value:
                if type(key) is not str:
                    return False
            left += value.values()
        elif kind is list:
            left += value
        elif kind not in _SCALARS and (kind is not float or not math.isfinite(value)):
            return False
        if len(left) > _MOST_PLAIN:
            return False  # Or a list that holds itself.
    return True


def is_context(value: Any) -> bool:
    """Whether a value is a `Context`: it is bound to one call, and no part of the work."""
    return _is_context_class(value.__class__)


def _has_step_key(kind: type[Any]) -> bool:
    return getattr(kind, "step_key", None) is not None


_is_context_class: Final = cast(
    "Callable[[type[Any]], bool]", functools.lru_cache(maxsize=1024)(_has_step_key)
)
