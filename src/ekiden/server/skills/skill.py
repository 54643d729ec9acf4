"""One skill: its files, or the function that generates it, and the entry that tells hosts what to expect."""

import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from ekiden.errors import RegistrationError
from ekiden.signals import FrontmatterError
from ekiden.wire.extensions.frontmatter import read_skill_text
from ekiden.wire.extensions.skills import (
    FILE_NAME,
    MOST_BYTES,
    MOST_FILES,
    digest_of,
    is_name,
    uri_of,
)
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode

__all__ = ["MARKDOWN", "Generate", "Skill", "media_type", "read_files"]

Generate: TypeAlias = Callable[[], Awaitable[str]]
"""Returns the instructions of a skill as of now."""

_LONGEST_DESCRIPTION: Final = 1024
MARKDOWN: Final = "text/markdown"
_SUFFIXES: Final = {
    "md": MARKDOWN,
    "py": "text/x-python",
    "sh": "text/x-shellscript",
    "js": "text/javascript",
    "ts": "text/x-typescript",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
}
"""What skills are often made of. Systems differ in what they call these, and some take `.ts` for a video."""


class Skill:
    """A skill at a path of the name space: `acme/billing/refunds`."""

    def __init__(
        self,
        path: str,
        frontmatter: JsonObject,
        files: Mapping[str, bytes],
        generate: Generate | None = None,
    ) -> None:
        self.path = path
        self.frontmatter = _check_frontmatter(path, frontmatter)
        self.files = dict(files)
        """Contents by path in the skill; without `SKILL.md` if that is generated."""
        self.generate = generate
        self.uri = uri_of(f"{path}/{FILE_NAME}")
        if generate is None:
            _check_limits(path, self.files)
        self.entry: JsonObject = {
            "uri": self.uri,
            "frontmatter": self.frontmatter,
            "resources": "dynamic" if generate is not None else self._listed(),
        }

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.rpartition("/")[2]

    def _listed(self) -> list[JsonObject]:
        return [
            {"uri": uri_of(f"{self.path}/{path}"), "digest": digest_of(content), "size": len(content)}
            for path, content in self.files.items()
        ]


def read_files(path: str, files: Mapping[str, bytes]) -> Skill:
    """The skill that consists of these files, at a path whose last part is its name."""
    try:
        text = read_skill_text(files[FILE_NAME].decode())
    except (FrontmatterError, UnicodeDecodeError) as error:
        raise RegistrationError(f"skill {path!r}: {FILE_NAME} cannot be read: {error}") from None
    ordered = {FILE_NAME: files[FILE_NAME], **{name: files[name] for name in sorted(files)}}
    return Skill(path, text.frontmatter, ordered)


def _check_frontmatter(path: str, frontmatter: Mapping[str, object]) -> JsonObject:
    """A frontmatter that a skill at this path may have, as JSON."""
    segments = path.split("/")
    if not all(segments) or any(segment in (".", "..") for segment in segments):
        raise RegistrationError(f"skill {path!r}: a path is names with slashes between them: 'acme/refunds'")
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not is_name(name):
        raise RegistrationError(
            f"skill {path!r}: {name!r} is not the name of a skill: 1 to 64 lower-case letters, digits and "
            "single hyphens, with none at the ends"
        )
    if name != segments[-1]:
        raise RegistrationError(
            f"skill {path!r}: its name is {name!r}, which must be the last part of the path"
        )
    if not isinstance(description, str) or not 0 < len(description) <= _LONGEST_DESCRIPTION:
        raise RegistrationError(
            f"skill {path!r}: it needs a description of 1 to {_LONGEST_DESCRIPTION} characters"
        )
    try:
        spelled: JsonObject = decode(encode(dict(frontmatter)))
    except ENCODE_ERRORS as error:
        raise RegistrationError(f"skill {path!r}: its frontmatter must be JSON: {error}") from None
    return spelled


def _check_limits(path: str, files: Mapping[str, bytes]) -> None:
    if len(files) > MOST_FILES:
        raise RegistrationError(
            f"skill {path!r} has {len(files)} files, and hosts take at most {MOST_FILES}: split it"
        )
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        raise RegistrationError(
            f"skill {path!r} has {size} bytes, and hosts take at most {MOST_BYTES}: split it"
        )


def media_type(path: str, content: bytes) -> str:
    """The media type of a file, by its name; text where the name says nothing and the content is text."""
    suffix = path.rpartition(".")[2].lower()
    if (known := _SUFFIXES.get(suffix) or mimetypes.guess_type(path)[0]) is not None:
        return known
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
