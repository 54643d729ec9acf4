"""`manifest.json` of an MCPB file (MCP Bundles), versions 0.3 and 0.4.

A bundle of type `uv` has the sources and names what they need; the host installs that with uv. It needs
version 0.4. A bundle of type `python` brings everything along, for one system and one version of Python.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any, Literal

from ekiden.cli.publishing.project import Facts
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

__all__ = ["Kind", "manifest_of"]

Kind = Literal["uv", "python"]
_SEMVER = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def manifest_of(
    facts: Facts,
    kind: Kind,
    *,
    author: str | None,
    env: Mapping[str, str],
    secrets: list[str],
    icon: str | None,
) -> JsonObject:
    """The manifest. What the format demands and the project does not say is a `UsageError`."""
    by = author or facts.author
    if by is None:
        raise UsageError("a bundle must name its author: write --author, or authors in pyproject.toml")
    if not _SEMVER.fullmatch(facts.version):
        raise UsageError(
            f"the version of a bundle has three parts, such as 1.2.0, and {facts.version!r} has not"
        )
    entry = facts.file.relative_to(facts.root).as_posix()
    fields: dict[str, Any] = {
        "manifest_version": "0.4" if kind == "uv" else "0.3",
        "name": facts.name,
        "display_name": facts.title,
        "version": facts.version,
        "description": facts.description,
        "author": {"name": by},
        "repository": {"type": "git", "url": facts.urls["repository"]}
        if "repository" in facts.urls
        else None,
        "homepage": facts.urls.get("homepage"),
        "documentation": facts.urls.get("documentation"),
        "support": facts.urls.get("support"),
        "icon": icon,
        "server": {
            "type": kind,
            "entry_point": entry,
            "mcp_config": {**_started(facts, kind, entry), "env": _variables(kind, env, secrets)},
        },
        "tools": facts.tools,
        "prompts_generated": True if facts.has_prompts else None,
        "keywords": facts.keywords or None,
        "license": facts.license,
        "compatibility": _compatibility(facts, kind),
        "user_config": {name.lower(): _asked(name) for name in secrets} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _started(facts: Facts, kind: Kind, entry: str) -> JsonObject:
    spec = f"${{__dirname}}/{entry}" + ("" if facts.server is None else f":{facts.server}")
    words = ["-m", "ekiden.cli", "run", spec, "--stdio"]
    if kind == "python":
        return {"command": "python3", "args": words, "platform_overrides": {"win32": {"command": "python"}}}
    return {"command": "uv", "args": ["run", "--directory", "${__dirname}", "python", *words]}


def _variables(kind: Kind, env: Mapping[str, str], secrets: list[str]) -> dict[str, str]:
    packed = {"PYTHONPATH": "${__dirname}/server/lib"} if kind == "python" else {}
    return {**packed, **env, **{name: f"${{user_config.{name.lower()}}}" for name in secrets}}


def _asked(name: str) -> JsonObject:
    said = f"The value of {name}"
    return {"type": "string", "title": name, "description": said, "sensitive": True, "required": True}


def _compatibility(facts: Facts, kind: Kind) -> JsonObject:
    if kind == "uv":
        return {"platforms": ["darwin", "linux", "win32"], "runtimes": {"python": facts.requires_python}}
    major, minor = sys.version_info[:2]
    return {"platforms": [sys.platform], "runtimes": {"python": f">={major}.{minor},<{major}.{minor + 1}"}}
