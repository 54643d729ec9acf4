"""What stores of stories share: columns, lists that become one, and how watchers hear of changes."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, LiteralString, TypeVar, get_args

import msgspec

from ekiden.bus.listeners import Listeners
from ekiden.bus.port import Bus
from ekiden.stories.events import Action, CallRow, CallStatus
from ekiden.stories.store import StoryWatcher

__all__ = [
    "ANY_CALL",
    "CALL",
    "decode_action",
    "encode_action",
    "merged",
    "message_of",
    "read_call",
    "watch_both",
]

T = TypeVar("T")

CALL: Final[tuple[LiteralString, ...]] = (
    *("id", "audience", "method", "target", "principal", "started", "updated"),
    *("state", "task", "size", "facts"),
)
"""All fields of a row, each with a column of its own."""
assert CallRow.__struct_fields__ == CALL
ANY_CALL: Final[tuple[CallStatus, ...]] = get_args(CallStatus)

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


async def watch_both(
    here: Listeners[Sequence[str]], bus: Bus | None, watcher: StoryWatcher
) -> Callable[[], None]:
    """Have a watcher told of the changes of this process, and over the bus of those of others."""
    remove = here.add(watcher)
    end = None if bus is None else await bus.listen(lambda message: watcher(read_message(message)))

    def end_both() -> None:
        remove()
        if end is not None:
            end()

    return end_both
