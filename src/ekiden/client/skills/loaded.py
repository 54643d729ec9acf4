"""A skill that a host acts on: every file of it is verified against the entry that it was loaded from.

The requirements are those of SEP-2640, "Integrity and Verification". A digest that fits proves that content
and entry belong together, not that either can be trusted: whether to load a skill is for the user to decide.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from ekiden.errors import InvalidResult, TooMuch, UnverifiedSkill
from ekiden.signals import FrontmatterError
from ekiden.wire.extensions.frontmatter import SkillText, read_skill_text
from ekiden.wire.extensions.skills import FILE_NAME, MOST_BYTES, MOST_FILES, SkillEntry, SkillFile, digest_of
from ekiden.wire.json import canonical

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult

__all__ = ["LoadedSkill", "Read", "load"]

Read: TypeAlias = "Callable[[str], Awaitable[ReadResourceResult]]"
"""Reads a resource of the skill's server."""


class LoadedSkill:
    """A skill whose `SKILL.md` was read and verified. Its other files are read when they are needed."""

    def __init__(self, entry: SkillEntry, read: Read) -> None:
        self.entry = entry
        """What the server said of the skill when it was loaded. Only files that it lists are read."""
        self.text = ""
        """The whole `SKILL.md`."""
        self.instructions = ""
        """What follows the frontmatter. It is untrusted input: tell the model which server it is from."""
        self._read = read
        self._listed = {_path(file.uri, entry): file for file in entry.files or ()}
        self._kept: dict[str, bytes] = {}
        self._size = 0

    @property
    def files(self) -> list[str]:
        """The paths of its files, in the order of the entry; empty if they are generated."""
        return list(self._listed)

    async def read(self, path: str) -> bytes:
        """A file by its path in the skill: `await skill.read("references/FORMS.md")`.

        Raises `UnverifiedSkill` if the entry does not list it, or the content is not what the entry says.
        """
        if path not in self._kept:
            self._kept[path] = await self._fetch(path)
        return self._kept[path]

    async def _fetch(self, path: str) -> bytes:
        listed = self._listed.get(path)
        uri = self.entry.uri_for(path) if listed is None else listed.uri
        if listed is None and self.entry.files is not None:
            raise UnverifiedSkill(uri, "the skill's entry does not list it")
        if {"", ".", ".."} & set(path.split("/")):
            raise UnverifiedSkill(uri, f"{path!r} is not the path of a file in the skill")
        content = _content(uri, await self._read(uri))
        if listed is not None:
            _verify(listed, content)
        self._size += len(content)
        if self._size > MOST_BYTES:
            raise TooMuch(f"The files of {self.entry.uri} have more than {MOST_BYTES} bytes")
        return content


def _path(uri: str, entry: SkillEntry) -> str:
    return unquote(uri.removeprefix(f"{entry.root}/"))


async def load(entry: SkillEntry, read: Read) -> LoadedSkill:
    """Read the `SKILL.md` of a skill, and verify it: its size, its digest, and its frontmatter."""
    _check_limits(entry)
    skill = LoadedSkill(entry, read)
    content = await skill.read(FILE_NAME)
    text = _read_text(entry.uri, content)
    if canonical(text.frontmatter) != canonical(entry.frontmatter):
        raise UnverifiedSkill(entry.uri, "its frontmatter is not that of the entry")
    skill.text, skill.instructions = content.decode(), text.instructions
    return skill


def _check_limits(entry: SkillEntry) -> None:
    files = entry.files or ()
    if len(files) > MOST_FILES:
        raise TooMuch(f"The skill {entry.uri} has {len(files)} files, and at most {MOST_FILES} are loaded")
    if (size := sum(file.size for file in files)) > MOST_BYTES:
        raise TooMuch(f"The skill {entry.uri} has {size} bytes, and at most {MOST_BYTES} are loaded")


def _read_text(uri: str, content: bytes) -> SkillText:
    try:
        return read_skill_text(content.decode())
    except (FrontmatterError, UnicodeDecodeError) as error:
        raise UnverifiedSkill(uri, str(error)) from None


def _content(uri: str, result: ReadResourceResult) -> bytes:
    from mcp_types import TextResourceContents

    for contents in result.contents:
        if str(contents.uri) != uri:
            continue
        if isinstance(contents, TextResourceContents):
            return contents.text.encode(errors="surrogatepass")
        try:
            return base64.b64decode(contents.blob, validate=True)
        except binascii.Error:
            raise InvalidResult(f"The server's blob of {uri} is not base64") from None
    raise InvalidResult(f"The server's result has no contents of {uri}")


def _verify(listed: SkillFile, content: bytes) -> None:
    if len(content) != listed.size:
        raise UnverifiedSkill(listed.uri, f"it has {len(content)} bytes, and the entry says {listed.size}")
    if digest_of(content) != listed.digest:
        raise UnverifiedSkill(listed.uri, "its digest is not that of the entry")
