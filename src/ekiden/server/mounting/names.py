"""Prefixes: how the names and URIs of a mounted server are spelled in the server around it.

A name gets the prefix and an underscore in front: `billing_refund`. A URI gets the prefix in front of its
scheme: `billing+config://app`. Web addresses stay as they are, because clients may load these themselves.
Pages for apps keep their scheme, by which hosts know them: `ui://billing/chart`.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from ekiden.errors import RegistrationError
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["Neighbours", "Prefix", "with_uris"]

_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_WEB: Final = ("http:", "https:")
_UI: Final = "ui://"
_WITH_URI: Final = frozenset({"resource", "resource_link"})
"""Kinds of content that have a URI."""


class Prefix:
    """What stands before the names of a mounted server; empty if they stay as they are."""

    def __init__(self, text: str) -> None:
        if text and _PREFIX.fullmatch(text) is None:
            raise RegistrationError(
                f"{text!r} cannot be a prefix: use a letter, then up to 31 of A-Z a-z 0-9 _ -"
            )
        self.text = text
        self.scheme = f"{text.replace('_', '-').lower()}+" if text else ""
        """What stands before the scheme of a URI. A scheme has no underscores, and no capital letters."""
        self._pages = f"{_UI}{self.scheme[:-1]}/" if text else _UI
        """What pages for apps begin with."""

    def name(self, inner: str) -> str:
        """A name of the mounted server, as it is called around it."""
        return f"{self.text}_{inner}" if self.text else inner

    def has_name(self, name: str) -> bool:
        """Whether a name begins with this prefix."""
        return name.startswith(f"{self.text}_") if self.text else True

    def has_uri(self, uri: str) -> bool:
        """Whether a URI begins with this prefix."""
        return uri.startswith(self._pages if uri.startswith(_UI) else self.scheme)

    def inner_name(self, name: str) -> str:
        """A name as the mounted server has it."""
        return name.removeprefix(f"{self.text}_") if self.text else name

    def uri(self, inner: str) -> str:
        """A URI, or a template, of the mounted server as it is called around it."""
        if inner.startswith(_UI):
            return self._pages + inner.removeprefix(_UI)
        return inner if inner.lower().startswith(_WEB) else self.scheme + inner

    def inner_uri(self, uri: str) -> str:
        """A URI as the mounted server has it."""
        if uri.startswith(self._pages):
            return _UI + uri.removeprefix(self._pages)
        return uri.removeprefix(self.scheme)


class Neighbours:
    """The prefixes in one server. What begins with two of them belongs to the longer one.

    Otherwise a server mounted as `a`, with a tool `b_pay`, could take calls of one that is mounted as `a_b`.
    """

    def __init__(self) -> None:
        self._all: list[Prefix] = []

    def add(self, prefix: Prefix) -> None:
        """Take a prefix in."""
        self._all.append(prefix)

    def other_of_name(self, name: str, prefix: Prefix) -> Prefix | None:
        """The prefix that a name belongs to, if it is not this one but a longer one."""
        return self._longer(prefix, lambda other: other.has_name(name))

    def other_of_uri(self, uri: str, prefix: Prefix) -> Prefix | None:
        """The prefix that a URI belongs to, if it is not this one but a longer one."""
        return self._longer(prefix, lambda other: other.has_uri(uri))

    def _longer(self, prefix: Prefix, has_it: Callable[[Prefix], bool]) -> Prefix | None:
        longer = (other for other in self._all if len(other.text) > len(prefix.text) and has_it(other))
        return max(longer, key=lambda other: len(other.text), default=None)


def with_uris(result: JsonObject, change: Callable[[str], str]) -> JsonObject:
    """A result of a tool, a prompt or a resource with all its URIs changed."""
    if is_array(contents := result.get("contents")):
        result = {**result, "contents": [_changed(item, change) for item in contents]}
    if is_array(blocks := result.get("content")) and any(map(_has_uri, blocks)):
        result = {**result, "content": [_block(block, change) for block in blocks]}
    if is_array(messages := result.get("messages")):
        result = {**result, "messages": [_message(message, change) for message in messages]}
    return result


def _has_uri(block: object) -> bool:
    return is_object(block) and block.get("type") in _WITH_URI


def _message(message: Any, change: Callable[[str], str]) -> Any:
    if not is_object(message) or not _has_uri(content := message.get("content")):
        return message
    return {**message, "content": _block(content, change)}


def _block(block: Any, change: Callable[[str], str]) -> Any:
    if not _has_uri(block):
        return block
    if block["type"] == "resource_link":
        return _changed(block, change)
    return {**block, "resource": _changed(block.get("resource"), change)}


def _changed(item: Any, change: Callable[[str], str]) -> Any:
    if not is_object(item) or not isinstance(uri := item.get("uri"), str):
        return item
    return {**item, "uri": change(uri)}
