"""What the head of a request says: its target, whether a body follows, and the rest of an upgrade."""

import functools
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import httptools

from ekiden.wire.headers import Headers

__all__ = ["has_body", "read_target", "without_upgrade"]

_AUTHORITY: Final = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)


@functools.lru_cache(maxsize=16)
def read_target(url: bytes) -> tuple[str | None, bytes | None]:
    """The path, None if this is not a target of HTTP; and host and port in lower case, if it names them."""
    authority: bytes | None = None
    if not url.startswith((b"/", b"*")):
        named = _AUTHORITY.match(url)
        if named is None:
            return None, None
        authority = named[1].lower()
    try:
        return unquote((httptools.parse_url(url).path or b"/").decode("latin-1")), authority
    except httptools.HttpParserInvalidURLError:
        return None, None


def has_body(headers: Headers) -> bool:
    """Whether a body follows the head."""
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def without_upgrade(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool
) -> bytes:
    """The same head without the offer to speak another protocol."""
    lines = [b"%b %b HTTP/%b\r\n" % (method, url, version.encode())]
    lines += [b"%b: %b\r\n" % pair for pair in headers if pair[0] not in (b"upgrade", b"connection")]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"".join([*lines, b"\r\n"])
