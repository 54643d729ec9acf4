"""An ordered collection of definitions whose list results are kept ready as bytes.

Listing is the most repeated request there is, and its answer changes only when the collection
does. So each page is encoded once and kept until then. Order is the order of registration: the
same on every request, which keeps clients' and models' caches warm.
"""

import base64
import binascii
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from ekiden.errors import InvalidParams, RegistrationError, UsageError
from ekiden.wire.json import JsonObject

__all__ = ["CacheHint", "Catalog", "read_cursor", "write_cursor"]

_MOST_SCOPE_SETS: Final = 64
"""Different sets of scopes whose pages are kept. Most servers see a handful."""

Spell: TypeAlias = Callable[[JsonObject], bytes]
"""Encodes a complete result in a dialect."""


class CacheHint(msgspec.Struct, frozen=True):
    """A caching hint: for how long, and for whom, a client may keep a result.

    The default permits no caching: only the author knows whether a result may be stale or shared.
    """

    ttl_ms: int = 0
    scope: Literal["public", "private"] = "private"

    def __post_init__(self) -> None:
        if self.ttl_ms < 0:
            raise UsageError("CacheHint(ttl_ms=...) must not be negative")

    def for_scopes(self, scopes: Collection[str]) -> "CacheHint":
        """The hint for what only some may see: nobody may keep it for others."""
        return CacheHint(self.ttl_ms) if scopes else self

    def fields(self) -> JsonObject:
        """The hint as it goes on the wire."""
        return {"ttlMs": self.ttl_ms, "cacheScope": self.scope}


class Entry(Protocol):
    """What a catalog holds."""

    @property
    def key(self) -> str:
        """Its unique name or URI."""
        ...

    @property
    def definition(self) -> JsonObject:
        """How it is listed."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that its caller needs."""
        ...


EntryT = TypeVar("EntryT", bound=Entry)


class Catalog(Generic[EntryT]):
    """Entries by name, in order, with their list results ready."""

    def __init__(
        self, what: str, field: str, *, cache: CacheHint, page_size: int | None, on_change: Callable[[], None]
    ) -> None:
        self.what: Final = what
        self.declared = False
        """Whether there has ever been an entry. A capability once declared stays declared."""
        self._field = field
        self._cache = cache
        self._page_size = page_size
        self._on_change = on_change
        self._entries: dict[str, EntryT] = {}
        self._order: dict[str, int] = {}
        self._next = 0
        self.meta: JsonObject = {}
        """The `_meta` of the list. Call `forget_pages` after a change."""
        self._pages: dict[int, bytes] = {}
        self.scopes: frozenset[str] = frozenset()
        """All scopes that entries need; empty if all callers see the same."""
        self._pages_of: OrderedDict[frozenset[str], dict[int, bytes]] = OrderedDict()
        """The pages as callers see them who have some of these scopes."""
        self.get = self._entries.get

    def __iter__(self) -> Iterator[EntryT]:
        return iter(self._entries.values())

    def add(self, entry: EntryT) -> None:
        """Add an entry; a second one of the same name is refused."""
        if entry.key in self._entries:
            raise RegistrationError(f"{self.what} {entry.key!r} is registered already")
        self._entries[entry.key] = entry
        self._order[entry.key] = self._next
        self._next += 1
        self.declared = True
        self._changed()

    def remove(self, key: str) -> None:
        """Remove an entry; an unknown one is refused."""
        if key not in self._entries:
            raise UsageError(f"there is no {self.what.lower()} {key!r} to remove")
        del self._entries[key], self._order[key]
        self._changed()

    def exchange(self, old: Iterable[str], new: Iterable[EntryT]) -> None:
        """Replace entries by others, as one change. An entry that keeps its name keeps its place.

        The new names must not be those of other entries.
        """
        entries = {entry.key: entry for entry in new}
        gone = [key for key in old if key in self._entries and key not in entries]
        is_same = not gone and all(
            (known := self._entries.get(key)) is not None
            and (known.definition, known.scopes) == (entry.definition, entry.scopes)
            for key, entry in entries.items()
        )
        for key in gone:
            del self._entries[key], self._order[key]
        for key, entry in entries.items():
            self._entries[key] = entry
            if key not in self._order:
                self._order[key] = self._next
                self._next += 1
        if not is_same:
            self.declared = self.declared or bool(entries)
            self._changed()

    def forget_pages(self) -> None:
        """Make the list results anew when they are wanted."""
        self._pages.clear()
        self._pages_of.clear()

    def _changed(self) -> None:
        self.forget_pages()
        self.scopes = frozenset().union(*(entry.scopes for entry in self._entries.values()))
        self._on_change()

    def page(self, cursor: str | None, spell: Spell) -> bytes:
        """The list result that starts at `cursor`."""
        if cursor is None and (ready := self._pages.get(0)) is not None:
            return ready
        return self._page(cursor, spell, list(self._entries.values()), self._pages)

    def page_for(self, granted: frozenset[str], cursor: str | None, spell: Spell) -> bytes:
        """The same, of what a caller may use who was granted these scopes."""
        relevant = granted & self.scopes
        pages = self._pages_of.get(relevant)
        if pages is None:
            pages = self._pages_of[relevant] = {}
            if len(self._pages_of) > _MOST_SCOPE_SETS:
                self._pages_of.popitem(last=False)
        if cursor is None and (ready := pages.get(0)) is not None:
            return ready
        visible = [entry for entry in self._entries.values() if relevant >= entry.scopes]
        return self._page(cursor, spell, visible, pages)

    def _page(
        self, cursor: str | None, spell: Spell, entries: list[EntryT], pages: dict[int, bytes]
    ) -> bytes:
        positions = [self._order[entry.key] for entry in entries]
        start = 0 if cursor is None else bisect_right(positions, read_cursor(cursor, self._field))
        if (ready := pages.get(start)) is not None:
            return ready
        stop = len(positions) if self._page_size is None else start + self._page_size
        result: JsonObject = {
            self._field: [entry.definition for entry in entries[start:stop]],
            **self._cache.for_scopes(self.scopes).fields(),
        }
        if stop < len(positions):
            result["nextCursor"] = write_cursor(positions[stop - 1], self._field)
        if self.meta:
            result["_meta"] = self.meta
        page = spell(result)
        # Only the pages that our own cursors lead to are kept: invented ones must not fill memory.
        if start == 0 or (self._page_size is not None and start % self._page_size == 0):
            pages[start] = page
        return page


def write_cursor(position: int, field: str) -> str:
    """The cursor of what follows an entry, by its position."""
    return base64.urlsafe_b64encode(f"{field}:{position}".encode()).decode()


def read_cursor(cursor: str, field: str) -> int:
    """The position after which a page begins."""
    try:
        name, _, position = base64.b64decode(cursor, b"-_", validate=True).decode("ascii").partition(":")
        if name == field and position.isdecimal() and len(position) < 16:
            return int(position)
    except (binascii.Error, ValueError):
        pass
    raise InvalidParams("Invalid params: unknown `cursor`; start again without one")
