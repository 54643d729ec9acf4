"""`Image`, `Audio` and `File`: bytes that a handler returns as content, without a word of base64.

They are plain data: a step can return one, too.
"""

import base64
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote

from pydantic_core import core_schema

from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

__all__ = ["Audio", "File", "Image", "Media"]

_SIGNATURES: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"<svg", "image/svg+xml"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
)
"""How the most common kinds begin: where, with which bytes."""

_USUAL: Final = {"jpg": "jpeg", "mp3": "mpeg", "svg": "svg+xml"}
"""What a suffix is called in a MIME type, where that differs."""


@dataclass(frozen=True, init=False)
class Media:
    """Bytes, and what they are."""

    data: bytes
    mime_type: str

    kind: ClassVar[str] = ""
    """The first part of its MIME types; empty if it may be anything."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,  # noqa: A002  the name that other SDKs have
    ) -> None:
        """Read `path` now, or take `data`. `format` is a MIME type, or its last part: `"png"`.

        Without a `format` it is found by the file's suffix or by the first bytes.
        """
        name = type(self).__name__
        if (path is None) == (data is None):
            raise UsageError(f"{name} needs either a path or data=")
        content = Path(path).read_bytes() if path is not None else data
        if not isinstance(content, bytes):
            raise UsageError(f"{name}(data=...) takes bytes, not {type(content).__name__}")
        found = self._mime_type(path, content, format)
        if found is None:
            raise UsageError(f"{name} cannot tell what its bytes are: give a format, as in format='png'")
        if self.kind and not found.startswith(f"{self.kind}/"):
            raise UsageError(f"{name} cannot be {found}: use the class that fits, or File")
        object.__setattr__(self, "data", content)
        object.__setattr__(self, "mime_type", found)

    def _mime_type(self, path: str | Path | None, data: bytes, format_: str | None) -> str | None:
        if format_ is not None:
            suffix = format_.lstrip(".").lower()
            return format_ if "/" in format_ else self._by_suffix(suffix)
        by_name = None if path is None else mimetypes.guess_type(str(path))[0]
        return by_name or _by_content(data)

    def _by_suffix(self, suffix: str) -> str | None:
        return f"{self.kind}/{_USUAL.get(suffix, suffix)}"

    def block(self) -> JsonObject:
        """The content block."""
        return {"type": self.kind, "data": self.encoded, "mimeType": self.mime_type}

    def contents(self, uri: str) -> JsonObject:
        """The contents of a resource."""
        return {"uri": uri, "mimeType": self.mime_type, "blob": self.encoded}

    @property
    def encoded(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.data).decode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.mime_type}, {len(self.data)} bytes>"

    def _kept(self) -> JsonObject:
        """How a step's value is stored."""
        return {"data": self.encoded, "format": self.mime_type}

    @classmethod
    def _read(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        given: JsonObject = {**value, "data": base64.b64decode(value["data"])}
        return cls(**given)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(cls._kept)
        return core_schema.no_info_plain_validator_function(cls._read, serialization=written)


@dataclass(frozen=True, init=False, repr=False)
class Image(Media):
    """A picture in a result: `Image("chart.png")`, or `Image(data=png, format="png")`."""

    kind = "image"


@dataclass(frozen=True, init=False, repr=False)
class Audio(Media):
    """A sound in a result: `Audio("bell.mp3")`, or `Audio(data=wav, format="wav")`."""

    kind = "audio"


@dataclass(frozen=True, init=False, repr=False)
class File(Media):
    """A file in a result, as an embedded resource: `File("report.pdf")`, `File(data=csv, name="rows.csv")`.

    What is text by its type, and can be read as UTF-8, is sent as text.
    """

    name: str

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | str | None = None,
        format: str | None = None,  # noqa: A002  As above.
        name: str | None = None,
    ) -> None:
        """As `Image`; `data` may be text. `name` is by default that of the file."""
        shown = name or (Path(path).name if path is not None else "file")
        object.__setattr__(self, "name", shown)
        super().__init__(path, data.encode() if isinstance(data, str) else data, format)

    def _mime_type(self, path: str | Path | None, data: bytes, format_: str | None) -> str | None:
        found = super()._mime_type(path or self.name, data, format_)
        return found or ("text/plain" if _as_text(data) is not None else "application/octet-stream")

    def _by_suffix(self, suffix: str) -> str | None:
        return mimetypes.guess_type(f"file.{suffix}")[0] or f"application/{suffix}"

    def block(self) -> JsonObject:
        """The content block."""
        return {"type": "resource", "resource": self.contents(f"file:///{quote(self.name)}")}

    def _kept(self) -> JsonObject:
        return {**super()._kept(), "name": self.name}

    def contents(self, uri: str) -> JsonObject:
        """The contents of a resource."""
        text = _as_text(self.data) if _is_text(self.mime_type) else None
        if text is None:
            return super().contents(uri)
        return {"uri": uri, "mimeType": self.mime_type, "text": text}


def _by_content(data: bytes) -> str | None:
    for place, begin, mime_type in _SIGNATURES:
        if data[place : place + len(begin)] == begin:
            return mime_type
    return None


def _is_text(mime_type: str) -> bool:
    return mime_type.startswith("text/") or mime_type.endswith(("json", "xml", "javascript", "yaml", "toml"))


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
