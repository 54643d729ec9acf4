"""The hosts, their files, and how each of them spells an entry.

| host | file of the user | file of a project | where in it |
|---|---|---|---|
| claude | claude_desktop_config.json | | mcpServers |
| claude-code | ~/.claude.json | .mcp.json | mcpServers |
| cursor | ~/.cursor/mcp.json | .cursor/mcp.json | mcpServers |
| vscode | mcp.json of the user's profile | .vscode/mcp.json | servers, inputs |
| gemini | ~/.gemini/settings.json | .gemini/settings.json | mcpServers |
| goose | goose/config.yaml | | extensions |
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ekiden.cli.installing.launching import Launch, Remote
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

__all__ = ["HOSTS", "Host", "Places"]

_GOOSE_SECONDS: Final = 300
"""How long goose waits for a tool: its own default, which it wants to be written down."""
_GOOSE_KEEPS: Final = re.compile(
    r"PATH|PATHEXT|PYTHONPATH|PYTHONHOME|TEMP|TMP|CLASSPATH|(?:LD|DYLD)_\w+", re.IGNORECASE
)
"""Variables that goose does not let an entry set."""


class Places(msgspec.Struct, frozen=True):
    """Where files lie on a machine."""

    home: Path
    project: Path
    platform: str
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> "Places":
        """Those of this machine."""
        return cls(Path.home(), Path.cwd(), sys.platform, os.environ)

    def settings(self) -> Path:
        """The folder for the settings of programs with windows."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config()

    def config(self) -> Path:
        """The folder for the settings of programs without windows."""
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts servers, and how it is told of one."""

    title: str
    user: Callable[[Places], Path]
    project: Callable[[Places], Path] | None
    """None if the host has no file for a project."""
    section: str
    """The object that has the servers by their names."""
    entry: Callable[[str, Launch | Remote], JsonObject]
    """What is written for a server."""
    launching: frozenset[str]
    """The keys of an entry that say how a server is started. All others are the user's."""
    folder: str | None = None
    """The variable for the folder of a project, so that its file can be shared."""
    underscores: bool = True
    """Whether a server's name may have them. Gemini CLI cuts it at the first: its rules for tools fail."""
    asks: bool = False
    """Whether the host asks the user for the values of `inputs`."""
    after: str = "Restart the host to see the server."

    @property
    def is_yaml(self) -> bool:
        """Whether its file is YAML rather than JSON."""
        return self.section == "extensions"

    def file(self, places: Places, *, of_project: bool) -> Path:
        """The file of the user, or that of the project."""
        if not of_project:
            return self.user(places)
        if self.project is None:
            raise UsageError(f"{self.title} has no file for a project: leave --project out")
        return self.project(places)


def _variables(launch: Launch, looked_up: str | None) -> dict[str, str]:
    if launch.secrets and looked_up is None:
        raise UsageError(
            f"this host cannot look up secrets: with --env {launch.secrets[0]}=VALUE it stands in its file"
        )
    return {**launch.env, **{name: (looked_up or "").replace("NAME", name) for name in launch.secrets}}


def _of_json(
    *, looked_up: str | None, typed: bool = True, url: str | None = "url"
) -> Callable[[str, Launch | Remote], JsonObject]:
    """The entry that most hosts share.

    `looked_up` is how a variable `NAME` is written that has its value elsewhere, `url` is the key of an
    address; None if the host has no such thing. `typed`: whether an entry says of what type it is.
    """

    def entry(_name: str, how: Launch | Remote) -> JsonObject:
        if isinstance(how, Launch):
            env = _variables(how, looked_up)
            kind = {"type": "stdio"} if typed else {}
            return {**kind, "command": how.command, "args": how.args, **({"env": env} if env else {})}
        if url is None:
            raise UsageError(
                "Claude Desktop starts commands only: add the address in its settings, under Connectors, "
                "or install a file of mcpServers that names it"
            )
        kind = {"type": "http"} if typed else {}
        return {**kind, url: how.url, **({"headers": dict(how.headers)} if how.headers else {})}

    return entry


def _of_goose(name: str, how: Launch | Remote) -> JsonObject:
    common: JsonObject = {"enabled": True, "name": name, "description": f"{name}, an MCP server"}
    rest: JsonObject = {"timeout": _GOOSE_SECONDS, "bundled": None, "available_tools": []}
    if isinstance(how, Remote):
        headers = dict(how.headers)
        return {
            **common,
            "type": "streamable_http",
            "uri": how.url,
            "envs": {},
            "env_keys": [],
            "headers": headers,
            **rest,
        }
    if kept := [variable for variable in how.env if _GOOSE_KEEPS.fullmatch(variable)]:
        raise UsageError(f"goose does not let a server have {kept[0]}: set it in the server")
    started = {"cmd": how.command, "args": how.args, "envs": dict(how.env), "env_keys": how.secrets}
    return {**common, "type": "stdio", **started, **rest}


def _claude_code(places: Places) -> Path:
    return Path(places.environment.get("CLAUDE_CONFIG_DIR") or places.home) / ".claude.json"


def _goose(places: Places) -> Path:
    folder = Path("Block", "goose", "config") if places.platform == "win32" else Path("goose")
    return places.config() / folder / "config.yaml"


_STDIO: Final = frozenset({"type", "command", "args", "env", "url", "headers"})

HOSTS: Final[dict[str, Host]] = {
    "claude": Host(
        title="Claude Desktop",
        user=lambda places: places.settings() / "Claude" / "claude_desktop_config.json",
        project=None,
        section="mcpServers",
        entry=_of_json(looked_up=None, typed=False, url=None),
        launching=_STDIO,
    ),
    "claude-code": Host(
        title="Claude Code",
        user=_claude_code,
        project=lambda places: places.project / ".mcp.json",
        section="mcpServers",
        entry=_of_json(looked_up="${NAME}"),
        launching=_STDIO,
        after="Start a new session to see the server.",
    ),
    "cursor": Host(
        title="Cursor",
        user=lambda places: places.home / ".cursor" / "mcp.json",
        project=lambda places: places.project / ".cursor" / "mcp.json",
        section="mcpServers",
        entry=_of_json(looked_up="${env:NAME}", typed=False),
        launching=_STDIO,
        folder="${workspaceFolder}",
    ),
    "vscode": Host(
        title="VS Code",
        user=lambda places: places.settings() / "Code" / "User" / "mcp.json",
        project=lambda places: places.project / ".vscode" / "mcp.json",
        section="servers",
        entry=_of_json(looked_up="${input:NAME}"),
        launching=_STDIO,
        folder="${workspaceFolder}",
        asks=True,
        after="Start the server with `MCP: List Servers`.",
    ),
    "gemini": Host(
        title="Gemini CLI",
        user=lambda places: places.home / ".gemini" / "settings.json",
        project=lambda places: places.project / ".gemini" / "settings.json",
        section="mcpServers",
        entry=_of_json(looked_up="${NAME}", typed=False, url="httpUrl"),
        launching=frozenset({*_STDIO, "httpUrl"}),
        underscores=False,
    ),
    "goose": Host(
        title="goose",
        user=_goose,
        project=None,
        section="extensions",
        entry=_of_goose,
        launching=frozenset({"type", "cmd", "args", "envs", "env_keys", "uri", "headers", "socket"}),
        after="Start a new session to see the server.",
    ),
}
"""By the names that commands use."""
