"""How single values are sealed for a store: each opens only in the place that it was sealed for."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

import msgspec

from ekiden.errors import StoreRefused
from ekiden.rounds.journal import Entry, framed
from ekiden.server.sealing.keys import KeyRing
from ekiden.stores.keys_of_entries import key_to_bytes
from ekiden.wire.json import is_object

__all__ = ["Seal", "SealedValue", "is_sealed"]

_MARK: Final = "ekiden/sealed"
"""The only key of a value that is sealed."""

SealedValue = dict[str, bytes]
"""A value that is sealed, where a store expects JSON. No JSON looks like it: it has no bytes."""

_encode: Final = msgspec.msgpack.Encoder().encode
_value_and_about: Final = msgspec.msgpack.Decoder(tuple[Any, str])


def is_sealed(value: Any) -> TypeGuard[SealedValue]:
    """Whether a value was made by `Seal.seal_value`."""
    return is_object(value) and len(value) == 1 and type(value.get(_MARK)) is bytes


class Seal:
    """Seals and opens with the server's keys. `place` says where a value lies: all of it must be the same."""

    def __init__(self, keys: Callable[[], KeyRing]) -> None:
        self._keys = keys

    def seal(self, data: bytes, *place: str) -> bytes:
        """Bytes that open only in this place."""
        return self._keys().seal_at_rest(data, framed(*map(key_to_bytes, place)))

    def open(self, sealed: bytes, *place: str) -> bytes:
        """What was sealed for this place; bytes that were never sealed are returned as they are."""
        if not KeyRing.is_sealed_at_rest(sealed):
            return sealed
        data = self._keys().open_at_rest(sealed, framed(*map(key_to_bytes, place)))
        if data is None:
            raise StoreRefused(
                "what the store holds was sealed with a key that this server does not have, or was changed"
            )
        return data

    def seal_value(self, data: bytes, *place: str) -> SealedValue:
        """The same, as a value that `is_sealed`."""
        return {_MARK: self.seal(data, *place)}

    def open_value(self, value: SealedValue, *place: str) -> bytes:
        """What `seal_value` sealed."""
        if not KeyRing.is_sealed_at_rest(value[_MARK]):
            raise StoreRefused("what the store holds as sealed is not")
        return self.open(value[_MARK], *place)

    # Entries of journals

    def seal_entries(self, entries: Mapping[str, Entry], *place: str) -> dict[str, Entry]:
        """Entries whose values, and what they say of arguments, are sealed."""
        return {key: self._seal_entry(entry, *place, key) for key, entry in entries.items()}

    def _seal_entry(self, entry: Entry, *place: str) -> Entry:
        data = _encode((entry.value, entry.about))
        sealed = self.seal_value(data, *place, *_clear(entry))
        return Entry(entry.kind, entry.digest, sealed, entry.branch)

    def open_entries(self, entries: Mapping[str, Entry], *place: str) -> dict[str, Entry]:
        """Entries as they were before; those that were never sealed are returned as they are."""
        return {key: self._open_entry(entry, *place, key) for key, entry in entries.items()}

    def _open_entry(self, entry: Entry, *place: str) -> Entry:
        if not is_sealed(entry.value):
            return entry
        value, about = _value_and_about.decode(self.open_value(entry.value, *place, *_clear(entry)))
        return Entry(entry.kind, entry.digest, value, entry.branch, about)


def _clear(entry: Entry) -> tuple[str, ...]:
    """What of an entry is not sealed: it is part of its place, so that it cannot be changed either."""
    return entry.kind, entry.digest, str(entry.branch)
