"""Tools: their definition, and their result."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError

from ekiden.errors import ProtocolError, RegistrationError
from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.handlers import Handler
from ekiden.server.middleware import Run
from ekiden.server.questions import content
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.options import check_choice
from ekiden.server.registration.results import refused, tool_failure
from ekiden.server.registration.signatures import read_signature
from ekiden.server.schemas import (
    ExplicitParameters,
    Parameters,
    explain,
    json_validator,
    lean_schema,
    type_adapter,
)
from ekiden.signals import OutputInvalid
from ekiden.tasks.work import Why
from ekiden.wire.headers import find_mirrored_params
from ekiden.wire.json import JsonObject

__all__ = ["CancelledTask", "CannotAskMode", "Tool", "described"]

CannotAskMode: TypeAlias = Literal["error", "result"]
"""How a call ends that asks what its client did not declare: error -32021, or a result with `isError`."""


_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class CancelledTask(msgspec.Struct, frozen=True):
    """What `on_cancel` gets: the task to clean up after, and what it had done."""

    task_id: str
    tool: str
    arguments: Mapping[str, Any]
    steps: Mapping[str, list[Any]]
    """The values of the steps that were done, by the name of their function, or by their `key=`."""
    why: Why = "cancelled"
    """Whether the task was cancelled, has expired, or was given up because it lost too many workers."""


class Tool:
    """A tool as it is listed and called. Implements `ekiden.server.registration.results.Ending`."""

    elsewhere: Run | None = None
    """Answers calls in place of the handler, for a tool of a server that is mounted."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        rounds: Mapping[str, Any] | None = None,
        on_cancel: Callable[..., Any] | None = None,
        cannot_ask: CannotAskMode = "error",
        **about: Any,
    ) -> None:
        self.key = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(self.key):
            raise RegistrationError(f"{self.key!r} is not a tool name: use 1 to 128 of A-Z a-z 0-9 _ . -")
        what = f"tool {self.key!r}"
        self.title = f"Tool {self.key!r}"
        """Names the tool in logs and errors."""
        signature = read_signature(function, what=what)
        self.handler = Handler(function, signature.context, title=self.title, **(rounds or {}))
        self.scopes = self.handler.scopes
        self.on_cancel = on_cancel
        """Cleans up after a task of this tool that was cancelled."""
        check_choice("cannot_ask", cannot_ask, get_args(CannotAskMode))
        self.tells_in_words = cannot_ask == "result"
        """Whether a question that the client cannot be asked ends in a result that its model can read."""
        self.parameters: Parameters = signature.parameters
        if input_schema is not None:
            names = signature.parameters.names
            self.parameters = ExplicitParameters(input_schema, names, what=what)
        self.bind = self.parameters.bind
        """Makes the handler's arguments out of those that a client sent, or raises `ArgumentsInvalid`."""
        try:
            self.mirrored = find_mirrored_params(self.parameters.schema)
        except ValueError as error:
            raise RegistrationError(f"{what}: {error}") from None
        self._structured = structured is not False
        self._output = _output(signature.returns, output_schema, structured, what)
        self.definition = described(
            {"name": self.key},
            description=description or signature.summary or self.key,
            input_schema=self.parameters.schema,
            output_schema=self._output.schema if self._output is not None else None,
            **about,
        )

    def task_support(self) -> str | None:
        """Its `taskSupport` of 2025-11-25; None if it cannot be called as a task."""
        if self.handler.task == "never":
            return None
        return "required" if self.handler.task == "required" else "optional"

    def complete(self, value: object) -> Outcome:
        """The outcome for the handler's return value."""
        if type(value) is str and self._output is None:
            return Complete({"content": [{"type": "text", "text": value}]})
        return Complete(self._result(value))

    def failed(self, error: BaseException) -> Outcome | InputRequired:
        """The outcome for what the handler raised: most exceptions become a result with `isError`."""
        try:
            return tool_failure(self.key, error)
        finally:
            del error  # It may know this frame.

    def refused(self, error: ProtocolError) -> Outcome:
        """The outcome of a call that ended with an error of the protocol."""
        return refused(error, in_words=self.tells_in_words)

    def _result(self, value: object) -> JsonObject:
        """The handler's return value as a `CallToolResult`."""
        if isinstance(value, BaseModel) and type(value).__name__ == "CallToolResult":
            return self._checked(content.dump(value))
        if self._output is not None:
            return _structured(self._output.to_json(value))
        blocks = content.content_blocks(value)
        if blocks is not None:
            return {"content": blocks}
        data = content.to_json(value)
        return _structured(data) if self._structured else {"content": [content.text_block(data)]}

    def _checked(self, result: JsonObject) -> JsonObject:
        if self._output is not None and not result.get("isError"):
            self._output.check(result.get("structuredContent"))
        return result


def described(definition: JsonObject, **about: Any) -> JsonObject:
    """Add the author's options to a definition: names become camelCase, models JSON; None is left out."""
    for name, value in about.items():
        if value is not None:
            head, *tail = name.split("_") if name != "meta" else ("_meta",)
            definition[head + "".join(part.capitalize() for part in tail)] = _plain(value)
    return definition


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return content.dump(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value


def _structured(data: object) -> JsonObject:
    return {"content": [content.text_block(data)], "structuredContent": data}


def _output(
    returns: object, explicit: Mapping[str, Any] | None, structured: bool | None, what: str
) -> "_HintedOutput | _ExplicitOutput | None":
    if explicit is not None:
        return _ExplicitOutput(explicit, what)
    if structured is False:
        return None
    returns = _final(returns)
    if returns is inspect.Signature.empty or content.is_content_hint(returns):
        if structured:
            raise RegistrationError(f"{what}: structured=True needs a return annotation that says the type")
        return None
    return _HintedOutput(returns, what)


def _final(hint: object) -> Any:
    """A return annotation without `InputRequired`, which ends a round and is not an output."""
    if hint is InputRequired:
        return None
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    kept = tuple(option for option in typing.get_args(hint) if option is not InputRequired)
    return typing.Union[kept]  # noqa: UP007  made at run time


class _HintedOutput:
    """Output described by the return annotation."""

    def __init__(self, hint: object, what: str) -> None:
        self._adapter: TypeAdapter[Any] = type_adapter(hint, what)
        self.schema = lean_schema(self._adapter, "serialization", what)

    def to_json(self, value: object) -> Any:
        try:
            checked = self._adapter.validate_python(value, from_attributes=True)
            return self._adapter.dump_python(checked, mode="json", by_alias=True)
        except ValidationError as error:
            raise OutputInvalid(explain(error)) from None  # It is logged: without the value.

    def check(self, data: object) -> None:
        self.to_json(data)


class _ExplicitOutput:
    """Output described by a JSON Schema of the author's own."""

    def __init__(self, schema: Mapping[str, object], what: str) -> None:
        self.schema = dict(schema)
        self._problems = json_validator(self.schema, what, quotes=False)

    def to_json(self, value: object) -> Any:
        data = content.to_json(value)
        self.check(data)
        return data

    def check(self, data: object) -> None:
        if problems := self._problems(data):
            raise OutputInvalid(problems)
