"""Completions: suggestions for the arguments of prompts and resource templates (server/utilities)."""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from ekiden.errors import InvalidParams, RegistrationError
from ekiden.server.handlers import Handler
from ekiden.server.questions import content
from ekiden.server.registration.signatures import read_signature
from ekiden.wire.json import JsonObject, is_object

__all__ = ["Completions", "Reference", "read_reference"]

_MOST: Final = 100
"""The spec's maximum of values in one response."""

Reference: TypeAlias = tuple[Literal["ref/prompt", "ref/resource"], str]


class Completer:
    """A function `(value, arguments=..., ctx=...)` that suggests values for one argument."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        signature = read_signature(function, what=what)
        names = signature.parameters.names
        if "value" not in names or not set(names) <= {"value", "arguments"}:
            raise RegistrationError(f"{what}: its parameters must be `value` and, if needed, `arguments`")
        self.handler = Handler(function, signature.context)
        self._wants_arguments = "arguments" in names

    def bind(self, value: str, arguments: dict[str, str]) -> dict[str, Any]:
        """The keyword arguments to call it with."""
        return {"value": value, "arguments": arguments} if self._wants_arguments else {"value": value}


class CarriedCompleter:
    """The completer of another server, for one argument of one prompt or template.

    `call(params=...)` gets the parameters of the request, and returns a `CompleteResult` as the wire has it.
    """

    def __init__(self, call: Callable[..., Any], reference: Reference, argument: str) -> None:
        self.handler = Handler(call, "ctx")
        kind, target = reference
        self._ref = {"type": kind, "name" if kind == "ref/prompt" else "uri": target}
        self._argument = argument

    def bind(self, value: str, arguments: dict[str, str]) -> dict[str, Any]:
        """The keyword arguments to call it with."""
        params: JsonObject = {"ref": self._ref, "argument": {"name": self._argument, "value": value}}
        return {"params": {**params, "context": {"arguments": arguments}}}


class Completions:
    """The completers by what they complete."""

    def __init__(self) -> None:
        self._completers: dict[tuple[Reference, str], Completer] = {}
        self.carried: Callable[..., Any] | None = None
        """The function of another server that completes whatever has no completer here."""
        self.elsewhere: list[Callable[[], bool]] = []
        """Whether servers that are mounted have completions."""

    def __bool__(self) -> bool:
        has_own = bool(self._completers) or self.carried is not None
        return has_own or any(has_some() for has_some in self.elsewhere)

    def add(self, reference: Reference, argument: str, function: Callable[..., Any]) -> None:
        """Register a completer."""
        what = f"completion of {argument!r} in {reference[1]!r}"
        if (reference, argument) in self._completers:
            raise RegistrationError(f"{what} is registered already")
        self._completers[reference, argument] = Completer(function, what)

    def get(self, reference: Reference, argument: str) -> Completer | CarriedCompleter | None:
        """The completer for an argument, if there is one."""
        completer = self._completers.get((reference, argument))
        if completer is None and self.carried is not None:
            return CarriedCompleter(self.carried, reference, argument)
        return completer


def read_reference(params: JsonObject) -> tuple[Reference, str, str, dict[str, str]]:
    """What is to be completed: the reference, the argument, its value so far, the other arguments."""
    ref, argument = params.get("ref"), params.get("argument")
    if not is_object(ref) or not is_object(argument):
        raise InvalidParams("Invalid params: `ref` and `argument` are required and must be objects")
    kind = ref.get("type")
    if kind not in ("ref/prompt", "ref/resource"):
        raise InvalidParams("Invalid params: `ref.type` must be 'ref/prompt' or 'ref/resource'")
    target = ref.get("name" if kind == "ref/prompt" else "uri")
    name, value = argument.get("name"), argument.get("value")
    if not (isinstance(target, str) and isinstance(name, str) and isinstance(value, str)):
        raise InvalidParams(
            "Invalid params: the reference, `argument.name` and `argument.value` must be strings"
        )
    return (kind, target), name, value, _other_arguments(params.get("context"))


def _other_arguments(context: object) -> dict[str, str]:
    arguments = context.get("arguments") if is_object(context) else None
    if arguments is None:
        return {}
    if not is_object(arguments) or not all(isinstance(item, str) for item in arguments.values()):
        raise InvalidParams("Invalid params: `context.arguments` must be an object of strings")
    return arguments


def completion_result(value: Any) -> JsonObject:
    """What a completer returned, as a `CompleteResult` of at most 100 values."""
    if isinstance(value, BaseModel) or is_object(value):
        dumped = content.dump(value) if isinstance(value, BaseModel) else value
        result = dumped if "completion" in dumped else {"completion": dumped}
        if len(result["completion"]["values"]) > _MOST:
            result["completion"].update(values=result["completion"]["values"][:_MOST], hasMore=True)
        return result
    values = [str(item) for item in value or ()]
    return {"completion": {"values": values[:_MOST], "total": len(values), "hasMore": len(values) > _MOST}}
