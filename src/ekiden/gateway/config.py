"""The `mcpServers` file of MCP hosts: which servers there are, how to start them or where to find them.

`command`, `args`, `env` and `cwd` are for servers that are started, `url` and `headers` for those that run
already; `type` says which it is. `${VAR}` and `${VAR:-default}` stand for variables of the environment, in
all texts. Beyond what hosts have in common: `disabled` leaves a server out, `timeout` limits the seconds of
its calls, `sessions` how many principals may have a session with it at once, `forwardHeaders` names headers
of clients that are sent on.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ekiden.errors import UsageError
from ekiden.gateway.upstream import Upstream
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["read_config"]

_OF_STDIO: Final = ("command", "args", "env", "cwd")
_OF_HTTP: Final = ("url", "headers", "forwardHeaders")
_OF_BOTH: Final = ("type", "disabled", "timeout", "sessions")
_KINDS: Final = {
    "stdio": _OF_STDIO,
    "http": _OF_HTTP,
    "streamable-http": _OF_HTTP,
    "streamableHttp": _OF_HTTP,
    "sse": _OF_HTTP,
}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_DOWNLOAD_SECONDS: Final = 300.0
"""How long a command may take to answer: the first run of `npx` or `uvx` downloads the server."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""A file of servers is written by hand; a larger one is something else."""


def read_config(path: str | Path, environment: Mapping[str, str] | None = None) -> list[Upstream]:
    """The upstream servers that a file names. Every mistake is a `UsageError` that says what to do."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{file} has more than {_MOST_BYTES} bytes: it is not a file of servers")
    reader = _Reader(file, os.environ if environment is None else environment)
    return reader.upstreams(_parsed(file, data))


def _parsed(file: Path, data: bytes) -> JsonObject:
    def unique(pairs: list[tuple[str, Any]]) -> JsonObject:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{file}: {twice[0]!r} stands twice in one object: rename or remove one of them")
        return dict(pairs)

    try:
        # Whoever has to correct it needs the line, which the decoder of messages does not tell.
        config: Any = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from None
    servers = config.get("mcpServers") if is_object(config) else None
    if not is_object(servers):
        raise UsageError(f'{file} must be an object with "mcpServers": an object of servers by name')
    if unknown := sorted(set(config) - {"mcpServers", "$schema"}):
        raise UsageError(f'{file}: {unknown[0]!r} is not known here: only "mcpServers" is')
    return servers


class _Reader:
    """Reads the servers of one file."""

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment

    def upstreams(self, servers: JsonObject) -> list[Upstream]:
        found: list[Upstream] = []
        spelled: dict[str, str] = {}
        for name, server in servers.items():
            if _NAME.fullmatch(name) is None:
                raise self._wrong(name, "cannot be a prefix: use a letter, then up to 31 of A-Z a-z 0-9 _ -")
            other = spelled.setdefault(name.replace("_", "-").lower(), name)
            if other != name:
                raise self._wrong(name, f"has the same URIs as {other!r}: give it another name")
            if not is_object(server):
                raise self._wrong(name, 'must be an object, as in {"command": "uvx", "args": ["server"]}')
            if server.get("disabled") is not True:
                found.append(self._upstream(name, server))
        if not found:
            raise UsageError(f'{self._file} names no server: add one to "mcpServers"')
        return found

    def _upstream(self, name: str, server: JsonObject) -> Upstream:
        known = self._known(name, server)
        fields = {key: self._expanded(f"{name}: {key}", server[key]) for key in server}
        common: dict[str, Any] = {"name": name}
        if "timeout" in fields:
            common["timeout"] = self._seconds(name, fields["timeout"])
        if "sessions" in fields:
            common["sessions"] = self._count(name, fields["sessions"])
        if "disabled" in fields and type(fields["disabled"]) is not bool:
            raise self._wrong(name, "`disabled` must be true or false")
        try:
            if known is _OF_STDIO:
                return self._of_stdio(fields, common)
            return self._of_http(fields, common)
        except UsageError as error:
            text = str(error)
            raise error if text.startswith(str(self._file)) else UsageError(f"{self._file}: {text}") from None

    def _known(self, name: str, server: JsonObject) -> tuple[str, ...]:
        """The keys that this kind of server may have; refuses a server with others."""
        has = [key for key in ("command", "url") if key in server]
        if len(has) != 1:
            raise self._wrong(name, "must have either a `command` or a `url`")
        known = _OF_STDIO if has == ["command"] else _OF_HTTP
        for key in server:
            if key not in (*known, *_OF_BOTH):
                raise self._wrong(
                    name, f"{key!r} is not known for a `{has[0]}`: known are {', '.join((*known, *_OF_BOTH))}"
                )
        kind = server.get("type")
        if kind is not None and (not isinstance(kind, str) or _KINDS.get(kind) is not known):
            fitting = [each for each, keys in _KINDS.items() if keys is known]
            raise self._wrong(name, f"the `type` of a `{has[0]}` must be one of {', '.join(fitting)}")
        return known

    def _of_stdio(self, fields: JsonObject, common: dict[str, Any]) -> Upstream:
        name = common["name"]
        command = self._text(name, "command", fields["command"])
        args: Any = fields.get("args", [])
        if not is_array(args) or not all(isinstance(word, str) for word in args):
            raise self._wrong(name, "`args` must be a list of texts")
        cwd = fields.get("cwd")
        return Upstream(
            **common,
            target=[command, *args],
            env=self._texts(name, "env", fields.get("env", {})),
            cwd=None if cwd is None else self._text(name, "cwd", cwd),
            start_timeout=_DOWNLOAD_SECONDS,
        )

    def _of_http(self, fields: JsonObject, common: dict[str, Any]) -> Upstream:
        name = common["name"]
        url = self._text(name, "url", fields["url"])
        if not url.startswith(("http://", "https://")):
            raise self._wrong(name, "`url` must begin with http:// or https://")
        forwarded: Any = fields.get("forwardHeaders", [])
        if not is_array(forwarded) or not all(isinstance(word, str) for word in forwarded):
            raise self._wrong(name, "`forwardHeaders` must be a list of names of headers")
        headers = self._texts(name, "headers", fields.get("headers", {}))
        return Upstream(**common, target=url, headers=headers, forward_headers=tuple(forwarded))

    def _text(self, name: str, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self._wrong(name, f"`{key}` must be a text that is not empty")
        return value

    def _texts(self, name: str, key: str, value: Any) -> dict[str, str]:
        if not is_object(value) or not all(isinstance(text, str) for text in value.values()):
            raise self._wrong(name, f"`{key}` must be an object of texts")
        return value

    def _seconds(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "`timeout` must be a number of seconds")
        return float(value)

    def _count(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "`sessions` must be a whole number")
        return value

    def _expanded(self, where: str, value: Any) -> Any:
        """A value with `${VAR}` replaced."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._variable(where, match), value)
        if is_array(value):
            return [self._expanded(where, item) for item in value]
        if is_object(value):
            return {key: self._expanded(where, item) for key, item in value.items()}
        return value

    def _variable(self, where: str, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = self._environment.get(name)
        if value is None and default is None:
            raise UsageError(
                f"{self._file}: {where}: there is no variable {name} in the environment: set it, or write "
                f"${{{name}:-default}}"
            )
        return (default or "") if value is None else value

    def _wrong(self, name: str, problem: str) -> UsageError:
        return UsageError(f"{self._file}: {name!r}: {problem}")
