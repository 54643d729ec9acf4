"""Pages that a server wants the user to open, as a browser reads their addresses.

A browser follows the WHATWG URL standard: a backslash is a slash, tabs and line breaks are left out, what
stands before `@` is a name, letters of any alphabet become `xn--` names. Other readers of URLs see another
host in the same text, so neither is the text shown nor is it opened: both is done with the address that a
browser would make of it.
"""

from typing import Final

import msgspec
from pydantic_core import Url, ValidationError

from ekiden.cli.terminal.screen import one_line

__all__ = ["Page", "read_page"]

_LONGEST: Final = 2000
"""Letters of an address. Links that people open are shorter, and no screen shows more."""


class Page(msgspec.Struct, frozen=True):
    """A web page."""

    address: str
    """As a browser opens it, in ASCII."""
    host: str
    """In ASCII: letters that look like others are seen for what they are."""
    warnings: list[str]


def read_page(text: str) -> Page | str:
    """The page that a browser would open, or why it must not be opened."""
    if len(text) > _LONGEST:
        return f"its address has {len(text)} letters"
    try:
        url = Url(text)
    except ValidationError as error:
        return f"its address cannot be read: {error.errors(include_url=False)[0]['msg']}"
    if url.scheme not in ("http", "https") or url.host is None:
        return f"it is not a web page but {one_line(url.scheme)}:"
    return Page(str(url), _shown_host(url), list(_warnings(url)))


def _shown_host(url: Url) -> str:
    usual = 443 if url.scheme == "https" else 80
    return f"{url.host}" if url.port in (None, usual) else f"{url.host}:{url.port}"


def _warnings(url: Url) -> list[str]:
    found: list[str] = []
    if url.username or url.password:
        found.append(f"What stands before the @ is not where it leads: it leads to {url.host}.")
    letters = url.unicode_host()
    if letters is not None and letters != url.host:
        found.append(f"Its host is written {one_line(letters)}, perhaps with letters that look like others.")
    return found
