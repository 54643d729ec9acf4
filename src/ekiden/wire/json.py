"""JSON in and out, with the limits that make untrusted input harmless.

The decoder is msgspec's: it refuses NaN and Infinity, lone surrogates, invalid UTF-8, trailing
characters and fractions beyond what a double can hold. What it does not bound, the depth, the number of
values and the size of integers, is bounded here.
"""

import itertools
import re
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from ekiden.errors import ParseError, TooManyValues

__all__ = [
    "ENCODE_ERRORS",
    "MAX_DEPTH",
    "MAX_VALUES",
    "JsonObject",
    "Raw",
    "canonical",
    "copied",
    "count_values",
    "decode",
    "encode",
    "extract",
    "is_array",
    "is_object",
]

MAX_DEPTH: Final = 128
"""Deep enough for any schema we have seen (the deepest had 14 levels), shallow enough that
no recursive consumer of the value, ours or the author's, comes near its stack limit."""
_SHALLOW: Final = 2 * MAX_DEPTH
_SHALLOW_OBJECTS: Final = 5 * MAX_DEPTH
"""Bytes that are too few for that depth, because a level costs two brackets; where there are only objects,
each also a name."""
MAX_VALUES: Final = 50_000
"""Values in one message of a client. By the time its tool is called each has cost about a microsecond, so no
message holds up others for longer than some 50 ms. A table of 5,000 rows and 9 columns fits."""


JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object. Its values are whatever JSON has, and are looked at one by one."""

Raw = msgspec.Raw
"""Bytes that are JSON already; the encoder copies them as they are."""

_decode = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()

encode = _encoder.encode
"""A value made of JSON types (and `Raw`) as compact UTF-8 bytes on one line."""


def decode(data: bytes, most_values: int | None = None) -> Any:
    """The value that `data` spells, or `ParseError`. A message of a client is given `most_values`."""
    size = len(data)
    if size > _SHALLOW_OBJECTS or (size > _SHALLOW and data.find(b"[") >= 0):
        _check_size(data, most_values)
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"Parse error: {error}") from None
    # A number that is too long has twenty digits, or a minus and nineteen: four of them are seen by looking
    # at every fifth byte only.
    if (
        data[::5].translate(_DIGITS_AND_MINUS).find(b"0000") >= 0  # `in` first takes it for a number.
        and data.translate(_DIGITS).find(_LONG_NUMBER) >= 0
        and not _is_exact(value)
    ):
        raise ParseError(f"Parse error: an integer beyond {_LARGEST.bit_length()} bits")
    return value


def copied(value: Any) -> Any:
    """A deep copy of a value made of JSON types, which the receiver may change."""
    return _decode(encode(value))


_PER_VALUE: Final = 64
"""Bytes that a value takes in memory beside its text, about."""
_LEVELS: Final = 5
"""Levels of objects out of which parts are taken. The deepest capability of the protocol is on the fourth."""


def extract(value: JsonObject, most_bytes: int, levels: int = _LEVELS) -> JsonObject:
    """As many members of an object as fit into some bytes of memory. Of a large member, parts are taken."""
    if levels == _LEVELS and _bytes_of(value) <= most_bytes:
        return value
    kept: JsonObject = {}
    for name, member in value.items():
        most_bytes -= _bytes_of(name)
        if most_bytes < 0:
            break
        size = _bytes_of(member)
        if size > most_bytes:
            if not is_object(member) or levels == 1:
                continue
            member = extract(member, most_bytes, levels - 1)
            size = _bytes_of(member)
        kept[name] = member
        most_bytes -= size
    return kept


def _bytes_of(value: Any) -> int:
    text = encode(value)
    return len(text) + _PER_VALUE * (1 + len(text) - len(text.translate(None, b",[{")))


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
_DIGITS_AND_MINUS: Final = bytes(0x30 if byte == 0x2D else _DIGITS[byte] for byte in range(256))
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


# How much a text asks of its reader, found out before it is read.
#
# A body of a few megabytes may hold a million empty lists. Each costs twenty times its bytes in memory, and
# time in the decoder, in every validator and in the garbage collector, which all hold up the event loop. So
# values are counted first, by passes over the bytes that are nearly as fast as copying them. The count is
# exact for a text that is JSON. Of any other, what the decoder reads before it fails is counted.

_HARD: Final = (b"0" * 20, b"e000")
"""Twenty digits, or an exponent of three, after `_DIGITS_AND_E`. To round such a number to a double takes up
to ten microseconds, so each counts as `_PER_HARD` values."""
_PER_HARD: Final = 16

_DIGITS_AND_E: Final = bytes(
    0x30 if 0x30 <= byte <= 0x39 else 0x65 if byte in b"eE" else 0x20 for byte in range(256)
)
"""With `_SIGNS` left out: turns digits into 0, and all that cannot be in a number into blanks."""
_NUMBERS: Final = bytes(
    0x31 if 0x31 <= byte <= 0x39 else byte if byte in b"0.eE" else 0x20 for byte in range(256)
)
"""The same, but zeros and points are still told from other digits."""
_SIGNS: Final = b"+-."
_SHORT_TEXT: Final = 4096
"""Bytes up to which `replace` counts brackets. It goes from one to the next, and is four times as fast as
`translate`, which looks at every byte, unless there are very many of them."""
_STEPS: Final = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else 0 for byte in range(256))
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def _check_size(data: bytes, most_values: int | None) -> None:
    """Refuse a text that is nested too deeply, or has more than `most_values` values (None: any number)."""
    size = len(data)
    if size <= _SHORT_TEXT:
        openers = size - len(data.replace(b"{", b"").replace(b"[", b""))
        if openers <= MAX_DEPTH and (most_values is None or size <= most_values):
            return
    else:
        openers = size - len(data.translate(None, b"[{"))
    # A value is the whole, or the first in its brackets, or comes after a comma.
    may_be_many = (
        most_values is not None
        and size > most_values
        and (openers + size - len(data.translate(None, b",")) >= most_values or _may_be_hard(data))
    )
    if openers <= MAX_DEPTH and not may_be_many:
        return
    bare = _without_strings(data, most_values)
    if may_be_many and most_values is not None and _count(bare) > most_values:
        raise _too_many(most_values)
    if openers > MAX_DEPTH and _depth(bare) > MAX_DEPTH:
        raise ParseError(f"Parse error: nested deeper than {MAX_DEPTH} levels")


_SELDOM: Final = 128
"""Bytes for each comma or bracket, from which on it does not matter whether they are in strings."""


_PIECE: Final = 256 * 1024
"""Bytes from which strings are left out at a time. So a text with too many values costs no more than one with
as many as it may have."""


def count_values(data: bytes, most: int, *, roughly: bool = False) -> int:
    """About how many values a text has, but not more than `most`: with more of them it is not read.

    `roughly` counts commas in strings, too, which takes a fraction of the time.
    """
    count = 1 + len(data) - len(data.translate(None, b",[{"))
    if count * _SELDOM > len(data) and not roughly:
        if len(data) - len(data.translate(None, b'"')) > 4 * most:
            return most
        bare = _without_strings(data, None)
        count = 1 + len(bare) - len(bare.translate(None, b",[{"))
    return min(count, most)


def _without_strings(data: bytes, most_values: int | None) -> bytes:
    """The text without what is between quotes. A backslash is only there."""
    if data.find(b"\\") >= 0:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string is a value, or the name of one.
    if most_values is not None and len(data) - len(data.translate(None, b'"')) > 4 * most_values:
        raise _too_many(most_values)
    left: list[bytes] = []
    values, is_text = 1, 0
    for start in range(0, len(data), _PIECE):
        parts = data[start : start + _PIECE].split(b'"')
        left.append(b"".join(parts[is_text::2]))
        is_text = (is_text + len(parts) - 1) % 2
        if most_values is not None:
            values += len(left[-1]) - len(left[-1].translate(None, b",[{"))
            if values > most_values:
                raise _too_many(most_values)
    return b"".join(left)


def _count(bare: bytes) -> int:
    values = 1 + len(bare) - len(bare.translate(None, b",[{"))
    if _may_be_hard(bare):
        numbers = bare.translate(_NUMBERS, b"+-")
        for zeros in (b" 0.000", b" 0.00", b" 0.0"):  # Such zeros are in front of the digits that count.
            numbers = numbers.replace(zeros, b" ")
        numbers = numbers.translate(_DIGITS_AND_E, _SIGNS)
        values += _PER_HARD * sum(numbers.count(mark) for mark in _HARD)
    return values


def _may_be_hard(data: bytes) -> bool:
    numbers = data.translate(_DIGITS_AND_E, _SIGNS)
    return any(numbers.find(mark) >= 0 for mark in _HARD)


def _depth(bare: bytes) -> int:
    """How deep brackets are nested, whether or not they fit together."""
    steps = memoryview(bare.translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(itertools.accumulate(steps), default=0)


def _too_many(most_values: int) -> TooManyValues:
    return TooManyValues(f"Parse error: more than {most_values} values in one message")
