"""Encodes values as bytes that are equal in every process, to identify steps by their arguments.

A value is encoded as a tag and framed parts, so that values of different types never give the same bytes.
The bytes are only hashed, never decoded.
"""

import dataclasses
import functools
import ipaddress
import re
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import NoneType
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec
from pydantic import AnyUrl, BaseModel, Secret, SecretBytes, SecretStr

from ekiden.rounds.journal import framed
from ekiden.server.steps.plain import kind_of
from ekiden.signals import Unidentified
from ekiden.wire.json import MAX_DEPTH

__all__ = ["ATOMS", "SECRETS", "Speller", "type_name"]

SECRETS: Final = (SecretStr, SecretBytes, Secret)


def _type_name(kind: type[Any]) -> bytes:
    return f"{kind.__module__}:{kind.__qualname__}".encode(errors="surrogatepass")


type_name: Final = cast("Callable[[type[Any]], bytes]", functools.lru_cache(maxsize=1024)(_type_name))
"""The full name of a class, which no other class has."""


def _text(value: str) -> bytes:
    return value.encode(errors="surrogatepass")


def _float(value: float) -> bytes:
    return b"i%d" % value if value.is_integer() else b"d" + repr(value).encode()


_ATOMS: Final[dict[type, Callable[[Any], bytes]]] = {
    NoneType: lambda _: b"n",
    bool: lambda value: b"T" if value else b"F",
    int: lambda value: b"i%d" % value,
    float: _float,
    complex: lambda value: b"c" + repr(value).encode(),
    str: lambda value: b"s" + _text(value),
    bytes: lambda value: b"b" + value,
    Decimal: lambda value: b"D" + str(value).encode(),
    datetime: lambda value: b"t%d" % value.fold + value.isoformat().encode(),
    date: lambda value: b"y" + value.isoformat().encode(),
    time: lambda value: b"h%d" % value.fold + value.isoformat().encode(),
    timedelta: lambda value: b"e%d:%d:%d" % (value.days, value.seconds, value.microseconds),
    UUID: lambda value: b"U" + value.bytes,
}
ATOMS: Final = frozenset(_ATOMS)
"""Types whose values never change and hold no others."""

_BY_TEXT: Final = (
    AnyUrl,
    Fraction,
    PurePath,
    range,
    re.Pattern,
    timezone,
    zoneinfo.ZoneInfo,
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)
"""Types that are fully described by their `str`, or, if they are in `_BY_REPR`, by their `repr`."""

_BY_REPR: Final = (range, re.Pattern, zoneinfo.ZoneInfo)

_Way: TypeAlias = "Callable[[Speller, Any], bytes]"


