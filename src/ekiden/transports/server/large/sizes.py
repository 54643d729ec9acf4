"""About how much memory a value takes: what a handler returned, or the result that was made of it."""

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import attrgetter
from types import FunctionType, MethodType, ModuleType, NoneType
from typing import Any, Final, TypeAlias, cast

__all__ = ["size_of"]

_Parts: TypeAlias = Collection[Any]

_ALL: Final = 64 * 1024
"""So many parts of one level are all counted. Of more, some stand for all."""
_LOOKED_INTO: Final = 8 * 1024
"""The same for those of them that have parts themselves."""
_SOME: Final = 960
_DEPTH: Final = 32
"""Levels that are looked at: a value may contain itself."""
_PARTLESS: Final = frozenset({str, bytes, bytearray, bool, int, float, NoneType})
_NOT_DATA: Final = (type, Enum, ModuleType, FunctionType, MethodType)
"""There is one for all, and what it refers to does not belong to a value."""
_UNKNOWN: Final = 64
"""Bytes of an object that cannot tell its own."""
_KEY: Final = 41
"""Bytes of a key that are not counted: all rows share most keys. But its letters are spelled each time."""
_SPREAD: Final = 0.6180339887
"""How far apart the places are that are looked at, as a part of what each stands for. They never fall into
step with what is repeated in a value."""


def size_of(value: object) -> int:
    """About how many bytes a value takes in memory, with all that is in it."""
    level: list[Any] = [value]
    size, times = float(_own(level)), 1.0
    for _ in range(_DEPTH):
        if _PARTLESS.issuperset(map(type, level)):
            break
        holders = [each for each in level if type(each) not in _PARTLESS]
        if len(holders) > _LOOKED_INTO:
            times *= len(holders) / _SOME
            holders = _spread([holders], len(holders))
        by_class: dict[type, list[Any]] = {}
        for each in holders:
            by_class.setdefault(each.__class__, []).append(each)
        keys, each_for = _some(
            [each for of, some in by_class.items() if issubclass(of, dict) for each in some]
        )
        size += times * each_for * (_own(keys) - _KEY * len(keys))
        level, each_for = _some([parts for of, some in by_class.items() for parts in _parts(of, some)])
        times *= each_for
        size += times * _own(level)
    return int(size)


def _own(values: list[Any]) -> int:
    """What some objects take, without their parts."""
    return sum(map(sys.getsizeof, values, repeat(_UNKNOWN)))


def _some(collections: Sequence[_Parts]) -> tuple[list[Any], float]:
    """What is in some collections, and for how many each of these stands."""
    count = sum(map(len, collections))
    if count <= _ALL:
        return list(chain.from_iterable(collections)), 1.0
    return _spread(collections, count), count / _SOME


def _spread(collections: Sequence[_Parts], count: int) -> list[Any]:
    """Some of the parts of some collections, from all over them."""
    ends = list(accumulate(map(len, collections)))
    some, parts, whose = list[Any](), list[Any](), -1
    for number in range(_SOME):
        place = int((number + (number * _SPREAD + 0.5) % 1) * count / _SOME)
        if (which := bisect_right(ends, place)) != whose:
            collection, whose = collections[which], which
            parts = collection if isinstance(collection, list) else list(collection)
        some.append(parts[place - ends[which]])  # Counted from its end.
    return some


def _parts(of: type, values: list[Any]) -> Iterable[_Parts]:
    """What some values of one class refer to."""
    if issubclass(of, list | tuple | set | frozenset | deque):
        return values
    if issubclass(of, Mapping):
        return [each.values() for each in values]
    if issubclass(of, _NOT_DATA):
        return ()
    return [_of_each(name, values) for name in _fields(cast("Any", of))]


def _of_each(name: str, values: list[Any]) -> list[Any]:
    try:
        return list(map(attrgetter(name), values))
    except Exception:  # Some have no such part yet.
        return [getattr(each, name, None) for each in values]


@lru_cache(256)
def _fields(of: type) -> tuple[str, ...]:
    """Where the objects of a class have their parts."""
    slots = chain.from_iterable(_names(each.__dict__.get("__slots__", ())) for each in of.__mro__)
    return tuple({"__dict__": 0, **dict.fromkeys(slots)} if of.__dictoffset__ else dict.fromkeys(slots))


def _names(slots: str | Collection[str]) -> Collection[str]:
    return (slots,) if isinstance(slots, str) else slots
