"""JSON in and out, with the limits that make untrusted input harmless.

The decoder is msgspec's: it refuses NaN and Infinity, lone surrogates, invalid UTF-8, trailing
characters and fractions beyond what a double can hold. What it does not bound, the depth and the size
of integers, is bounded here.
"""

import re
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from ekiden.errors import ParseError

__all__ = [
    "ENCODE_ERRORS",
    "MAX_DEPTH",
    "JsonObject",
    "Raw",
    "canonical",
    "copied",
    "decode",
    "encode",
    "is_array",
    "is_object",
]

MAX_DEPTH: Final = 128
"""Deep enough for any schema we have seen (the deepest had 14 levels), shallow enough that
no recursive consumer of the value, ours or the author's, comes near its stack limit."""

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object. Its values are whatever JSON has, and are looked at one by one."""

Raw = msgspec.Raw
"""Bytes that are JSON already; the encoder copies them as they are."""

_decode = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()

encode = _encoder.encode
"""A value made of JSON types (and `Raw`) as compact UTF-8 bytes on one line."""


def decode(data: bytes) -> Any:
    """The value that `data` spells, or `ParseError`."""
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ParseError(f"Parse error: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    # A level costs two brackets, that of an object also a name: most messages are cleared by their size.
    size = len(data)
    if (
        (size > 5 * MAX_DEPTH or (size > 2 * MAX_DEPTH and data.find(b"[") >= 0))
        and size - len(data.replace(b"{", b"").replace(b"[", b"")) > MAX_DEPTH  # `count` is slower.
        and not _is_shallow(value)
    ):
        raise _too_deep()
    # Of a number that is too long, four digits in a row are seen by looking at every fourth byte only.
    if (
        data[::4].translate(_DIGITS).find(b"0000") >= 0
        and data.translate(_DIGITS).find(_LONG_NUMBER) >= 0
        and not _is_exact(value)
    ):
        raise ParseError(f"Parse error: an integer beyond {_LARGEST.bit_length()} bits")
    return value


def copied(value: Any) -> Any:
    """A deep copy of a value made of JSON types, which the receiver may change."""
    return _decode(encode(value))


ENCODE_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What `encode` raises for a value that JSON cannot represent."""

_deterministic = msgspec.json.Encoder(order="deterministic").encode
_MAYBE_WHOLE: Final = re.compile(rb"[0-9](?:\.0(?![0-9])|[eE])")
_POINTS: Final = bytes(
    0x30 if 0x30 <= byte <= 0x39 else 0x2E if byte in b".eE" else 0x20 for byte in range(256)
)
"""Turns every digit into 0, points and exponents into points: `0.` is where a fraction may be."""


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: keys in order, and 1.0 spelled as 1."""
    data = _deterministic(value)
    # Text that looks like such a number costs a second pass, nothing else.
    if data.translate(_POINTS).find(b"0.") >= 0 and _MAYBE_WHOLE.search(data):
        return _deterministic(_whole(value))
    return data


def _whole(value: Any) -> Any:
    if type(value) is float and value.is_integer():
        return int(value)
    if is_object(value):
        return {key: _whole(item) for key, item in value.items()}
    if is_array(value):
        return [_whole(item) for item in value]
    return value


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Whether a decoded value is a JSON object."""
    return type(value) is dict


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded value is a JSON array."""
    return type(value) is list


_DIGITS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19
"""With every digit turned into 0 and all else into blanks: a number that may be too long."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""Integers of a machine. Larger ones are fractions to most peers, and no token could keep them."""


def _is_exact(value: Any) -> bool:
    if type(value) is int:
        return _SMALLEST <= value <= _LARGEST
    if is_object(value):
        return all(_is_exact(item) for item in value.values())
    return not is_array(value) or all(_is_exact(item) for item in value)


def _is_shallow(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if is_object(parent) else parent)
            if is_object(child) or is_array(child)
        ]
        if not level:
            return True
    return False


def _too_deep() -> ParseError:
    return ParseError(f"Parse error: nested deeper than {MAX_DEPTH} levels")
