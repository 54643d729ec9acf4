"""The identity of a step: its function, by module and qualified name, and all that the function is given.

Two steps are the same if and only if these are equal, in any process. A step without such an identity is
refused before it runs, with a `UsageError` that says how to write it.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import filterfalse
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final, TypeGuard

from ekiden.errors import UsageError
from ekiden.rounds.journal import fingerprint, framed
from ekiden.server.steps.plain import is_context, plain_spelling
from ekiden.server.steps.scope import Scope
from ekiden.server.steps.spelling import (
    ATOMS,
    Speller,
    type_name,
)
from ekiden.signals import Unidentified

__all__ = ["digest_of", "digest_of_value", "is_partial", "line_of", "name_of", "taken_apart", "unwrapped"]

_LAMBDA: Final = "<lambda>"
_METHODS: Final = (MethodType, BuiltinFunctionType, MethodWrapperType)


def is_partial(value: object) -> TypeGuard["functools.partial[Any]"]:
    """Whether a value is a `functools.partial`."""
    return isinstance(value, functools.partial)


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside of partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def taken_apart(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[Any]]:
    """The function inside of partials, and all its arguments except contexts."""
    given = list(filterfalse(is_context, arguments))
    if type(function) is FunctionType:
        return function, given
    while is_partial(function):
        given = [*_bound_by(function), *given]
        function = function.func
    return function, given


def name_of(function: Callable[..., Any]) -> str:
    """A function's name as its author would say it."""
    if type(function) is not FunctionType:
        function = unwrapped(function)
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def digest_of(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    keyed: bool,
    within: str | Callable[..., Any],
) -> str:
    """The fingerprint of a step. Raises `UsageError` if it cannot be identified."""
    if type(function) is FunctionType and _is_plain(function):
        name = _name_part(function.__module__, function.__qualname__)
        plain = plain_spelling(arguments)
        if plain is not None:
            return fingerprint(b"%b%d:%b" % (name, len(plain), plain))
    try:
        return fingerprint(_Work(name_of(function), keyed, within).step(function, arguments))
    except Unidentified as problem:
        raise UsageError(
            f"step {name_of(function)}: an argument cannot be identified ({problem}); pass what identifies "
            "the work, and reach for clients and connections from inside the function"
        ) from None


def digest_of_value(value: object) -> str:
    """A digest to show instead of a value. Raises `Unidentified`."""
    return fingerprint(_Work("", True, "").spell(value))


def line_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, to be written behind its name; nothing for one that is not Python's."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        return ""
    return f" at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _is_plain(function: FunctionType) -> bool:
    """Whether a function is identified by its name alone."""
    if function.__closure__ is not None:
        return False
    name = function.__qualname__
    return "<" not in name or (
        function.__defaults__ is None and function.__kwdefaults__ is None and not name.endswith(_LAMBDA)
    )


@functools.lru_cache(maxsize=4096)
def _name_part(module: str | None, qualname: str) -> bytes:
    return framed((module or "").encode(errors="surrogatepass"), qualname.encode(errors="surrogatepass"))