class Speller:
    """Encodes the values of one step. A subclass adds functions, classes and modules."""

    def __init__(self) -> None:
        self._depth = 0

    def spell(self, value: object) -> bytes:
        """Encode a value. Raises `Unidentified`."""
        kind = kind_of(value)
        atom = _ATOMS.get(kind)
        if atom is not None:
            return atom(value)
        if self._depth > MAX_DEPTH:
            raise Unidentified(f"it is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        try:
            return _way(kind)(self, value)
        finally:
            self._depth -= 1

    def all(self, values: Iterable[object]) -> list[bytes]:
        """Encode several values."""
        return [self.spell(value) for value in values]

    def callable(self, value: object) -> bytes:
        """Encode what is not data: a function, a class, a module, a method. Refused here."""
        raise Unidentified(f"{_described(value)} has no identity that another process knows")

    def named(self, value: object, names: Iterable[str]) -> bytes:
        """Encode an object by its class and its fields; a field that was never set counts as `...`."""
        parts = [type_name(kind_of(value))]
        for name in names:
            parts += (_text(name), self.spell(getattr(value, name, _MISSING)))
        return b"O" + framed(*parts)


_MISSING: Final = Ellipsis


def _described(value: object) -> str:
    kind = kind_of(value)
    return f"a value of type {kind.__module__}.{kind.__qualname__}"


def _list(speller: Speller, value: Iterable[object]) -> bytes:
    return b"l" + framed(*speller.all(value))


def _tuple(speller: Speller, value: Iterable[object]) -> bytes:
    return b"u" + framed(*speller.all(value))


def _set(speller: Speller, value: Iterable[object]) -> bytes:
    return b"S" + framed(*sorted(speller.all(value)))


def _dict(speller: Speller, value: dict[Any, Any]) -> bytes:
    pairs = [framed(speller.spell(key), speller.spell(item)) for key, item in value.items()]
    return b"o" + framed(*sorted(pairs))


def _enum(speller: Speller, value: Enum) -> bytes:
    return b"E" + framed(type_name(kind_of(value)), _text(str(value.name)), speller.spell(value.value))


def _secret(speller: Speller, value: Any) -> bytes:
    return b"P" + framed(type_name(kind_of(value)), speller.spell(value.get_secret_value()))


def _model(speller: Speller, value: BaseModel) -> bytes:
    fields = speller.named(value, type(value).__pydantic_fields__)
    extra = value.__pydantic_extra__
    return fields if not extra else b"X" + framed(fields, _dict(speller, extra))


def _dataclass(speller: Speller, value: Any) -> bytes:
    return speller.named(value, [field.name for field in dataclasses.fields(value)])


def _struct(speller: Speller, value: msgspec.Struct) -> bytes:
    return speller.named(value, type(value).__struct_fields__)


def _attrs(speller: Speller, value: object) -> bytes:
    return speller.named(value, [str(field.name) for field in cast("Any", kind_of(value)).__attrs_attrs__])


def _by_text(_: Speller, value: object) -> bytes:
    by_repr = issubclass(kind_of(value), _BY_REPR)
    return b"V" + framed(type_name(kind_of(value)), _text(repr(value) if by_repr else str(value)))


def _subclassed(base: type, way: _Way) -> _Way:
    """Encode a value of a builtin's subclass like the builtin's, but with its own class."""
    return lambda speller, value: b"C" + framed(type_name(kind_of(value)), way(speller, value))


def _atom_of(base: type) -> _Way:
    def spell(_: Speller, value: object) -> bytes:
        # The builtin's own conversion: a subclass may have overridden it.
        return _ATOMS[base](_AS_BUILTIN[base](value))

    return spell


_AS_BUILTIN: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.join(b"", (value,)),
    Decimal: Decimal,
    datetime: lambda value: value,
    date: lambda value: value,
    UUID: lambda value: value,
}

_EXACT: Final[dict[type, _Way]] = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _subclassed(frozenset, _set),
    dict: _dict,
    bytearray: lambda _, value: b"B" + bytes(value),
    type(_MISSING): lambda _, value: b".",
}

_CLASSES: Final[tuple[tuple[type | tuple[type, ...], _Way], ...]] = (
    (Enum, _enum),
    (SECRETS, _secret),
    (BaseModel, _model),
    (msgspec.Struct, _struct),
    (_BY_TEXT, _by_text),
    *((base, _subclassed(base, _atom_of(base))) for base in _AS_BUILTIN),
)

_CONTAINERS: Final[tuple[tuple[type | tuple[type, ...], _Way], ...]] = (
    ((list, tuple, deque), _subclassed(list, _list)),
    ((set, frozenset), _subclassed(set, _set)),
    (dict, _subclassed(dict, _dict)),
)


def _find_way(kind: type[Any]) -> _Way:
    """How the values of a type are encoded."""
    if (exact := _EXACT.get(kind)) is not None:
        return exact
    for classes, way in _CLASSES:
        if issubclass(kind, classes):
            return way
    if getattr(kind, "step_key", None) is not None:
        return lambda _, value: b"x"
    if dataclasses.is_dataclass(kind):
        return _dataclass
    if hasattr(kind, "__attrs_attrs__"):
        return _attrs
    for classes, way in _CONTAINERS:
        if issubclass(kind, classes):
            return way
    return lambda speller, value: speller.callable(value)


_way: Final = cast("Callable[[type[Any]], _Way]", functools.lru_cache(maxsize=1024)(_find_way))
