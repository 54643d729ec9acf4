"""`ctx.step` and `ctx.on_complete`: what authors write, and what they are told if it cannot work.

Both take a function and its arguments, by position and by name. The names of their own options are not
passed on: a function that has a parameter of such a name is refused with advice.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar, overload

from ekiden.errors import UsageError
from ekiden.rounds.interpreter import Interpreter, Retry
from ekiden.rounds.performing import current_step
from ekiden.server.steps.identity import name_of, unwrapped
from ekiden.server.steps.step import FunctionStep

__all__ = ["StepEffects"]

T = TypeVar("T")
P = ParamSpec("P")

_OPTIONS: Final = ("key", "raises", "retry")
Raises = Sequence[type[Exception]]


class StepEffects:
    """The part of a `Context` that does things once."""

    __slots__ = ()

    _leg: Interpreter
    _handler: Callable[..., Any]

    # Without options, a type checker compares the arguments with the function's parameters. With an option it
    # cannot: no signature has a function's own parameters and others beside them.
    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str | None,
        raises: Raises = (),
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str | None = None,
        raises: Raises,
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str | None = None,
        raises: Raises = (),
        retry: Retry | None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str | None,
        raises: Raises = (),
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str | None = None,
        raises: Raises,
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str | None = None,
        raises: Raises = (),
        retry: Retry | None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(  # type: ignore[misc]  # mypy does not see that Any takes every P
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        raises: Raises = (),
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a function once in the whole call, not once in every round, and get its value.

        `args` and `kwargs` are the function's. A step is identified by its function, these arguments and what
        the function captured. A lambda, or a method of an object that is not plain data, needs a `key=`. The
        function gets copies of its arguments. Its return annotation says how its value is stored.

        A plain function runs in a thread. An exception is raised here as `StepFailed`, in this round and in
        every later one; exceptions of the classes in `raises`, and of their subclasses, are raised as they
        are. With a `retry` policy the function is tried again first.
        """
        if kwargs or key is not None or raises or retry is not None:
            options = {"key": key, "raises": raises, "retry": retry}
            function = _with_keywords(function, args, kwargs, [name for name in options if options[name]])
        elif not callable(function):
            raise _not_a_function(function)
        step = FunctionStep(function, args, raises, retry, keyed=key is not None, within=self._handler)
        return await self._leg.step(step, key)

    @property
    def step_key(self) -> str:
        """Inside a step: a key that is the same in every attempt, to be used as an idempotency key."""
        key = current_step.get()
        if key is None:
            raise UsageError("ctx.step_key exists only inside a function that ctx.step runs")
        return key

    @overload
    def on_complete(self, function: Callable[..., Any], /, *args: Any, key: str, **kwargs: Any) -> None: ...
    @overload
    def on_complete(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def on_complete(  # type: ignore[misc]  # As above.
        self, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> None:
        """Run a function as a step after the handler has returned, before the reply leaves.

        An exception in it is logged, and does not change the handler's result.
        """
        function = _with_keywords(function, args, kwargs, [] if key is None else ["key"])
        step = FunctionStep(function, args, keyed=key is not None, within=self._handler)
        self._leg.afterwards(step, key)


def _with_keywords(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Sequence[str],
) -> Callable[..., Any]:
    """The function with its arguments by name. Refuses what cannot be called so, before anything runs."""
    if not callable(function):
        raise _not_a_function(function)
    _check_options(function, args, options)
    if not kwargs:
        return function
    given = functools.partial(function, **kwargs)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"step {name_of(function)}: {error}{_hint(function, kwargs)}") from None
    except ValueError:
        pass  # Some functions that are not written in Python have no signature.
    return given


def _check_options(function: Callable[..., Any], args: tuple[Any, ...], options: Sequence[str]) -> None:
    """Refuse an option that could as well be meant for the function: it has a parameter of that name."""
    code = getattr(unwrapped(function), "__code__", None)
    if code is None or not any(option in code.co_varnames for option in options):
        return
    parameters = inspect.signature(function).parameters
    taken = set(inspect.signature(function).bind_partial(*args).arguments)
    for option in options:
        parameter = parameters.get(option)
        is_open = parameter is not None and option not in taken and not _is_bound(function, option)
        if is_open and parameter is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
            name = name_of(function)
            raise UsageError(
                f"step {name}: {option}= is an option of ctx.step, and {name} has a parameter {option!r}: "
                f"pass the function's own by position, or as functools.partial({name}, {option}=...)"
            )


def _is_bound(function: Callable[..., Any], name: str) -> bool:
    return isinstance(function, functools.partial) and name in function.keywords


def _hint(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> str:
    """What was probably meant by a name that the function does not have."""
    import difflib  # Only mistakes need it.

    parameters = inspect.signature(function).parameters
    known = [*parameters, *_OPTIONS]
    for name in kwargs:
        if name not in parameters and (close := difflib.get_close_matches(name, known, n=1)):
            owner = "an option of ctx.step" if close[0] in _OPTIONS else "a parameter of the function"
            return f" (did you mean {close[0]}=, {owner}?)"
    return ""


def _not_a_function(value: object) -> UsageError:
    """The error for `ctx.step(load(1))`, where the author has called the function already."""
    if inspect.iscoroutine(value):
        value.close()  # Else Python warns that it was never awaited.
        name = value.__qualname__.rpartition(".")[2]
        return UsageError(
            "ctx.step takes a function and its arguments: "
            f"write ctx.step({name}, ...), not ctx.step({name}(...))"
        )
    return UsageError(
        f"ctx.step takes a function and its arguments, not a value of type {type(value).__qualname__}: write "
        "ctx.step(f, ...), not ctx.step(f(...))"
    )
