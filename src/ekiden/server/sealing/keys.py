"""Keys for `requestState`: a ring of secrets, of which the first seals and all open.

Rotation in three phases, with no round lost: give every process the new key at the end of its
ring; then put it first; then, once the oldest token has expired, take the old one out.
"""

import base64
import binascii
import hashlib
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from ekiden.errors import UsageError
from ekiden.server.sealing.nonces import SIZE, next_nonce

__all__ = ["GivenSealer", "KeyRing", "TokenSealer", "is_token", "new_key"]

_log = logging.getLogger(__name__)

_VERSION: Final = "ek1"
_HEAD: Final = 13
"""Characters of a token that say how it is sealed: the version, and the key's id."""
_SEALED: Final = f"{_VERSION}.".encode()
_LEAST: Final = 32
_LAST: Final = {1: "AEIMQUYcgkosw048", 2: "AQgw"}
"""The last character of base64 before so many `=`, if the bits that do not count are zero."""
_NO_NONCE: Final = bytes(SIZE)
_OPEN_TO_OTHERS: Final = 0o026
"""Readable by all, or writable by more than its owner. A group may read it: so secrets are mounted."""
_GIVEN: Final = "ekx."
"""What a token begins with that was sealed by somebody else's sealer."""


@runtime_checkable
class TokenSealer(Protocol):
    """Seals tokens in place of a `KeyRing`, for example with keys that stay in a key management service."""

    def seal(self, data: bytes) -> str:
        """A token that only this sealer can open or make."""
        ...

    def open(self, token: str) -> bytes | None:
        """The sealed data; None if this sealer did not make the token exactly so."""
        ...


class GivenSealer:
    """A `TokenSealer` whose tokens can be told from those of others."""

    def __init__(self, sealer: TokenSealer) -> None:
        self._sealer = sealer

    def seal(self, data: bytes) -> str:
        """A token."""
        return _GIVEN + self._sealer.seal(data)

    def open(self, token: str) -> bytes | None:
        """The sealed data; None for any other token."""
        return self._sealer.open(token.removeprefix(_GIVEN)) if token.startswith(_GIVEN) else None


def is_token(text: str) -> bool:
    """Whether a text begins like a token of ours. It may be forged all the same."""
    return text.startswith((f"{_VERSION}.", _GIVEN))


class _Key:
    """The ciphers of one secret. With AES-256-GCM-SIV a key can seal any number of tokens."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST:
            raise UsageError(
                f"a key needs at least {_LEAST} bytes, this one has {len(secret)}; "
                "`ekiden keys new` makes a good one"
            )
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        self.id = hashlib.sha256(b"ekiden key id\x00" + secret).hexdigest()[:8]
        self.cipher = AESGCMSIV(
            HKDF(hashes.SHA256(), length=32, salt=None, info=b"ekiden requestState v1").derive(secret)
        )
        self.bound = f"{_VERSION}.{self.id}.".encode()
        self.at_rest = AESGCMSIV(
            HKDF(hashes.SHA256(), length=32, salt=None, info=b"ekiden store v1").derive(secret)
        )


class KeyRing:
    """Seals with its first key, opens with all of them."""

    def __init__(self, keys: Iterable[bytes | str]) -> None:
        # Loaded here, because a server that seals nothing does not need it to start.
        from cryptography.exceptions import InvalidTag

        self._refused = (ValueError, InvalidTag)
        ring = [_Key(key if isinstance(key, bytes) else _from_text(key)) for key in keys]
        if not ring:
            raise UsageError("keys= is empty: give at least one key, or leave it out")
        self._first = ring[0]
        self._by_head = {key.bound.decode(): key for key in ring}
        self.ids = [key.id for key in ring]
        """The names of the keys, which tell nothing of them."""
        self.look_for: Callable[[str], _Key | None] = self._by_head.get
        """Called where a token names a key that is not in the ring: it may have come since."""

    def known(self, head: str) -> _Key | None:
        """The key of tokens that begin so."""
        return self._by_head.get(head)

    def seal(self, data: bytes) -> str:
        """A token that only a holder of the key can open or make."""
        key = self._first
        nonce = next_nonce()
        sealed = key.cipher.encrypt(nonce, data, key.bound)
        return (key.bound + binascii.b2a_base64(nonce + sealed, newline=False)).decode()

    def open(self, token: str) -> bytes | None:
        """The sealed data; None if the token is forged or damaged, or its key is not in the ring."""
        try:
            head, text = token[:_HEAD], token[_HEAD:]
            key = self._by_head.get(head) or self.look_for(head)
            if key is None:
                return None
            body = msgspec.convert(text, bytes)  # Out of base64, and stricter than `binascii` is.
            padding = -len(body) % 3
            if padding and text[-1 - padding] not in _LAST[padding]:
                return None  # Another text for the same bytes: not all bits of the last character count.
            return key.cipher.decrypt(body[:SIZE], body[SIZE:], key.bound)
        except self._refused:
            return None

    def seal_at_rest(self, data: bytes, row: bytes) -> bytes:
        """Seal data for one row of a store; it opens only for that row. Equal data gives equal bytes."""
        # With this cipher a constant nonce reveals only whether two versions of a row are equal.
        key = self._first
        return key.bound + key.at_rest.encrypt(_NO_NONCE, data, key.bound + row)

    @staticmethod
    def is_sealed_at_rest(data: bytes) -> bool:
        """Whether bytes begin like those of `seal_at_rest`. What a store keeps unsealed never does."""
        return data.startswith(_SEALED)

    def open_at_rest(self, sealed: bytes, row: bytes) -> bytes | None:
        """The data that was sealed for this row; None if it was not, or by a key that is not in the ring."""
        try:
            head = sealed[:_HEAD].decode()
            key = self._by_head.get(head) or self.look_for(head)
            if key is None:
                return None
            return key.at_rest.decrypt(_NO_NONCE, sealed[_HEAD:], key.bound + row)
        except self._refused:
            return None


def new_key() -> str:
    """A fresh key as text, fit for `EKIDEN_KEYS` and key files."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_LEAST)).decode()


