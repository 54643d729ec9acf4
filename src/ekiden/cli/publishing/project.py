"""What a project says of itself in `pyproject.toml`, and what its server says when it is asked."""

import asyncio
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ekiden.cli.loading import split_spec
from ekiden.cli.targets import TargetOptions, open_client
from ekiden.errors import UsageError
from ekiden.wire.json import is_array, is_object

__all__ = ["Facts", "facts_of"]

_MARKER: Final = re.compile(r"mcp-name: ([A-Za-z0-9.-]+/[A-Za-z0-9._-]+)")
"""With one space: so the registry looks for it."""
_URLS: Final = {
    "homepage": ("homepage", "home", "website"),
    "documentation": ("documentation", "docs"),
    "repository": ("repository", "source", "sourcecode", "github", "code"),
    "support": ("issues", "bugtracker", "support", "tracker"),
}
"""How projects name their addresses, without spaces and in small letters."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a manifest or an entry may say of a server."""

    root: Path
    """The folder of the project, or that of the file if it is in none."""
    file: Path
    """Where the server is."""
    server: str | None
    """Its name in the file, if it was given."""
    is_project: bool
    name: str
    title: str
    version: str
    description: str
    author: str | None
    license: str | None
    keywords: list[str]
    urls: Mapping[str, str]
    scripts: list[str]
    """The commands that its package installs."""
    dependencies: list[str]
    requires_python: str
    registry_name: str | None
    """What follows `mcp-name:` in the README, by which the registry knows the owner of a package."""
    tools: list[dict[str, str]]
    has_prompts: bool


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    name: str
    title: str
    version: str
    instructions: str | None
    tools: list[dict[str, str]]
    has_prompts: bool


def facts_of(spec: str) -> Facts:
    """Ask the server of `FILE[:NAME]`, and read the project that it is in."""
    path, name = split_spec(spec)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    server = asyncio.run(_asked(spec))
    file = path.resolve()
    root = next((folder for folder in file.parents if (folder / "pyproject.toml").is_file()), None)
    table = {} if root is None else _project(root / "pyproject.toml")
    license_ = table.get("license")
    return Facts(
        root=root or file.parent,
        file=file,
        server=name,
        is_project=root is not None,
        name=str(table.get("name") or re.sub(r"[^a-z0-9]+", "-", server.name.lower()).strip("-")),
        title=server.title,
        version=_version(table, server.version, root),
        description=str(
            table.get("description") or _first_line(server.instructions) or f"The MCP server {server.name}"
        ),
        author=next((str(author["name"]) for author in _objects(table, "authors") if "name" in author), None),
        license=license_ if isinstance(license_, str) else None,
        keywords=[str(word) for word in _array(table, "keywords")],
        urls=_urls(table.get("urls")),
        scripts=sorted(_object(table, "scripts")),
        dependencies=[str(line) for line in _array(table, "dependencies")],
        requires_python=str(table.get("requires-python") or ">=3.11"),
        registry_name=_marked(root, table),
        tools=server.tools,
        has_prompts=server.has_prompts,
    )


def _project(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text()).get("project")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    return table if is_object(table) else {}


def _version(table: Mapping[str, Any], of_server: str, root: Path | None) -> str:
    """That of the project. If a build tool finds it out, the server has to say it."""
    return str(table.get("version") or of_server) if root is not None else of_server


def _array(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key)
    return list(value) if is_array(value) else []


def _object(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if is_object(value) else {}


def _objects(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [value for value in _array(table, key) if is_object(value)]


def _urls(value: object) -> dict[str, str]:
    table = value if is_object(value) else {}
    given = {re.sub(r"[^a-z]", "", name.lower()): str(url) for name, url in table.items()}
    found = {ours: [given[name] for name in names if name in given] for ours, names in _URLS.items()}
    return {ours: urls[0] for ours, urls in found.items() if urls}


def _marked(root: Path | None, table: Mapping[str, Any]) -> str | None:
    readme = table.get("readme")
    file = _object(table, "readme").get("file") if is_object(readme) else readme
    if root is None or not isinstance(file, str) or not (root / file).is_file():
        return None
    found = _MARKER.search((root / file).read_text(errors="replace"))
    return found[1] if found else None


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


async def _asked(spec: str) -> _Told:
    async with open_client(TargetOptions(target=spec, timeout=60.0)) as client:
        tools = await client.list_tools()
        info = client.session.server_info
        described = [
            {"name": tool.name, **({"description": tool.description} if tool.description else {})}
            for tool in tools
        ]
        return _Told(
            name=str(info.get("name") or "server"),
            title=str(info.get("title") or info.get("name") or "server"),
            version=str(info.get("version") or ""),
            instructions=client.session.instructions,
            tools=described,
            has_prompts="prompts" in client.session.capabilities and bool(await client.list_prompts()),
        )
