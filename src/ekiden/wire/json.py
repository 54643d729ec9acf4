"""JSON in and out, with the limits that make untrusted input harmless.

The decoder is msgspec's: it refuses NaN and Infinity, lone surrogates, invalid UTF-8, trailing
characters and numbers beyond what a double or a machine integer can hold. What it does not
bound, the depth, is bounded here.
"""

import re
from typing import Any, Final, TypeGuard

import msgspec

from ekiden.errors import ParseError

__all__ = ["MAX_DEPTH", "Raw", "canonical", "decode", "encode", "is_array", "is_object"]

MAX_DEPTH: Final = 128
"""Deep enough for any schema we have seen (the deepest had 14 levels), shallow enough that
no recursive consumer of the value, ours or the author's, comes near its stack limit."""

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
    # Each level costs at least one bracket, so most messages are cleared by counting alone.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and not _is_shallow(value):
        raise _too_deep()
    return value


_deterministic = msgspec.json.Encoder(order="deterministic").encode
_MAYBE_WHOLE: Final = re.compile(rb"[0-9](?:\.0(?![0-9])|[eE])")


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: keys in order, and 1.0 spelled as 1."""
    data = _deterministic(value)
    # Text that looks like such a number costs a second pass, nothing else.
    return _deterministic(_whole(value)) if _MAYBE_WHOLE.search(data) else data


def _whole(value: Any) -> Any:
    if type(value) is float and value.is_integer():
        return int(value)
    if is_object(value):
        return {key: _whole(item) for key, item in value.items()}
    if is_array(value):
        return [_whole(item) for item in value]
    return value


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is a JSON object."""
    return type(value) is dict


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded value is a JSON array."""
    return type(value) is list


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
