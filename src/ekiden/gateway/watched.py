"""Which resources and tasks are watched at an upstream, if clients want more than it may be asked for.

Clients take turns: so no client can have so many, or so long ones, that others hear of nothing.
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Final

from ekiden.wire.json import encode

__all__ = ["Place", "Places", "chosen"]

_MOST: Final = 1000
_MOST_BYTES: Final = 96 * 1024
"""Resources that are watched at one upstream, and the bytes of their URIs: ekiden's own servers take no more
than 128 KiB, and refuse the whole subscription beyond it."""


def chosen(watched: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Those of the resources that clients watch which are watched at the upstream."""
    found: dict[str, None] = {}
    taken = 0
    for turn in zip_longest(*(sorted(watched[client]) for client in sorted(watched))):
        for uri in turn:
            if uri is None or uri in found:
                continue
            size = len(encode(uri))
            if taken + size <= _MOST_BYTES:
                found[uri] = None
                taken += size
            if len(found) == _MOST:
                return tuple(sorted(found))
    return tuple(sorted(found))


class Place:
    """Something that is watched as long as there is room for it: `start` and `stop` may come repeatedly."""

    def __init__(self, principal: str, start: Callable[[], None], stop: Callable[[], None]) -> None:
        self.principal = principal
        self.start = start
        self.stop = stop


class Places:
    """Room for so many. If principals want more, whoever has most gives up the last one of theirs.

    What has to wait is watched as soon as there is a free place.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[str, list[Place]] = {}
        self._waiting: dict[str, deque[Place]] = {}
        self._total = 0

    def room_for(self, principal: str) -> int:
        """How many more a principal would get now."""
        mine = len(self._taken.get(principal, ()))
        others = len(self._taken.keys() | {principal})
        return max(0, self._most - self._total, self._most // others - mine)

    def enter(self, place: Place) -> None:
        """Watch something as soon as there is room, perhaps in place of something of somebody else."""
        if self._total >= self._most:
            greedy = max(self._taken, key=lambda principal: len(self._taken[principal]))
            if len(self._taken[greedy]) <= len(self._taken.get(place.principal, ())) + 1:
                self._waiting.setdefault(place.principal, deque()).append(place)
                return
            given_up = self._taken[greedy][-1]
            self._free(given_up)
            self._waiting.setdefault(greedy, deque()).appendleft(given_up)
        self._take(place)

    def leave(self, place: Place) -> None:
        """It need not be watched any more."""
        if place in self._taken.get(place.principal, ()):
            self._free(place)
            if self._waiting:
                modest = min(self._waiting, key=lambda principal: len(self._taken.get(principal, ())))
                self._take(self._next_of(modest))
        elif place in (waiting := self._waiting.get(place.principal, deque())):
            waiting.remove(place)
            if not waiting:
                del self._waiting[place.principal]

    def _next_of(self, principal: str) -> Place:
        waiting = self._waiting[principal]
        place = waiting.popleft()
        if not waiting:
            del self._waiting[principal]
        return place

    def _take(self, place: Place) -> None:
        self._taken.setdefault(place.principal, []).append(place)
        self._total += 1
        place.start()

    def _free(self, place: Place) -> None:
        own = self._taken[place.principal]
        own.remove(place)
        if not own:
            del self._taken[place.principal]
        self._total -= 1
        place.stop()
