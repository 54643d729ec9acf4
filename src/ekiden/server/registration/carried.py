"""Tools, prompts and resources that another server has defined: they are listed as they are, and check their
own arguments.

Their handlers are called with the arguments as they came, and return results as the wire has them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ekiden.errors import RegistrationError
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.handlers import Handler, ResumeMode
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.prompts import Prompt
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.tools import Tool
from ekiden.wire.headers import find_mirrored_params
from ekiden.wire.json import JsonObject

__all__ = ["CarriedPrompt", "CarriedResource", "CarriedTool", "Matcher"]

_CONTEXT: Final = "ctx"
"""The parameter of a carried handler that gets the context."""


class Matcher(Protocol):
    """The URI template of a carried resource."""

    def match(self, uri: str) -> dict[str, Any] | None:
        """The values of its variables if a URI fits it, else None."""
        ...


def _bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a carried handler."""
    return {"arguments": arguments}


class _Unchecked:
    """Parameters that the handler checks itself."""

    def bind_text(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Hand the arguments on as they came."""
        return _bind(arguments)


_UNCHECKED: Final[Any] = _Unchecked()


def _as_it_is(value: object) -> JsonObject:
    """The result of a carried handler, which is one already."""
    if isinstance(value, InputRequired):
        raise value
    return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  carried handlers return nothing else


def _handler(call: Callable[..., Any], resume: ResumeMode, title: str, *, context: bool = True) -> Handler:
    return Handler(call, _CONTEXT if context else None, resume=resume, title=title)


class CarriedTool(Tool):
    """A tool of another server. `call(arguments=..., ctx=...)` returns a `CallToolResult` as the wire has it.

    Without `context`, it is called with the arguments alone, which is faster.
    """

    def __init__(
        self,
        definition: JsonObject,
        call: Callable[..., Any],
        *,
        context: bool = True,
        resume: ResumeMode = "replay",
    ) -> None:
        self.key = definition["name"]
        self.title = f"Tool {self.key!r}"
        self.handler = _handler(call, resume, self.title, context=context)
        self.scopes = self.handler.scopes
        self.on_cancel = None
        self.tells_in_words = False
        self.bind = _bind
        try:
            self.mirrored = find_mirrored_params(definition["inputSchema"])
        except ValueError as error:
            raise RegistrationError(f"tool {self.key!r}: {error}") from None
        self.definition = definition

    def complete(self, value: object) -> Outcome:
        """The outcome for what the handler returned."""
        return Complete(_as_it_is(value))


class CarriedPrompt(Prompt):
    """A prompt of another server. `call(arguments=..., ctx=...)` returns a `GetPromptResult` as the wire has
    it.
    """

    def __init__(
        self, definition: JsonObject, call: Callable[..., Any], *, resume: ResumeMode = "replay"
    ) -> None:
        self.key = definition["name"]
        self.handler = _handler(call, resume, f"Prompt {self.key!r}")
        self.scopes = self.handler.scopes
        self.parameters = _UNCHECKED
        self.argument_names = frozenset(each["name"] for each in definition.get("arguments", ()))
        self.definition = definition

    def result(self, value: object) -> JsonObject:
        """The handler's result."""
        return _as_it_is(value)


class CarriedResource(Resource):
    """A resource of another server, or with a `template` a family of them.

    `call(arguments=..., ctx=...)` gets the values of the template's variables, and returns a
    `ReadResourceResult` as the wire has it.
    """

    def __init__(
        self,
        definition: JsonObject,
        call: Callable[..., Any],
        *,
        template: Matcher | None = None,
        resume: ResumeMode = "replay",
    ) -> None:
        self.key = definition["uri" if template is None else "uriTemplate"]
        self.handler = _handler(call, resume, f"Resource {self.key!r}")
        self.scopes = self.handler.scopes
        self.parameters = _UNCHECKED
        self.template: Any = template
        self.definition = definition

    def result(self, value: object, uri: str) -> JsonObject:
        """The handler's result."""
        return _as_it_is(value)
