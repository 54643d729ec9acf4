"""How the value of a step is stored.

The value passes through its codec on the first run too, so that the first run and every replay see the
same. The return annotation of the function decides the codec, before the function is called; without one,
only plain JSON values can be stored. A value is read back and compared before it is stored.
"""

import inspect
import math
import re
import typing
from collections.abc import Callable
from types import FunctionType, NoneType
from typing import Any, Final, Protocol

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ekiden.errors import ParseError, UsageError
from ekiden.server.schemas import explain, type_adapter
from ekiden.server.steps.identity import name_of, unwrapped
from ekiden.server.steps.likeness import difference
from ekiden.signals import NotKept
from ekiden.wire.json import copied, decode, encode, is_array, is_object

__all__ = ["Codec", "codec_of"]


class Codec(Protocol):
    """How the values of one function are stored."""

    def spell(self, value: object) -> Any:
        """The value as JSON, in a copy of its own. Raises `NotKept`."""
        ...

    def read(self, value: object) -> Any:
        """The value as every run gets it, a new object each time."""
        ...


_SCALARS: Final = frozenset({str, int, float, bool, NoneType})


class _Nothing:
    """A type that no value has."""


def _is_easy(value: object) -> bool:
    """Whether a value is immutable, and surely the same in JSON."""
    if type(value) is str:
        return value.isascii()
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool


class _Plain:
    """For functions without a return annotation."""

    def spell(self, value: object) -> Any:
        if _is_easy(value):
            return value
        kept = _as_json(value)
        problem = difference(value, kept, exact=True)
        if problem is not None:
            raise NotKept(
                f"{problem}; only a return annotation can say how to store it: annotate the function"
            )
        return kept

    def read(self, value: object) -> Any:
        return value if type(value) in _SCALARS else copied(value)


def _as_json(value: object) -> Any:
    """The value after a trip through JSON."""
    try:
        return decode(encode(value))
    except ParseError as error:
        raise NotKept(f"it is too large for JSON ({error})") from None
    except Exception as error:
        raise NotKept(
            f"a {type(value).__qualname__} is not plain JSON ({_reason(error)}); annotate what the function "
            "returns, and return data"
        ) from None


class _Typed:
    """For functions whose annotation says what they return."""

    def __init__(self, adapter: TypeAdapter[Any], hint: object) -> None:
        self._adapter = adapter
        self._easy = hint if isinstance(hint, type) and hint in _SCALARS else _Nothing
        """The type whose values are stored as they are; `_Nothing` if there is none."""

    def spell(self, value: object) -> Any:
        if type(value) is self._easy and _is_easy(value):
            return value
        try:
            return self._kept(value)
        except NotKept:
            raise
        except Exception as error:
            raise NotKept(f"it does not fit its annotation ({_reason(error)})") from None

    def _kept(self, value: object) -> Any:
        dumped = self._adapter.dump_python(
            value, mode="json", by_alias=False, round_trip=True, warnings="error"
        )
        kept = _as_json(dumped)
        problem = self._problem(value, kept)
        if problem is not None:
            # JSON cannot represent NaN and infinity, but pydantic reads floats from their names.
            kept = _as_json(_named_floats(dumped))
            if self._problem(value, kept) is not None:
                raise NotKept(
                    f"{problem}; return a type whose JSON is all of it, and annotate exactly that type"
                )
        return kept

    def _problem(self, value: object, kept: object) -> str | None:
        try:
            return difference(value, self.read(kept))
        except ValidationError as error:
            return f"it cannot be read back ({explain(error)})"

    def read(self, value: object) -> Any:
        if type(value) is self._easy:
            return value
        return self._adapter.validate_json(encode(value), by_alias=False, by_name=True)


def _named_floats(value: object) -> Any:
    if type(value) is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if is_object(value):
        return {name: _named_floats(item) for name, item in value.items()}
    if is_array(value):
        return [_named_floats(item) for item in value]
    return value


