"""Compares a value with its copy that was stored and read back, types included."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from ekiden.server.steps.plain import kind_of

__all__ = ["difference"]


def difference(value: object, copy: object, *, exact: bool = False) -> str | None:
    """Describe where and how a copy differs, without showing the values; None if it is equal.

    Unless `exact`, a value of a subclass of `str`, `int`, `float`, `bytes` or `dict` may come back as that
    builtin, and an `int` as a `float`: they are equal, and annotations allow it.
    """
    return _difference(value, copy, exact, "it")


def _difference(value: object, copy: object, exact: bool, where: str) -> str | None:
    if value is copy:
        return None
    kind = kind_of(value)
    if kind is not type(copy):
        if not exact and _stands_in(value, copy):
            return None
        if copy is None and kind is float:
            return f"{where} is a float that JSON cannot represent"
        return f"{where} was {_name(kind)} and came back as {_name(kind_of(copy))}"
    parts = _PARTS.get(kind) or _parts_of(kind)
    if parts is not None:
        return _by_parts(parts(value), parts(copy), exact, where)
    if _equal(value, copy):
        return None
    if _has_no_equality(kind) and hasattr(value, "__dict__"):
        return _by_parts(value.__dict__, copy.__dict__, exact, where)
    return f"{where} is {_name(kind)} and came back with another value"


def _has_no_equality(kind: Any) -> bool:
    return kind.__eq__ is object.__eq__


def _name(kind: type) -> str:
    return kind.__qualname__


def _equal(value: Any, copy: Any) -> bool:
    if value == copy:
        return True
    return isinstance(value, float | Decimal) and math.isnan(value) and math.isnan(copy)


_SIMPLE: Final = (str, int, float, bool, NoneType)
_BASES: Final = (str, int, float, bytes, dict)


def _stands_in(value: object, copy: object) -> bool:
    kind = kind_of(copy)
    if kind not in _BASES or isinstance(value, Enum):
        return False
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    return fits and bool(value == copy)


def _by_parts(value: dict[Any, Any], copy: dict[Any, Any], exact: bool, where: str) -> str | None:
    for name, part in value.items():
        if type(part) in _SIMPLE and name in copy and type(part) is type(copy[name]) and part == copy[name]:
            continue
        inner = f"{where}[{name!r}]" if not isinstance(name, _Field) else f"{where}.{name}"
        if name not in copy:
            return f"{inner[:200]} did not come back"
        if (found := _difference(part, copy[name], exact, inner[:200])) is not None:
            return found
    return None if len(value) == len(copy) else f"{where} came back with more than it had"


class _Field(str):
    """The name of an attribute, rather than a key of a dict."""

    __slots__ = ()


def _fields(value: object, names: Iterable[str]) -> dict[Any, Any]:
    return {_Field(name): getattr(value, name) for name in names if hasattr(value, name)}


def _of_model(value: BaseModel) -> dict[Any, Any]:
    parts = _fields(value, kind_of(value).__pydantic_fields__)
    parts[_Field("model_extra")] = value.model_extra
    parts.update(_fields(value, kind_of(value).__private_attributes__))
    return parts


def _of_dataclass(value: Any) -> dict[Any, Any]:
    return _fields(value, [field.name for field in dataclasses.fields(value)])


def _of_struct(value: msgspec.Struct) -> dict[Any, Any]:
    return _fields(value, type(value).__struct_fields__)


def _of_sequence(value: Iterable[object]) -> dict[Any, Any]:
    return dict(enumerate(value))


def _of_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return value


_PARTS: Final[dict[type, Callable[[Any], dict[Any, Any]]]] = {
    dict: _of_dict,
    list: _of_sequence,
    tuple: _of_sequence,
}


def _parts_of(kind: type[Any]) -> Callable[[Any], dict[Any, Any]] | None:
    if issubclass(kind, BaseModel):
        return _of_model
    if issubclass(kind, msgspec.Struct):
        return _of_struct
    if dataclasses.is_dataclass(kind):
        return _of_dataclass
    for base, parts in _PARTS.items():
        if issubclass(kind, base):
            return parts
    return None