_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_HEX: Final = re.compile(r"[0-9a-f]{64,}|[0-9A-F]{64,}")
_LEAST_LETTERS: Final = 20
"""Different characters in base64 of 32 random bytes: 31 on average, never so few. In hexadecimal, half."""


def _from_text(text: str) -> bytes:
    """A key out of its text. A passphrase is refused, also one that happens to be base64."""
    text = text.strip()
    if not _BASE64.fullmatch(text) or len(text.rstrip("=")) % 4 == 1:
        raise _bad_key("is not base64")
    secret = base64.urlsafe_b64decode(
        text.translate(_URL_SAFE).rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    )
    if len(secret) >= _LEAST and not _seems_random(text):
        raise _bad_key("seems to be chosen by a person")
    return secret


_URL_SAFE: Final = str.maketrans("+/", "-_")


def _seems_random(text: str) -> bool:
    if _HEX.fullmatch(text):
        return len(set(text)) >= _LEAST_LETTERS // 2
    return text.lower() != text != text.upper() and len(set(text)) >= _LEAST_LETTERS


def _bad_key(what: str) -> UsageError:
    return UsageError(
        f"a key as text must be base64 of at least {_LEAST} random bytes, and this one {what}. "
        "`ekiden keys new` makes a good one"
    )


def has_lasting_keys(keys: object) -> bool:
    """Whether `find_keys` finds keys that outlive this process."""
    return keys is not None or any(os.environ.get(name) for name in ("EKIDEN_KEYS", "EKIDEN_KEYS_FILE"))


def find_keys(keys: Iterable[bytes | str] | Path | None, *, warn: bool = True) -> KeyRing:
    """The ring from the constructor, a file, `EKIDEN_KEYS` or `EKIDEN_KEYS_FILE`; else a new random key.

    `warn` is for a server with several clients: with a random key, none of them outlives the process.
    """
    if keys is None and (text := os.environ.get("EKIDEN_KEYS")):
        keys = text.replace(",", " ").split()
    if keys is None and (path := os.environ.get("EKIDEN_KEYS_FILE")):
        keys = Path(path)
    if isinstance(keys, Path):
        return _ring_of_file(keys)
    if keys is not None:
        return KeyRing(keys)
    if warn:
        _log.warning(
            "No keys are set, so requestState is sealed with a key of this process: no other worker can go "
            "on with a round, and a restart loses every open one. Set EKIDEN_KEYS (`ekiden keys new` makes "
            "one)."
        )
    return KeyRing([secrets.token_bytes(_LEAST)])


def _ring_of_file(path: Path) -> KeyRing:
    lines = _read_file(path)
    if not lines:
        raise UsageError(f"the key file {path} has no keys. {_HALF_WRITTEN}")
    try:
        return KeyRing(lines)
    except UsageError as error:
        raise UsageError(f"the key file {path} cannot be used: {error}. {_HALF_WRITTEN}") from None


_HALF_WRITTEN: Final = (
    "If it is being written right now: write another file, and move it over this one (`mv keys.new keys`)"
)


def _read_file(path: Path) -> list[str]:
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & _OPEN_TO_OTHERS:
            _log.warning(
                "The key file %s can be read or changed by other users of this machine, who could then forge "
                "requestState: run `chmod 600 %s`, and change the keys if others may have seen them",
                path,
                path,
            )
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"the key file {path} cannot be read: {error.strerror}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
