"""The server card (SEP-2127): what a client may know of a server before it connects, as a page beside it.

It is served at the endpoint's path and `/server-card`. A server that has the whole site also serves
`/.well-known/ai-catalog.json`, where clients look for the cards of a domain. Everybody may read both.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import UsageError
from ekiden.transports.server.gate import Gate
from ekiden.transports.server.reply import Receive, Send, respond
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode

__all__ = ["CARD_PATH", "CATALOG_PATH", "ServerCard", "install_card"]

CARD_PATH: Final = "/server-card"
"""What follows the path of the endpoint."""
CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_CARD: Final = "application/mcp-server-card+json"
_CATALOG: Final = "application/ai-catalog+json"
_NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LONGEST: Final = 100
"""Characters of a title and of a description."""
_PUBLIC: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
)
_KEPT: Final = (b"cache-control", b"public, max-age=3600")


class ServerCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a server's card says beside its name and version: `Server(card=ServerCard(name=..., url=...))`.

    Everybody can read it: it must have nothing secret in it. What is left out here is taken from the server.
    """

    name: str
    """A domain of yours in reverse, a slash and a name: `com.example/weather`."""
    description: str | None = None
    """What the server does, in at most 100 characters; by default the server's own description."""
    url: str | None = None
    """Where clients connect; by default that of `auth=`. Without any, the card does not say where."""
    repository: Mapping[str, str] | None = None
    """Where the source is: `{"url": ..., "source": "github"}`."""
    headers: Sequence[Mapping[str, Any]] = ()
    """Headers that clients must or may send, each with a `name` and what the schema allows besides."""
    meta: Mapping[str, Any] | None = None
    """More, for the card's `_meta`."""

    def document(self, info: JsonObject, versions: Sequence[str], url: str | None) -> JsonObject:
        """The card of a server with that `serverInfo`. `UsageError` says what is wrong with it."""
        described = self.description or info.get("description")
        card: JsonObject = {
            "$schema": _SCHEMA,
            "name": self._checked_name(),
            "version": info["version"],
            "description": _short("description", described),
        }
        if "title" in info:
            card["title"] = _short("title", info["title"])
        card |= {name: info[name] for name in ("websiteUrl", "icons") if name in info}
        if self.repository is not None:
            if not {"url", "source"} <= self.repository.keys():
                raise UsageError("ServerCard(repository=...) needs a `url` and a `source`")
            card["repository"] = dict(self.repository)
        if (remote := self.url or url) is not None:
            card["remotes"] = [self._remote(remote, versions)]
        if self.meta is not None:
            card["_meta"] = dict(self.meta)
        return _spelled(card)

    def _checked_name(self) -> str:
        if not _NAME.fullmatch(self.name) or not 3 <= len(self.name) <= 200:
            raise UsageError(
                f"ServerCard(name={self.name!r}): write a domain of yours in reverse, a slash and a name, as "
                "in 'com.example/weather'"
            )
        return self.name

    def _remote(self, url: str, versions: Sequence[str]) -> JsonObject:
        if not re.fullmatch(r"https?://[^\s]+", url):
            raise UsageError(f"ServerCard(url={url!r}) must be a full http(s) URL")
        remote: JsonObject = {"type": "streamable-http", "url": url}
        if self.headers:
            if not all("name" in header for header in self.headers):
                raise UsageError("ServerCard(headers=...): every header has a `name`")
            remote["headers"] = [dict(header) for header in self.headers]
        return {**remote, "supportedProtocolVersions": list(versions)}


def install_card(gate: Gate, card: JsonObject, path: str | None) -> None:
    """Serve a card below the endpoint's path, and the catalog if the endpoint has a path of its own."""
    pages = {(path or "").rstrip("/") + CARD_PATH: _Document(card, _CARD)}
    if path is not None:
        pages[CATALOG_PATH] = _Document(_catalog(card), _CATALOG)
    for at, page in pages.items():
        gate.routes[at] = page.serve
    gate.public |= pages.keys()


def _catalog(card: JsonObject) -> JsonObject:
    """The catalog of a site that has this server alone. It names the card's URL, or has the card in it."""
    prefix, _, name = card["name"].partition("/")
    publisher = ".".join(reversed(prefix.split(".")))
    entry: JsonObject = {"identifier": f"urn:air:{publisher}:mcp:{name}", "type": _CARD}
    if "remotes" in card:
        entry["url"] = card["remotes"][0]["url"].rstrip("/") + CARD_PATH
    else:
        entry["data"] = card
    return {"specVersion": "1.0", "entries": [entry]}


class _Document:
    """A document that everybody may read, and need not read twice. Implements `gate.Route` with `serve`."""

    def __init__(self, document: JsonObject, media_type: str) -> None:
        self._body = encode(document)
        self._tag = b'"%b"' % hashlib.sha256(self._body).hexdigest()[:32].encode()
        self._headers = (*_PUBLIC, _KEPT, (b"etag", self._tag))
        self._type = (b"content-type", media_type.encode())

    async def serve(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Answer a request for it."""
        if incoming.method == "OPTIONS":
            await respond(send, 204, b"", *_PUBLIC)
        elif incoming.method not in ("GET", "HEAD"):
            await respond(send, 405, b"", (b"allow", b"GET, HEAD, OPTIONS"), *_PUBLIC)
        elif self._is_known(incoming.headers.get(b"if-none-match", b"")):
            await respond(send, 304, b"", *self._headers)
        else:
            await respond(send, 200, self._body, self._type, *self._headers)

    def _is_known(self, wished: bytes) -> bool:
        tags = [tag.strip().removeprefix(b"W/") for tag in wished.split(b",")]
        return b"*" in tags or self._tag in tags


def _short(field: str, text: object) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        raise UsageError(f"a server card needs a {field} of 1 to {_LONGEST} characters, not {text!r}")
    return text


def _spelled(card: JsonObject) -> JsonObject:
    try:
        spelled: JsonObject = decode(encode(card))
    except ENCODE_ERRORS as error:
        raise UsageError(f"the server card must be JSON: {error}") from None
    return spelled
