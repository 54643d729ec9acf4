"""Steps: an author's function with its arguments, and how its value is remembered.

The value passes through its codec on the first run too, so that the first run and every replay see
the same. What the codec is follows from the function's return annotation; without one, only
plain JSON values can be remembered, and anything else is refused by name.
"""

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ekiden.errors import StepFailed, ToolError, UsageError
from ekiden.rounds.journal import Entry, fingerprint
from ekiden.rounds.retry import Retry
from ekiden.server.content import to_json
from ekiden.server.handlers import Handler
from ekiden.server.schemas import type_adapter
from ekiden.wire.json import MAX_DEPTH, UNSPEAKABLE, canonical, encode, is_array, is_object

__all__ = ["FunctionStep"]


class FunctionStep:
    """Implements `ekiden.rounds.leg.Step`."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        raises: Sequence[type[Exception]] = (),
        retry: Retry | None = None,
    ) -> None:
        self.name = _name(function)
        self._function = function
        self._arguments = arguments
        self._raises = (*raises, ToolError)
        self.retry = retry
        self.digest = _digest(self.name, _all_arguments(function, arguments))
        self.about = self.name
        self.running: asyncio.Future[Any] | None = None

    async def perform(self) -> Entry:
        """Run the function; what it raises is remembered as well as what it returns."""
        entry, again = await self.attempt()
        failures = 1
        while again and self.retry is not None and failures < self.retry.attempts:
            await asyncio.sleep(self.retry.delay(failures))
            entry, again = await self.attempt()
            failures += 1
        return entry

    async def attempt(self) -> tuple[Entry, bool]:
        """Run the function once."""
        try:
            value = await Handler(self._function).call(*self._arguments)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            again = self.retry is not None and isinstance(error, self.retry.on)
            return self.failure(error), again
        return Entry("step", self.digest, _codec(self._function).spell(value, self.name)), False

    def failure(self, error: BaseException) -> Entry:
        """The entry of a step that raised."""
        return Entry("failure", self.digest, self._spell_error(error))

    def recall(self, entry: Entry) -> Any:
        """The value as every run sees it, or the exception."""
        if entry.kind == "failure":
            raise self._rebuild(*entry.value)
        return _codec(self._function).read(entry.value, self.name)

    def _spell_error(self, error: BaseException) -> list[Any]:
        kind = type(error)
        arguments: Any = None
        if kind in self._raises:
            try:
                arguments = _keepable([to_json(argument) for argument in error.args])
            except _UNKEEPABLE:
                raise UsageError(
                    f"step {self.name}: the arguments of {kind.__name__} cannot be remembered"
                ) from error
        return [kind.__qualname__, str(error).encode(errors="replace").decode(), arguments]

    def _rebuild(self, kind: str, message: str, arguments: list[Any] | None) -> Exception:
        for allowed in self._raises:
            if allowed.__qualname__ == kind and arguments is not None:
                rebuilt: Exception = allowed(*arguments)
                return rebuilt
        return StepFailed(kind, message)


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


_UNKEEPABLE: Final = (*UNSPEAKABLE, PydanticSerializationError, UnicodeError)


def _all_arguments(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What identifies the work: all arguments, also those that a partial holds; contexts are no work."""
    given: list[Any] = [argument for argument in arguments if not _is_context(argument)]
    while isinstance(function, functools.partial):
        bound: list[Any] = [value for value in function.args if not _is_context(value)]
        keywords: dict[str, Any] = function.keywords
        held = {name: value for name, value in keywords.items() if not _is_context(value)}
        given = [*bound, *given, held] if held else [*bound, *given]
        function = function.func
    return given


def _is_context(value: Any) -> bool:
    return getattr(value.__class__, "step_key", None) is not None


def _digest(name: str, arguments: list[Any]) -> str:
    try:
        return fingerprint(canonical(arguments))
    except UNSPEAKABLE:
        pass  # Not plain JSON: models, dates and such are spelled first.
    try:
        return fingerprint(canonical(to_json(arguments)))
    except _UNKEEPABLE as error:
        raise UsageError(
            f"step {name}: an argument cannot be serialised ({error}); pass what identifies the work, "
            "and reach for clients and connections from inside the function"
        ) from None


def _keepable(value: Any) -> Any:
    """The value, if a journal can keep it."""
    msgspec.msgpack.encode(value)
    encode(value)
    return value


class _Codec:
    """How the values of one function are remembered."""

    def __init__(self, hint: Any, what: str) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if hint is not Any:
            self._adapter = type_adapter(hint, what)

    def spell(self, value: Any, name: str) -> Any:
        if self._adapter is None and not _is_plain(value):
            raise UsageError(
                f"step {name} returned {type(value).__qualname__}, which only a return annotation can "
                "tell how to remember; annotate the function"
            )
        try:
            if self._adapter is not None:
                value = self._adapter.dump_python(value, mode="json", warnings="error")
            return _keepable(value)
        except _UNKEEPABLE as error:
            raise UsageError(f"step {name} returned what cannot be kept: {error}") from None

    def read(self, value: Any, name: str) -> Any:
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_json(encode(value))
        except ValidationError as error:
            raise UsageError(
                f"step {name}: the remembered value does not fit its annotation: {error}"
            ) from None


_codecs: dict[Any, tuple[_Codec, Any]] = {}
"""By code and annotation: a function that a handler defines anew in every call is still the same code."""
_MOST_CODECS: Final = 4096


def _codec(function: Callable[..., Any]) -> _Codec:
    while isinstance(function, functools.partial):
        function = function.func
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    kind = (
        getattr(function, "__code__", function),
        str(annotations.get("return")),
        id(annotations.get("return")),
    )
    if (known := _codecs.get(kind)) is not None:
        return known[0]
    # The annotation is kept with the codec: as long as it lives, its id is its own.
    codec = _new_codec(function)
    _codecs[kind] = (codec, annotations.get("return"))
    while len(_codecs) > _MOST_CODECS:
        del _codecs[next(iter(_codecs))]
    return codec


def _new_codec(function: Callable[..., Any]) -> _Codec:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hint = typing.get_type_hints(target, include_extras=True).get("return", Any)
    except Exception as error:
        raise UsageError(f"step {_name(function)}: its type hints cannot be resolved: {error}") from error
    return _Codec(hint, f"step {_name(function)}")


def _is_plain(value: Any, depth: int = 0) -> bool:
    if depth > MAX_DEPTH:
        return True  # Too deep to be kept, which is said elsewhere.
    if value is None or type(value) in (str, int, float, bool):
        return True
    if is_object(value):
        return all(type(key) is str and _is_plain(item, depth + 1) for key, item in value.items())
    return is_array(value) and all(_is_plain(item, depth + 1) for item in value)
