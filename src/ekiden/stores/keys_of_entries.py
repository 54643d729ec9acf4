"""The keys of entries, as the databases keep them: bytes, since a text column refuses some characters."""

from hashlib import sha256

__all__ = ["key_digest", "key_from_bytes", "key_to_bytes"]


def key_to_bytes(key: str) -> bytes:
    """A key as bytes, whatever characters it has."""
    return key.encode("utf-8", "surrogatepass")


def key_from_bytes(data: bytes) -> str:
    """The key that the bytes stand for."""
    return data.decode("utf-8", "surrogatepass")


def key_digest(data: bytes) -> bytes:
    """What a key is found by where an index has a limit to the size of what it holds."""
    return sha256(data).digest()
