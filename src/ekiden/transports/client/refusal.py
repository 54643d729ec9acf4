"""What a server says when it refuses on the level of HTTP, in one line for people."""

import re
from typing import Any, Final

from ekiden.errors import HttpRefused, ParseError
from ekiden.transports.client.http_port import Response, content_type
from ekiden.wire.json import decode, is_object

__all__ = ["finish", "refused"]

_MOST: Final = 300
"""Characters that are shown."""
_TOLD_IN: Final = ("error_description", "message", "detail", "error", "title")
"""Where JSON says it: OAuth, frameworks, RFC 9457."""
_TAG: Final = re.compile(r"<(/?)([a-zA-Z]*+)[^<>]*+>")
_HIDDEN: Final = frozenset({"script", "style", "title"})
"""Parts of a page that a browser does not show in it."""
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


async def finish(response: Response) -> None:
    """Read a response that only says whether the server takes what was sent. `HttpRefused`: it does not."""
    try:
        body = await response.read()
    finally:
        await response.close()
    if response.status >= 400:
        raise refused(response.status, content_type(response), body)


def refused(status: int, kind: str, body: bytes) -> HttpRefused:
    """The exception for a response with an error's status."""
    text = body[: 64 * 1024].decode(errors="replace")
    try:
        text = _told(decode(body)) or text
    except ParseError:
        if kind == "text/html":
            text = _shown(text)
    words = " ".join(_CONTROLS.sub(" ", text).split())
    return HttpRefused(status, words if len(words) <= _MOST else f"{words[:_MOST]}...")


def _shown(page: str) -> str:
    """The words of a page, without its tags and without what is hidden."""
    words: list[str] = []
    hidden: str | None = None
    at = 0
    for tag in _TAG.finditer(page):
        name = tag[2].lower()
        if hidden is None:
            words.append(page[at : tag.start()])
            hidden = name if name in _HIDDEN and not tag[1] else None
        elif name == hidden and tag[1]:
            hidden = None
        at = tag.end()
    return " ".join(words if hidden else [*words, page[at:]])


def _told(value: Any) -> str | None:
    """The sentence in a JSON body."""
    if isinstance(value, str):
        return value
    if is_object(value):
        for name in _TOLD_IN:
            if told := _told(value.get(name)):
                return told
    return None
