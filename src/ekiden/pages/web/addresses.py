"""Where a link leads, as a browser reads it. The link may be a stranger's.

Browsers follow the WHATWG URL standard, by which `https://evil.example\\@bank.example/` leads to
`evil.example`; for Python's `urllib.parse` it leads to `bank.example`. So the address is read by that
standard, and what is shown and opened is the address that a browser makes of it.
"""

from typing import Any, Final

import msgspec
from pydantic_core import Url, ValidationError

__all__ = ["NOWHERE", "Link", "link_of"]

_USUAL: Final = {"http": 80, "https": 443}


class Link(msgspec.Struct, frozen=True):
    """A link to a page of the web."""

    address: str
    """As a browser opens it, in ASCII; empty if it is not a page of the web, such as `javascript:`."""
    host: str
    """Whose page it is, with the port if that is not the usual one."""


NOWHERE: Final = Link("", "")


def link_of(url: Any) -> Link:
    """The page that a URL leads to; `NOWHERE` if it is not a URL of the web."""
    try:
        read = Url(url) if isinstance(url, str) else None
    except ValidationError:
        return NOWHERE
    if read is None or read.scheme not in _USUAL or read.host is None:
        return NOWHERE
    port = "" if read.port in (None, _USUAL[read.scheme]) else f":{read.port}"
    return Link(str(read), f"{read.host}{port}")