_INPUT: Final = re.compile(r"\[?input_value=.*?(, input_type=(\w+))?\]", re.DOTALL)


def _reason(error: Exception) -> str:
    """What went wrong, without the value, which may be secret."""
    if isinstance(error, ValidationError):
        return explain(error)
    if isinstance(error, UnicodeError):
        return str(getattr(error, "reason", "not Unicode"))
    if isinstance(error, PydanticSerializationError):
        return _INPUT.sub(r"(it is: \2)", " ".join(str(error).split()))[:300]
    return f"{type(error).__name__}: {error}"[:300]


# Which codec a function has

_PLAIN: Final = _Plain()
_BYTES: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_codecs: dict[Any, Codec] = {}
"""By code and annotation: an inner function is a new object in every call, but has the same code."""
_MOST_CODECS: Final = 4096


def codec_of(function: Callable[..., Any]) -> Codec:
    """The codec of a function. Raises `UsageError` if its annotation cannot store any value."""
    if type(function) is not FunctionType:
        function = unwrapped(function)
        if isinstance(function, type):
            return _remembered((function, None), function, function)
        if not inspect.isroutine(function):
            function = type(function).__call__
    try:
        annotations: dict[str, Any] = getattr(function, "__annotations__", None) or {}
    except Exception as error:  # Since 3.14 annotations are evaluated when they are read.
        raise _unresolved(function, error) from error
    if "return" not in annotations:
        return _PLAIN
    annotation = annotations["return"]
    if isinstance(annotation, str) and getattr(function, "__closure__", None):
        annotation = _resolved(function, annotation)  # It may name what the function captured.
    return _remembered((getattr(function, "__code__", function), annotation), function, annotation)


def _remembered(key: tuple[Any, Any], function: Callable[..., Any], annotation: object) -> Codec:
    try:
        known = _codecs.get(key)
    except TypeError:  # The annotation has no hash. Its id is unique as long as the annotation is kept.
        return _codec_by_id(key, function, annotation)
    if known is None:
        known = _codecs[key] = _new_codec(function, annotation)
        _forget_oldest()
    return known


_by_id: dict[tuple[Any, int], tuple[Any, Codec]] = {}


def _codec_by_id(key: tuple[Any, Any], function: Callable[..., Any], annotation: object) -> Codec:
    code = (key[0], id(annotation))
    if (known := _by_id.get(code)) is None:
        known = _by_id[code] = (annotation, _new_codec(function, annotation))
        _forget_oldest()
    return known[1]


def _forget_oldest() -> None:
    for codecs in (_codecs, _by_id):
        while len(codecs) > _MOST_CODECS:
            del codecs[next(iter(codecs))]


def _new_codec(function: Callable[..., Any], annotation: object) -> Codec:
    hint = _resolved(function, annotation)
    if hint in (Any, typing.NoReturn, typing.Never):
        return _PLAIN
    what = f"step {name_of(function)}"
    try:
        return _Typed(TypeAdapter(hint, config=_BYTES), hint)
    except PydanticUserError:
        return _Typed(type_adapter(hint, what), hint)  # A model, which has a configuration of its own.
    except Exception as error:
        raise UsageError(f"{what}: what it returns cannot be kept by its annotation: {error}") from error


def _resolved(function: Callable[..., Any], annotation: object) -> Any:
    """The annotation as a type. It may use names of the function's module, and captured variables."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    names: dict[str, Any] = {}
    if isinstance(inner, FunctionType):
        names = {**inner.__globals__, **_captured(inner)}

    def holder() -> None: ...

    holder.__annotations__ = {"return": annotation}
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["return"]
    except Exception as error:
        raise _unresolved(function, error) from error


def _captured(function: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _unresolved(function: Callable[..., Any], error: Exception) -> UsageError:
    return UsageError(f"step {name_of(function)}: its type hints cannot be resolved: {error}")
