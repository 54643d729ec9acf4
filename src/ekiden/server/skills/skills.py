"""`Skills`: the extension `io.modelcontextprotocol/skills` (SEP-2640) of a server."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ekiden.errors import InvalidParams, RegistrationError, ResourceNotFound, UsageError
from ekiden.rounds.outcome import Complete
from ekiden.server.extensions.extension import Extension
from ekiden.server.questions.media import File
from ekiden.server.registration.catalog import CacheHint, read_cursor, write_cursor
from ekiden.server.registration.decorators import Authoring
from ekiden.server.skills.folder import read_folder
from ekiden.server.skills.skill import MARKDOWN, Generate, Skill, media_type
from ekiden.server.skills.tree import Tree
from ekiden.wire.extensions.frontmatter import write_skill_text
from ekiden.wire.extensions.skills import DIRECTORY_READ, EXTENSION, FILE_NAME, uri_of
from ekiden.wire.json import JsonObject

__all__ = ["Skills"]

_log = logging.getLogger(__name__)

_TEMPLATE: Final = "skill://{+path}"


class Skills(Extension):
    """Skills of a server: `Server("docs", extensions=[Skills("skills/")])`.

    `folder` is read once, when this is made; that needs `ekiden[skills]`. `prefix` goes before the paths of
    its skills. `cache` says how long hosts may keep lists and files. A page of a list has `page_size`
    entries. With `scopes`, only callers who were granted them have the skills.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        prefix: str = "",
        cache: CacheHint | None = None,
        page_size: int = 100,
        scopes: Sequence[str] = (),
    ) -> None:
        super().__init__(EXTENSION, settings={DIRECTORY_READ: True})
        if page_size < 1:
            raise UsageError("page_size must be at least 1")
        self._cache = (cache or CacheHint()).for_scopes(scopes)
        self._page_size = page_size
        self._needed = list(scopes)
        self._skills: dict[str, Skill] = {}
        self._positions: dict[str, int] = {}
        """Where each stands in the list, by its URI. A position is not given twice."""
        self._next = 0
        self._servers: list[Authoring] = []
        self._tree = Tree(())
        for method, answer in (
            ("skills/list", self._list),
            ("skills/get", self._get),
            ("resources/directory/read", self._read_directory),
        ):
            self.method(method, scopes=self._needed)(answer)
        if folder is not None:
            for skill in read_folder(Path(folder), prefix):
                self._add(skill)

    # What authors register

    def add(
        self,
        path: str,
        *,
        description: str,
        instructions: str,
        files: Mapping[str, str | bytes] | None = None,
        **frontmatter: Any,
    ) -> None:
        """Add a skill: `path` ends with its name, `instructions` are the Markdown of its `SKILL.md`.

        `files` are its other files, by path. `frontmatter` has more fields, such as `license`.
        """
        fields = {"name": path.rpartition("/")[2], "description": description, **frontmatter}
        contents = {name: _bytes(path, name, content) for name, content in (files or {}).items()}
        if FILE_NAME in contents:
            raise RegistrationError(f"skill {path!r}: {FILE_NAME} is made of its instructions")
        skill = Skill(path, fields, {})  # Its frontmatter is in order: it can be written.
        text = write_skill_text(skill.frontmatter, instructions)
        self._add(Skill(path, fields, {FILE_NAME: text.encode(), **contents}))

    def generate(self, path: str, *, description: str, **frontmatter: Any) -> Callable[[Generate], Generate]:
        """Add a skill whose instructions are generated whenever they are read.

        Hosts cannot verify such a skill, and some do not load it.
        """

        def register(function: Generate) -> Generate:
            fields = {"name": path.rpartition("/")[2], "description": description, **frontmatter}
            self._add(Skill(path, fields, {}, function))
            return function

        return register

    def remove(self, path: str) -> None:
        """Remove a skill."""
        skill = self._skills.pop(path, None)
        if skill is None:
            raise UsageError(f"there is no skill {path!r} to remove")
        del self._positions[skill.uri]
        self._tree = Tree(self._skills.values())
        for server in self._servers:
            server.remove_resource(skill.uri)

    def _add(self, skill: Skill) -> None:
        if skill.path in self._skills:
            raise RegistrationError(f"skill {skill.path!r} is registered already")
        if any(skill.name == other.name for other in self._skills.values()):
            _log.warning("Two skills have the name %r: hosts must tell them apart by their paths", skill.name)
        self._skills[skill.path] = skill
        self._positions[skill.uri] = self._next
        self._next += 1
        self._tree.add(skill)
        for server in self._servers:
            self._serve(server, skill)

    # How a server has them

    def attach(self, server: Authoring) -> None:
        """Serve every `SKILL.md` as a resource that is listed, and all other files by a template."""
        self._servers.append(server)
        options: dict[str, Any] = {"scopes": self._needed} if self._needed else {}
        server.add_resource(
            _TEMPLATE,
            self._read,
            name="skill-files",
            description="The files of skills",
            cache=self._cache,
            **options,
        )
        for skill in self._skills.values():
            self._serve(server, skill)

    def _serve(self, server: Authoring, skill: Skill) -> None:
        options: dict[str, Any] = {"scopes": self._needed} if self._needed else {}
        server.add_resource(
            skill.uri,
            functools.partial(self._content, skill.uri),
            name=skill.name,
            description=skill.frontmatter["description"],
            mime_type=MARKDOWN,
            cache=self._cache,
            **options,
        )

    async def _read(self, path: str) -> File:
        return await self._content(uri_of(path))

    async def _content(self, uri: str) -> File:
        generated = self._tree.generated.get(uri)
        if generated is not None and generated.generate is not None:
            text = write_skill_text(generated.frontmatter, await generated.generate())
            return File(data=text, format=MARKDOWN, name=FILE_NAME)
        content = self._tree.files.get(uri)
        if content is None:
            raise ResourceNotFound(uri)
        name = uri.rpartition("/")[2]
        return File(data=content, format=media_type(name, content), name=name)

    # The methods

    async def _list(self, cursor: str | None = None) -> Complete:
        return Complete({**self._page("skills", self._entries(), cursor), **self._cache.fields()})

    def _entries(self) -> list[tuple[int, JsonObject]]:
        return [(self._positions[skill.uri], skill.entry) for skill in self._skills.values()]

    async def _get(self, uri: str) -> Complete:
        for skill in self._skills.values():
            if skill.uri == uri:
                return Complete({"skill": skill.entry, **self._cache.fields()})
        raise InvalidParams(f"No skill is served at {uri[:200]}")

    async def _read_directory(self, uri: str, cursor: str | None = None) -> Complete:
        children = self._tree.children(uri)
        if children is None:
            raise InvalidParams(f"{uri[:200]} is not a directory of skills")
        return Complete(self._page("resources", list(enumerate(children)), cursor))

    def _page(self, field: str, entries: list[tuple[int, JsonObject]], cursor: str | None) -> JsonObject:
        start = -1 if cursor is None else read_cursor(cursor, field)
        left = [(position, entry) for position, entry in entries if position > start]
        page: JsonObject = {field: [entry for _, entry in left[: self._page_size]]}
        if len(left) > self._page_size:
            page["nextCursor"] = write_cursor(left[self._page_size - 1][0], field)
        return page


def _bytes(path: str, name: str, content: str | bytes) -> bytes:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise RegistrationError(f"skill {path!r}: {name!r} is not the path of a file in it")
    return content.encode() if isinstance(content, str) else content
