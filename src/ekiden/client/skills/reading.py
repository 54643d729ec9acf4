"""The methods of a client for skills (SEP-2640). Nothing of a skill is read before it is loaded."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from ekiden.client.extensions.custom import CustomMessages
from ekiden.client.results import typed
from ekiden.client.skills.loaded import LoadedSkill, load
from ekiden.errors import InvalidResult, UsageError
from ekiden.transports.client.complaints import Complaints
from ekiden.wire.extensions.skills import DIRECTORY_READ, EXTENSION, SkillEntry, read_entry
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult, Resource

__all__ = ["SkillReader"]

_log = logging.getLogger(__name__)


class SkillReader(CustomMessages):
    """The part of a client that uses skills."""

    @abstractmethod
    async def _list(self, method: str, field: str, params: JsonObject | None = None) -> list[Any]:
        """All items of a list, page by page."""

    @abstractmethod
    async def _read_fresh(self, uri: str) -> ReadResourceResult:
        """Read a resource from the server, whatever is in the cache."""

    async def list_skills(self) -> list[SkillEntry]:
        """The skills that the server lists; those whose entry is invalid are left out, with a warning.

        A server may list some of its skills only: others can be had by their URI with `get_skill`.
        """
        self._skill_settings()
        entries: list[SkillEntry] = []
        complain = Complaints(_log)
        for fields in await self._list("skills/list", "skills"):
            try:
                entries.append(read_entry(fields))
            except InvalidResult as error:
                complain("A skill of the server is left out: %s", error)
        return entries

    async def get_skill(self, uri: str) -> SkillEntry:
        """The current entry of one skill, by the URI of its `SKILL.md`."""
        self._skill_settings()
        entry = read_entry((await self.request("skills/get", {"uri": uri})).get("skill"))
        if entry.uri != uri:
            raise InvalidResult(f"The server was asked for the skill {uri!r} and sent {entry.uri[:200]!r}")
        return entry

    async def load_skill(self, skill: SkillEntry | str) -> LoadedSkill:
        """Read a skill's `SKILL.md`, and verify it against its entry; a URI is asked for its entry first.

        Raises `UnverifiedSkill` if the content is not what the entry says. Needs `ekiden[skills]`.
        """
        entry = await self.get_skill(skill) if isinstance(skill, str) else skill
        return await load(entry, self._read_fresh)

    async def read_directory(self, uri: str) -> list[Resource]:
        """What is directly in a directory of the server, if the server declares that it can be asked."""
        from mcp_types import Resource

        if self._skill_settings().get(DIRECTORY_READ) is not True:
            raise UsageError(f"the server does not declare {DIRECTORY_READ!r} for {EXTENSION}")
        listed = await self._list("resources/directory/read", "resources", {"uri": uri})
        return [typed(Resource, resource) for resource in listed]

    def _skill_settings(self) -> JsonObject:
        settings = self.server_extension(EXTENSION)
        if settings is None:
            raise UsageError(f"the server does not declare the extension {EXTENSION}")
        return settings
