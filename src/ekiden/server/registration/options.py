"""The options of decorators: which there are, which values they take, and what was probably meant.

The signature that a type checker sees is the only list of a decorator's options. It is read at run time too:
for `help()`, and to refuse an option that does not exist.
"""

import functools
import inspect
import math
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from ekiden.errors import RegistrationError

__all__ = ["check_choice", "check_seconds", "did_you_mean", "spelled_out"]

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def spelled_out(method: MethodT, *, like: Callable[..., Any] | None = None) -> MethodT:
    """Show the options of a method in `help()`, and refuse all others with a `RegistrationError`.

    The options are those of the method itself, of its last overload if it has any, or of `like`.
    """
    signature = inspect.signature(method)
    spelling = like if like is not None else (typing.get_overloads(method) or [method])[-1]
    options = _keyword_only(inspect.signature(spelling))
    known = {option.name for option in options}

    @functools.wraps(method)
    def checked(*arguments: Any, **given: Any) -> Any:
        if unknown := given.keys() - known:
            raise RegistrationError(f"{method.__name__}() has no {_named(unknown, known)}")
        return method(*arguments, **given)

    kept = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    shown: Any = checked
    shown.__signature__ = signature.replace(parameters=[*kept, *options])
    return cast("MethodT", checked)


def _keyword_only(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [each for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]


def _named(unknown: Iterable[str], known: Iterable[str]) -> str:
    """The options that do not exist, each with the one that was probably meant."""
    named = [f"{name!r}{did_you_mean(name, known, ending='=')}" for name in sorted(unknown)]
    return f"option{'s' if len(named) > 1 else ''} {', '.join(named)}"


def did_you_mean(given: object, known: Iterable[str], *, ending: str = "") -> str:
    """Name what was probably meant, in parentheses; empty if nothing is close to what was given."""
    import difflib  # Only mistakes need it.

    close = difflib.get_close_matches(str(given), sorted(known), n=1)
    return f" (did you mean {close[0]}{ending}?)" if close else ""


def check_choice(option: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a value that an option does not have."""
    if not any(value is choice or (type(value) is str and value == choice) for choice in choices):
        listed = ", ".join(repr(choice) for choice in choices)
        hint = did_you_mean(value, [choice for choice in choices if isinstance(choice, str)])
        raise RegistrationError(f"{option} must be one of {listed}, not {value!r}{hint}")


def check_seconds(option: str, value: object) -> None:
    """Refuse what is not a number of seconds above 0; None stands for no limit."""
    if value is None:
        return
    if type(value) not in (int, float) or not 0 < cast("float", value) < math.inf:
        raise RegistrationError(f"{option} must be a number of seconds above 0, or None, not {value!r}")
