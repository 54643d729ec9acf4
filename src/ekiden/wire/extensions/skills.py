"""The messages of the Skills extension (SEP-2640): what a skill's entry says, and when it may be believed."""

import hashlib
import re
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from ekiden.errors import InvalidResult
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = [
    "DIRECTORY",
    "DIRECTORY_READ",
    "EXTENSION",
    "FILE_NAME",
    "MOST_BYTES",
    "MOST_FILES",
    "SkillEntry",
    "SkillFile",
    "digest_of",
    "is_name",
    "read_entry",
    "uri_of",
]

EXTENSION: Final = "io.modelcontextprotocol/skills"
FILE_NAME: Final = "SKILL.md"
DIRECTORY: Final = "inode/directory"
"""The media type of a directory."""
DIRECTORY_READ: Final = "directoryRead"
"""The setting of a server that answers `resources/directory/read`."""
MOST_FILES: Final = 512
"""Files of a skill that every host takes, `SKILL.md` among them."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of all files of a skill that every host takes."""

_NAME: Final = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SEGMENT: Final = "-._~!$&'()*+,;="
"""What a segment of a path, and a name in an authority, may have besides letters and digits."""


class SkillFile(msgspec.Struct, frozen=True):
    """A file of a skill, as its entry lists it."""

    uri: str
    digest: str
    """SHA-256 of its bytes: `sha256:` and 64 hexadecimal digits."""
    size: int


class SkillEntry(msgspec.Struct, frozen=True):
    """What a server says of a skill: enough to show it and to verify every file of it."""

    uri: str
    """The URI of its `SKILL.md`, which is the skill's identity at its server."""
    frontmatter: JsonObject
    files: tuple[SkillFile, ...] | None
    """All its files, `SKILL.md` among them; None if they are generated, and so cannot be verified."""

    @property
    def name(self) -> str:
        """Its name: a label, which two skills may share."""
        name: str = self.frontmatter["name"]
        return name

    @property
    def description(self) -> str:
        """What it is for."""
        description: str = self.frontmatter["description"]
        return description

    @property
    def root(self) -> str:
        """The URI of its directory, without a slash at the end."""
        return self.uri.removesuffix(f"/{FILE_NAME}")

    def uri_for(self, path: str) -> str:
        """The URI of a file, by its path in the skill."""
        return f"{self.root}/{spelled_path(path)}"


def is_name(name: object) -> bool:
    """Whether that can be the name of a skill."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def digest_of(content: bytes) -> str:
    """The digest of a file."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def spelled_path(path: str) -> str:
    """A path as a part of a URI."""
    return "/".join(quote(segment, safe=_SEGMENT) for segment in path.split("/"))


def uri_of(path: str) -> str:
    """The URI of a path in the name space of skills."""
    return f"skill://{spelled_path(path)}"


def read_entry(fields: Any) -> SkillEntry:
    """The entry of a skill, as a server sends it. One that breaks a rule must not be used."""
    if not is_object(fields):
        raise InvalidResult("The server's skill is not an object")
    uri, frontmatter = fields.get("uri"), fields.get("frontmatter")
    if not isinstance(uri, str) or not uri.endswith(f"/{FILE_NAME}"):
        raise InvalidResult(f"A skill's `uri` must end with /{FILE_NAME}, and {str(uri)[:200]!r} does not")
    if not is_object(frontmatter) or not is_name(frontmatter.get("name")):
        raise InvalidResult(f"The frontmatter of {uri[:200]!r} has no name that a skill may have")
    description = frontmatter.get("description")
    if not isinstance(description, str) or not description:
        raise InvalidResult(f"The frontmatter of {uri[:200]!r} has no description")
    if unquote(uri.split("/")[-2]) != frontmatter["name"]:
        name = frontmatter["name"]
        raise InvalidResult(f"The skill {name!r} must be in a directory of that name, not at {uri[:200]!r}")
    return SkillEntry(uri, frontmatter, _read_files(uri, fields.get("resources")))


def _read_files(uri: str, resources: object) -> tuple[SkillFile, ...] | None:
    if resources == "dynamic":
        return None
    if not is_array(resources):
        raise InvalidResult(f'The `resources` of {uri[:200]!r} must be a list or "dynamic"')
    files = tuple(_read_file(uri, entry) for entry in resources)
    uris = [file.uri for file in files]
    if uri not in uris or len(set(uris)) != len(uris):
        raise InvalidResult(f"The `resources` of {uri[:200]!r} must list each file once, with {FILE_NAME}")
    return files


def _read_file(skill: str, entry: object) -> SkillFile:
    try:
        file = msgspec.convert(entry, SkillFile)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"A file of {skill[:200]!r} is malformed: {error}") from None
    if not _DIGEST.fullmatch(file.digest) or file.size < 0:
        raise InvalidResult(f"{file.uri[:200]!r} has no digest of SHA-256, or a negative size")
    inside = file.uri.startswith(f"{skill.removesuffix(FILE_NAME)}")
    if not inside or {"..", "."} & set(unquote(file.uri).split("/")):
        raise InvalidResult(f"{file.uri[:200]!r} is not in the directory of {skill[:200]!r}")
    return file
