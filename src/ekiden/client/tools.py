"""What a client has learned of a server's tools: mirrored arguments, output schemas, task support."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ekiden.errors import InvalidResult
from ekiden.signals import UnusableSchema
from ekiden.transports.client.complaints import Complaints
from ekiden.wire.headers import MirroredParam, find_mirrored_params, mirrored_headers
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.schemas.validator import json_validator

__all__ = ["KnownTools"]

_log = logging.getLogger(__name__)

_MOST_TOOLS: Final = 10_000


class KnownTools:
    """The tools that were listed last."""

    def __init__(self, *, mirrors: bool) -> None:
        self._mirrors = mirrors
        """Whether the transport has headers. If so, a tool with invalid annotations cannot be used."""
        self._mirrored: dict[str, tuple[MirroredParam, ...]] = {}
        self._schemas: JsonObject = {}
        self._validators: dict[str, Callable[[Any], str | None]] = {}
        self._support: dict[str, str | None] = {}
        self._complain = Complaints(_log)

    def learn(self, tools: list[Any]) -> list[JsonObject]:
        """The tools that can be used, of a whole list; each other one is left out with a warning.

        What was learned before is forgotten: a server may list tools of other names each time.
        """
        for learned in (self._mirrored, self._schemas, self._validators, self._support):
            learned.clear()
        return [tool for tool in tools if is_object(tool) and self._is_usable(tool)]

    def _is_usable(self, tool: JsonObject) -> bool:
        name, schema = str(tool.get("name")), tool.get("inputSchema")
        if self._mirrors:
            try:
                mirrored = find_mirrored_params(schema if is_object(schema) else {})
            except (ValueError, RecursionError) as error:
                self._complain("The server's tool '%s' is left out: %s", name, error)
                return False
            if len(self._mirrored) < _MOST_TOOLS:
                self._mirrored[name] = mirrored
        execution = tool.get("execution")
        if len(self._support) < _MOST_TOOLS:
            support = execution.get("taskSupport") if is_object(execution) else None
            self._support[name] = support if support in ("required", "optional") else None
        if "outputSchema" in tool and len(self._schemas) < _MOST_TOOLS:
            self._schemas[name] = tool["outputSchema"]
        return True

    def knows(self, name: str) -> bool:
        """Whether a tool was listed."""
        return name in self._support

    def task_support(self, name: str) -> str | None:
        """The tool's `taskSupport` (2025-11-25): "required", "optional" or None."""
        return self._support.get(name)

    def headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers that mirror a call's arguments; none if the tool was not listed."""
        return mirrored_headers(self._mirrored.get(name, ()), arguments)

    def check(self, name: str, result: Mapping[str, Any]) -> None:
        """Refuse a result that breaks the tool's own output schema."""
        if name not in self._schemas or result.get("isError"):
            return
        if "structuredContent" not in result:
            raise InvalidResult(f"Tool {name!r} has an output schema but gave no structuredContent")
        if name not in self._validators:
            self._validators[name] = self._validator(name, self._schemas[name])
        if problems := self._validators[name](result["structuredContent"]):
            raise InvalidResult(f"Tool {name!r} broke its output schema: {problems}")

    def _validator(self, name: str, schema: Any) -> Callable[[Any], str | None]:
        try:
            return json_validator(schema, trusted=False)
        except UnusableSchema as error:
            self._complain("The output schema of tool '%s' cannot be used: %s", name, error)
            return lambda _: None