class _Work(Speller):
    """Encodes one step."""

    def __init__(self, name: str, keyed: bool, within: str | Callable[..., Any]) -> None:
        super().__init__()
        self._name = name
        self._keyed = keyed
        self._within = within
        self._scope: Scope | None = None
        self._spelling: list[Any] = []
        """Functions that are being encoded: one may capture itself."""

    def step(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        """Encode the function and its arguments."""
        function, given = taken_apart(function, arguments)
        plain = plain_spelling(given)
        identity = self._function(function, is_step=True)
        # For a plain function this must give the same as the short way in `digest_of`.
        body = framed(*self.all(given)) if plain is None else plain
        return b"%b%d:%b" % (identity, len(body), body)

    def callable(self, value: Any) -> bytes:
        """A function or class within an argument or a capture."""
        if is_partial(value):
            return b"p" + framed(self.callable(value.func), *self.all(_bound_by(value)))
        if isinstance(value, type):
            return b"K" + type_name(value)
        if isinstance(value, ModuleType):
            return b"M" + value.__name__.encode()
        if isinstance(value, (FunctionType, *_METHODS)) or _is_found(value):
            return b"f" + self._function(value, is_step=False)
        return super().callable(value)

    def _function(self, function: Callable[..., Any], *, is_step: bool) -> bytes:
        """Encode a function by its name and by what it holds besides its arguments."""
        name = _function_name(function)
        if type(function) is not FunctionType:
            held = self._object(function, is_step)
        elif any(function is outer for outer in self._spelling):
            held = []
        else:
            self._spelling.append(function)
            try:
                held = list(self._held(function, is_step))
            finally:
                self._spelling.pop()
        return name if not held else b"%bh%b" % (name, framed(*held))

    def _held(self, function: FunctionType, is_step: bool) -> Iterator[bytes]:
        """What a function captured, and the defaults of an inner function."""
        if _is_lambda(function) and not self._keyed:
            if not is_step:
                raise Unidentified("a lambda cannot be distinguished from another")
            raise UsageError(
                f"step {name_of(function)}{line_of(function)} is a lambda, which cannot be distinguished "
                "from another when the call is run again: give the step a key=, or write a named function "
                "that takes what it needs as arguments"
            )
        if self._keyed:
            return  # The author's `key=` identifies it.
        for variable, value in _captures(function):
            if (spelled := self._captured(function, variable, value)) is not None:
                yield framed(variable.encode(), spelled)

    def _captured(self, function: FunctionType, variable: str, value: object) -> bytes | None:
        if _is_constant(value):
            return self.spell(value)
        if is_context(value):
            return None
        if isinstance(value, type | ModuleType) or (type(value) is FunctionType and not _is_lambda(value)):
            return self.callable(value)
        if not self._in_scope(function, variable):
            return None
        try:
            return self.spell(value)
        except Unidentified as problem:
            raise UsageError(
                f"step {self._name} captures {variable!r}, which cannot be identified ({problem}): "
                "pass what identifies the work as an argument, or give the step a key="
            ) from None

    def _in_scope(self, function: FunctionType, variable: str) -> bool:
        if self._scope is None:
            self._scope = Scope(self._within)
        return self._scope.owns(function, variable)

    def _object(self, function: Callable[..., Any], is_step: bool) -> list[bytes]:
        """Encode the object that a method belongs to, or that is called like a function."""
        owner: Any = function
        if isinstance(function, _METHODS):
            owner = function.__self__
            if owner is None or isinstance(owner, ModuleType):
                return []
        elif _is_found(function):
            return []
        if self._keyed and not isinstance(owner, type) and not _is_constant(owner):
            return []
        try:
            return [self.spell(owner)]
        except Unidentified as problem:
            if not is_step:
                raise
            raise UsageError(
                f"step {self._name} belongs to an object that cannot be identified ({problem}): give the "
                "step a key=, or write a function that takes arguments and reaches for the object inside"
            ) from None


def _is_lambda(function: FunctionType) -> bool:
    return function.__qualname__.endswith(_LAMBDA)


def _is_constant(value: Any) -> bool:
    """Whether a value can never change."""
    if type(value) in ATOMS or isinstance(value, Enum):
        return True
    return type(value) in (tuple, frozenset) and all(_is_constant(item) for item in value)


def _bound_by(partial: "functools.partial[Any]") -> list[Any]:
    bound: list[Any] = [value for value in partial.args if not is_context(value)]
    keywords: dict[str, Any] = {
        name: value for name, value in partial.keywords.items() if not is_context(value)
    }
    return [*bound, keywords] if keywords else bound


def _captures(function: FunctionType) -> Iterator[tuple[str, Any]]:
    cells: tuple[CellType, ...] = function.__closure__ or ()
    for variable, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield variable, cell.cell_contents
        except ValueError:
            continue  # Not assigned yet.
    if "<locals>" in function.__qualname__:
        for number, value in enumerate(function.__defaults__ or ()):
            yield f"={number}", value
        for variable, value in (function.__kwdefaults__ or {}).items():
            yield f"={variable}", value


def _is_found(value: object) -> bool:
    """Whether something can be found by its module and its qualified name, as module-level functions are."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    for part in (getattr(value, "__qualname__", None) or "").split("."):
        found = getattr(found, part, None)
    return found is value and found is not None


def _function_name(function: Callable[..., Any]) -> bytes:
    kind = function if getattr(function, "__qualname__", None) else type(function)
    owner = getattr(function, "__self__", None)
    module: Any = getattr(kind, "__module__", None)
    if module is None and isinstance(owner, ModuleType):
        module = owner.__name__
    return _name_part(module, kind.__qualname__)
