"""The directories that skills are in, and what is directly in each."""

from collections.abc import Iterable

from ekiden.server.skills.skill import Skill, media_type
from ekiden.wire.extensions.skills import DIRECTORY, FILE_NAME, uri_of
from ekiden.wire.json import JsonObject

__all__ = ["Tree"]


class Tree:
    """Files and directories by URI."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._children: dict[str, dict[str, JsonObject]] = {}
        """The resources in each directory, by URI."""
        self.files: dict[str, bytes] = {}
        """The contents of files that are not generated."""
        self.generated: dict[str, Skill] = {}
        """Skills whose `SKILL.md` is generated, by its URI."""
        for skill in skills:
            self.add(skill)

    def add(self, skill: Skill) -> None:
        """Add the files of a skill, and the directories that they are in."""
        if skill.generate is not None:
            self.generated[skill.uri] = skill
            self._put(f"{skill.path}/{FILE_NAME}", None)
        for path, content in skill.files.items():
            self._put(f"{skill.path}/{path}", content)
            self.files[uri_of(f"{skill.path}/{path}")] = content

    def _put(self, path: str, content: bytes | None) -> None:
        above, _, name = path.rpartition("/")
        kind = media_type(name, content or b"")
        resource: JsonObject = {"uri": uri_of(path), "name": name, "mimeType": kind}
        if content is not None:
            resource["size"] = len(content)
        self._children.setdefault(uri_of(above), {})[uri_of(path)] = resource
        while above:
            path, (above, _, name) = above, above.rpartition("/")
            if above:
                directory = {"uri": uri_of(path), "name": name, "mimeType": DIRECTORY}
                self._children.setdefault(uri_of(above), {})[uri_of(path)] = directory

    def children(self, uri: str) -> list[JsonObject] | None:
        """What is directly in a directory, by name; None if that is not a directory."""
        found = self._children.get(uri)
        return None if found is None else [found[child] for child in sorted(found)]
