"""As much of a story as a page can show: a client decides how often it repeats a round, and what it sends."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from ekiden.stories.events import Event, decode_events

__all__ = ["first_and_last"]

_HALF: Final = 1_000_000
"""Bytes of events from the beginning that are shown, and as many from the end: a page of some megabytes."""
_EVENT: Final = 200
"""Bytes that every event counts beside its texts: the page has a row for it."""

Placed: TypeAlias = tuple[tuple[int, int], Event]
"""An event, and its place: the number of its batch, and that of the event in it."""


def first_and_last(batches: Sequence[bytes]) -> tuple[list[Event], bool]:
    """The events of a story in order, and whether some were left out of its middle."""
    first = dict(_within(_forwards(batches)))
    last: list[Event] = []
    for place, event in _within(_backwards(batches)):
        if place in first:
            break
        last.append(event)
    else:
        return [*first.values(), *reversed(last)], bool(batches)
    return [*first.values(), *reversed(last)], False


def _within(events: Iterable[Placed]) -> Iterator[Placed]:
    room = _HALF
    for place, event in events:
        room -= _EVENT + len(event.name) + len(event.about) + len(event.value)
        if room < 0:
            return
        yield place, event


def _forwards(batches: Sequence[bytes]) -> Iterator[Placed]:
    for number, batch in enumerate(batches):
        for at, event in enumerate(decode_events(batch)):
            yield (number, at), event


def _backwards(batches: Sequence[bytes]) -> Iterator[Placed]:
    for number in range(len(batches) - 1, -1, -1):
        events = decode_events(batches[number])
        for at in range(len(events) - 1, -1, -1):
            yield (number, at), events[at]
