"""The columns of a call's story, and how lists that are each in order become one."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, LiteralString, TypeVar

import msgspec

from ekiden.stories.events import Action, CallRow

__all__ = ["CALL", "decode_action", "encode_action", "merged", "message_of", "read_call", "read_message"]

T = TypeVar("T")

CALL: Final[tuple[LiteralString, ...]] = (
    *("id", "audience", "method", "target", "principal", "started", "updated"),
    *("state", "task", "size", "facts"),
)
"""All fields of a row, each with a column of its own."""
assert CallRow.__struct_fields__ == CALL

_MOST_TOLD: Final = 100
"""Ids in one message; of more calls than that it says only that some have changed."""

encode_action: Final = msgspec.msgpack.Encoder().encode
decode_action: Final = msgspec.msgpack.Decoder(Action).decode
_spell: Final = msgspec.json.Encoder().encode
_ids: Final = msgspec.json.Decoder(list[str]).decode


def read_call(row: Sequence[Any]) -> CallRow:
    """A row with the columns of `CALL`."""
    return CallRow(**dict(zip(CALL, row, strict=True)))


def merged(lists: Iterable[Sequence[T]], place: Callable[[T], tuple[float, str]], limit: int) -> list[T]:
    """The newest of several lists, each of which has its newest first."""
    return list(islice(heapq.merge(*lists, key=place, reverse=True), limit))


def message_of(call_ids: Sequence[str]) -> bytes:
    """What a bus tells of changed calls."""
    return _spell(call_ids if len(call_ids) <= _MOST_TOLD else [])


def read_message(message: bytes | None) -> list[str]:
    """The calls that have changed; none if some were missed."""
    try:
        return [] if message is None else _ids(message)
    except msgspec.MsgspecError:
        return []
