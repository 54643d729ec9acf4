"""`server.json`, by which the MCP Registry knows a server: the format of 2025-12-11.

What the registry refuses is refused here first, with what to do about it.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ekiden.cli.publishing.addresses import is_everybodys, is_release, is_secure, repository_at
from ekiden.cli.publishing.project import Facts
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

__all__ = ["server_json"]

_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]/[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]")
"""The schema allows more than this. The registry itself does not."""
_RANGE: Final = re.compile(r"[\s^~<>=*|]|(?:^|\.)[xX](?:\.|$)|^latest$|^$")
_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 100
_LONGEST_VERSION: Final = 255


def server_json(
    facts: Facts,
    *,
    name: str | None,
    description: str | None,
    remotes: list[str],
    bundle: Path | None,
    bundle_url: str | None,
    env: Mapping[str, str],
    secrets: list[str],
) -> JsonObject:
    """The entry. Its packages are that of the project and the bundle, if there are any."""
    called = name or facts.registry_name
    if called is None:
        raise UsageError("the registry needs a name such as io.github.you/server: write --name")
    said = description or facts.description
    packages = [
        *_package(facts, called, remotes, bundle, env, secrets),
        *_bundled(bundle, bundle_url, env, secrets),
    ]
    _check(called, said, facts.version, remotes)
    title = facts.title.strip()[:_LONGEST_TEXT]
    repository = repository_at(facts.urls.get("repository", ""))
    website = facts.urls.get("homepage", "")
    return {
        "$schema": _SCHEMA,
        "name": called,
        **({"title": title} if title else {}),
        "description": said,
        "version": facts.version,
        **({"repository": repository} if repository else {}),
        **({"websiteUrl": website} if is_secure(website) else {}),
        **({"packages": packages} if packages else {}),
        **({"remotes": [{"type": "streamable-http", "url": url} for url in remotes]} if remotes else {}),
    }


def _check(name: str, description: str, version: str, remotes: list[str]) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"{name!r} is not a name for the registry: it is like io.github.you/server, with one slash, and "
            "each side of it begins and ends with a letter or a digit"
        )
    if not 0 < len(description) <= _LONGEST_TEXT:
        raise UsageError(
            f"the description has {len(description)} letters, and the registry allows {_LONGEST_TEXT}: "
            "write a shorter --description"
        )
    if _RANGE.search(version) or len(version) > _LONGEST_VERSION:
        raise UsageError(f"the version must be one version, not {version!r}")
    for url in remotes:
        if not is_everybodys(url):
            raise UsageError(
                f"--remote {url!r} is not for everybody: the registry takes https:// and a public host, "
                "and no {variables}"
            )


def _package(
    facts: Facts,
    name: str,
    remotes: list[str],
    bundle: Path | None,
    env: Mapping[str, str],
    secrets: list[str],
) -> list[JsonObject]:
    """The package that is on PyPI, if it has the command that `uvx` starts: the one with its own name."""
    if not facts.is_project or facts.name not in facts.scripts:
        if remotes or bundle:
            return []
        # Hosts append the package's name to what they give uvx: a command with another name cannot be said.
        raise UsageError(
            "the registry has nothing to install: give the project a script that serves and is named as the "
            f"package ([project.scripts], {facts.name} = ...), or name a --bundle or a --remote"
        )
    if facts.registry_name != name:
        raise UsageError(
            f"the README of a package must say who it is: write <!-- mcp-name: {name} --> into it, "
            "for the registry looks it up on PyPI"
        )
    return [
        {
            "registryType": "pypi",
            "identifier": facts.name,
            "version": facts.version,
            "runtimeHint": "uvx",
            "transport": {"type": "stdio"},
            **_variables(env, secrets),
        }
    ]


def _bundled(
    bundle: Path | None, url: str | None, env: Mapping[str, str], secrets: list[str]
) -> list[JsonObject]:
    if bundle is None:
        return []
    if not bundle.is_file():
        raise UsageError(f"there is no file {bundle}")
    if url is None or not is_release(url):
        raise UsageError(
            "--bundle-url says where it will be: a file of a release on GitHub or GitLab, with 'mcp' in its "
            "address, such as https://github.com/you/server/releases/download/v1.0.0/server.mcpb"
        )
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    return [
        {
            "registryType": "mcpb",
            "identifier": url,
            "fileSha256": digest,
            "transport": {"type": "stdio"},
            **_variables(env, secrets),
        }
    ]


def _variables(env: Mapping[str, str], secrets: list[str]) -> JsonObject:
    fixed = [{"name": name, "value": value} for name, value in env.items()]
    asked = [{"name": name, "isRequired": True, "isSecret": True} for name in secrets]
    return {"environmentVariables": [*fixed, *asked]} if fixed or asked else {}
