"""Whatever text comes, JSON is read as Python's own reader does, or refused for a reason that is true."""

import json
import math
from typing import Any

from ekiden.errors import ParseError
from ekiden.wire.json import decode, encode, extract
from tests.fuzz import texts

_LIMIT = 60


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _integer(text: str) -> int:
    if not -(2**63) <= (value := int(text)) < 2**64:
        raise ValueError(text)
    return value


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(text)
    return value


def _expected(data: bytes) -> Any:
    """The value as Python reads it; `...` for what JSON does not have, or no peer could read."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
        encode(value)  # Which refuses lone surrogates.
    except RecursionError:
        return None  # Far too deep, but perhaps in order otherwise.
    except (ValueError, OverflowError):
        return ...
    return value


def _check(seed: int) -> None:
    data = texts.text(seed)
    value, why, read = _expected(data), "", None
    try:
        read = decode(data)
    except ParseError as error:
        why = str(error)
    if value is ... or value is None:
        assert (value is ...) <= bool(why), f"seed {seed}: it is not JSON, and was read"
        return
    is_deep = texts.depth(value) > 128
    assert ("nested deeper" in why) == is_deep, f"seed {seed}: {why}"
    if is_deep:
        return
    assert not why, f"seed {seed}: {why}"
    assert read == value, f"seed {seed}"
    _check_count(seed, data, value)
    if isinstance(value, dict):
        assert len(encode(extract(value, 200))) <= 200, f"seed {seed}"


def _check_count(seed: int, data: bytes, value: Any) -> None:
    values = texts.count(value)
    try:
        decode(data, _LIMIT)
        is_refused = False
    except ParseError:
        is_refused = True
    if is_refused:
        # Numbers that are slow to read count more than once.
        assert values > _LIMIT or b"e" in data.lower() or b"1" * 20 in data, f"seed {seed}: {values}"
    elif len(data) > 640:
        assert values <= _LIMIT, f"seed {seed}: {values}"


def test_generated_texts_are_read_or_refused_rightly(fuzz: range) -> None:
    for seed in fuzz:
        _check(seed)
