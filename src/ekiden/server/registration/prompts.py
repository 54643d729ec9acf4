"""Prompts: their definition, and their result. Arguments arrive as strings and become what the hints say."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from ekiden.server.handlers import Handler
from ekiden.server.middleware import Run
from ekiden.server.questions import content
from ekiden.server.registration.signatures import read_signature
from ekiden.server.registration.tools import described
from ekiden.wire.json import JsonObject

__all__ = ["Prompt"]


class Prompt:
    """A prompt as it is listed and got."""

    elsewhere: Run | None = None
    """Answers requests in place of the handler, for a prompt of a server that is mounted."""
    completes: Run | None = None
    """Answers `completion/complete` in place of registered completions."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        rounds: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> None:
        self.key = name or str(getattr(function, "__name__", ""))
        signature = read_signature(function, what=f"prompt {self.key!r}")
        self.handler = Handler(function, signature.context, **(rounds or {}))
        self.scopes = self.handler.scopes
        self.parameters = signature.parameters
        self.argument_names = frozenset(self.parameters.names)
        self._description = description or signature.summary
        self.definition = described(
            {"name": self.key},
            description=self._description or self.key,
            arguments=self._arguments() or None,
            **about,
        )

    def _arguments(self) -> list[JsonObject]:
        properties = self.parameters.schema["properties"]
        return [
            described(
                {"name": name},
                description=properties[name].get("description"),
                title=properties[name].get("title"),
                required=name in self.parameters.required,
            )
            for name in self.parameters.names
        ]

    def result(self, value: object) -> JsonObject:
        """The handler's return value as a `GetPromptResult`."""
        if isinstance(value, BaseModel) and type(value).__name__ == "GetPromptResult":
            return content.dump(value)
        result: JsonObject = {"messages": content.prompt_messages(value)}
        if self._description is not None:
            result["description"] = self._description
        return result
