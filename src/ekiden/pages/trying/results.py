"""What came back, as data for a template: texts, pictures, sounds, files, links, data."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from ekiden.wire.json import JsonObject, encode, is_array, is_object
from ekiden.wire.printable import harmless, one_line

__all__ = ["Block", "Media", "blocks_of", "find_media", "pretty"]

_MOST_TEXT: Final = 200_000
"""Letters of one text that the page shows."""
_PICTURES: Final = frozenset(f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp", "svg+xml", "avif"))
_SOUNDS: Final = frozenset(
    f"audio/{kind}" for kind in ("wav", "x-wav", "mpeg", "ogg", "webm", "flac", "mp4", "aac")
)


class Block(msgspec.Struct, frozen=True):
    """One part of a result."""

    kind: Literal["text", "image", "audio", "file", "link", "data"]
    who: str = ""
    """The role of who says this, in a prompt."""
    text: str = ""
    name: str = ""
    """What it is called: a URI, a title."""
    mime: str = ""
    number: int = 0
    """Of a picture, a sound or a file: where it can be fetched."""


class Media(msgspec.Struct, frozen=True):
    """Bytes of a result."""

    mime: str
    content: bytes
    shown: bool
    """Whether a browser shows or plays it; all else is a download."""


def blocks_of(result: JsonObject) -> list[Block]:
    """The parts of the result of a tool, a prompt or a resource."""
    return [_block(number, who, told) for number, (who, told) in enumerate(_parts(result))]


def _parts(result: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for block in _array(result.get("content")):
        yield "", block
    for message in _array(result.get("messages")):
        content: Any = message.get("content")
        for block in content if is_array(content) else [content]:
            if is_object(block):
                yield one_line(message.get("role", "")), block
    for resource in _array(result.get("contents")):
        yield "", {"type": "resource", "resource": resource}


def _array(value: Any) -> list[JsonObject]:
    return [part for part in value if is_object(part)] if is_array(value) else []


def _block(number: int, who: str, told: JsonObject) -> Block:
    kind = told.get("type")
    inner: Any = told.get("resource")
    if kind == "text":
        return Block("text", who, _cut(told.get("text", "")))
    if kind in ("image", "audio"):
        mime = one_line(told.get("mimeType", ""))
        shown: Literal["image", "audio", "file"] = "image" if kind == "image" else "audio"
        return Block(shown if _is_shown(mime) else "file", who, mime=mime, number=number)
    if kind == "resource_link":
        return Block("link", who, harmless(told.get("description", "")), one_line(told.get("uri", "")))
    if kind == "resource" and is_object(inner):
        uri, mime = one_line(inner.get("uri", "")), one_line(inner.get("mimeType", ""))
        if isinstance(inner.get("text"), str):
            return Block("text", who, _cut(inner["text"]), uri, mime)
        family: Literal["image", "audio", "file"]
        family = "image" if mime in _PICTURES else "audio" if mime in _SOUNDS else "file"
        return Block(family, who, name=uri, mime=mime, number=number)
    return Block("data", who, pretty(told))


def _is_shown(mime: str) -> bool:
    return mime in _PICTURES or mime in _SOUNDS


def find_media(result: JsonObject, number: int) -> Media | None:
    """The bytes of one part; None if it has none."""
    for at, (_, told) in enumerate(_parts(result)):
        if at != number:
            continue
        inner: Any = told.get("resource")
        held: JsonObject = inner if is_object(inner) else told
        data, mime = held.get("blob", held.get("data")), one_line(held.get("mimeType", ""))
        if not isinstance(data, str):
            return None
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        return Media(mime if _is_shown(mime) else "application/octet-stream", content, _is_shown(mime))
    return None


def pretty(value: Any) -> str:
    """A value as JSON that people can read."""
    return _cut(msgspec.json.format(encode(value), indent=2).decode())


def _cut(text: Any) -> str:
    shown = harmless(text)
    if len(shown) <= _MOST_TEXT:
        return shown
    return f"{shown[:_MOST_TEXT]}\n... and {len(shown) - _MOST_TEXT} letters more"
