"""Keys for `requestState`: a ring of secrets, of which the first seals and all open.

Rotation in three phases, with no round lost: give every process the new key at the end of its
ring; then put it first; then, once the oldest token has expired, take the old one out.
"""

import base64
import binascii
import hashlib
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ekiden.errors import UsageError
from ekiden.server.sealing.nonces import SIZE, next_nonce

__all__ = ["KeyRing", "new_key"]

_log = logging.getLogger(__name__)

_VERSION: Final = "ek1"
_HEAD: Final = 13
"""Characters of a token that say how it is sealed: the version, and the key's id."""
_SEALED: Final = f"{_VERSION}.".encode()
_LEAST: Final = 32
_NO_NONCE: Final = bytes(SIZE)


class _Key:
    """The ciphers of one secret. With AES-256-GCM-SIV a key can seal any number of tokens."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST:
            raise UsageError(f"a key needs at least {_LEAST} bytes, this one has {len(secret)}")
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
        ring = [_Key(key if isinstance(key, bytes) else _from_text(key)) for key in keys]
        if not ring:
            raise UsageError("keys= is empty: give at least one key, or leave it out")
        self._first = ring[0]
        self._by_head = {key.bound.decode(): key for key in ring}

    def seal(self, data: bytes) -> str:
        """A token that only a holder of the key can open or make."""
        key = self._first
        nonce = next_nonce()
        sealed = key.cipher.encrypt(nonce, data, key.bound)
        return (key.bound + binascii.b2a_base64(nonce + sealed, newline=False)).decode()

    def open(self, token: str) -> bytes | None:
        """The sealed data; None if the token is forged or damaged, or its key is not in the ring."""
        try:
            key, text = self._by_head[token[:_HEAD]], token[_HEAD:]
            body = binascii.a2b_base64(text, strict_mode=True)
            end = body[-(len(body) % 3 or 3) :]
            if binascii.b2a_base64(end, newline=False) != text[-4:].encode():
                return None  # Another text for the same bytes: not all bits of the last character count.
            return key.cipher.decrypt(body[:SIZE], body[SIZE:], key.bound)
        except (KeyError, ValueError, InvalidTag):
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
            key = self._by_head[sealed[:_HEAD].decode()]
            return key.at_rest.decrypt(_NO_NONCE, sealed[_HEAD:], key.bound + row)
        except (KeyError, ValueError, InvalidTag):
            return None


def new_key() -> str:
    """A fresh key as text, fit for `EKIDEN_KEYS` and key files."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_LEAST)).decode()


def _from_text(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.strip() + "=" * (-len(text.strip()) % 4))
    except (binascii.Error, ValueError):
        raise UsageError("a key as text must be base64 of at least 32 bytes") from None


def has_lasting_keys(keys: object) -> bool:
    """Whether `find_keys` finds keys that outlive this process."""
    return keys is not None or any(os.environ.get(name) for name in ("EKIDEN_KEYS", "EKIDEN_KEYS_FILE"))


def find_keys(keys: Iterable[bytes | str] | Path | None) -> KeyRing:
    """The ring from the constructor, a file, `EKIDEN_KEYS` or `EKIDEN_KEYS_FILE`; else a new random key."""
    if keys is None and (text := os.environ.get("EKIDEN_KEYS")):
        keys = text.replace(",", " ").split()
    if keys is None and (path := os.environ.get("EKIDEN_KEYS_FILE")):
        keys = Path(path)
    if isinstance(keys, Path):
        keys = _read_file(keys)
    if keys is not None:
        return KeyRing(keys)
    _log.warning(
        "No keys are set, so requestState is sealed with a key of this process: no other worker can go "
        "on with a round, and a restart loses every open one. Set EKIDEN_KEYS (`ekiden keys new` makes one)."
    )
    return KeyRing([secrets.token_bytes(_LEAST)])


def _read_file(path: Path) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"the key file {path} cannot be read: {error.strerror}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
