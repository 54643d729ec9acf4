"""Steps: an author's function with its arguments, run once.

`identity` tells steps apart, `codecs` stores their values, `failures` their exceptions. Function and codec
are checked when the step is made, so that what cannot work is refused before anything runs. A function that
has begun always leads to a journal entry, unless the step is cancelled.
"""

import asyncio
import copy
import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final

from pydantic import ValidationError

from ekiden.errors import NotRecalled, ToolError, UsageError
from ekiden.rounds.interpreter import Retry
from ekiden.rounds.journal import STEP, Entry, Kind
from ekiden.rounds.performing import current_memory, current_step
from ekiden.server.cancellation import is_cancelled
from ekiden.server.handlers import ThreadRun, is_async
from ekiden.server.schemas import explain
from ekiden.server.steps.codecs import codec_of
from ekiden.server.steps.failures import rebuilt, remembered, text_of
from ekiden.server.steps.identity import digest_of, is_partial, name_of
from ekiden.server.steps.plain import is_context
from ekiden.server.steps.spelling import ATOMS
from ekiden.server.steps.wording import words_for
from ekiden.signals import Ended, NotKept
from ekiden.stories.telling import current_story

__all__ = ["FunctionStep"]

_NOT_KEPT: Final = "ValueNotKept"
"""The type of the `StepFailed` for a value that could not be stored."""


class FunctionStep:
    """Implements `ekiden.rounds.interpreter.Step`."""

    __slots__ = ("_arguments", "_codec", "_function", "_raises", "_run", "digest", "name", "retry")

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        raises: Sequence[type[Exception]] = (),
        retry: Retry | None = None,
        *,
        keyed: bool = False,
        within: str | Callable[..., Any] = "",
    ) -> None:
        """`keyed`: the author gave `key=`. `within`: the handler's own function, or its qualified name."""
        self.name = name_of(function)
        self.digest = digest_of(function, arguments, keyed=keyed, within=within)
        self.retry = retry
        self._function = function
        self._arguments = arguments
        self._raises = (*raises, ToolError) if raises else _ALWAYS
        self._codec = codec_of(function)
        self._run: ThreadRun | None = None

    @property
    def about(self) -> str:
        """Describes the step in logs."""
        return words_for(self.name, self._function, self._arguments)

    @property
    def running(self) -> asyncio.Future[Any] | None:
        """The thread of a function that still runs although its step was cancelled; its value is ignored."""
        return None if self._run is None else self._run.abandoned

    def prepare(self) -> None:
        """Copy the arguments before the step waits for its turn: the handler may change its own meanwhile."""
        if type(self._function) is not FunctionType or not ATOMS.issuperset(map(type, self._arguments)):
            self._function, self._arguments = self._copies()  # Else there is nothing that can be changed.

    async def perform(self) -> Entry:
        """Run the function, with its retries; returns the entry of its value or of its exception."""
        entry, again = await self.attempt()
        failures = 1
        while again and self.retry is not None and failures < self.retry.attempts:
            if (story := current_story.get()) is not None:
                story.retried(STEP + (current_step.get() or "").partition(":")[2], entry)
            await asyncio.sleep(self.retry.delay(failures))
            if (memory := current_memory.get()) is not None and not memory.is_sure():
                await memory.recall()  # The claim may have run out meanwhile.
            entry, again = await self.attempt()
            failures += 1
        return entry

    async def attempt(self) -> tuple[Entry, bool]:
        """Run the function once, with copies of its arguments; returns the entry and whether to try again."""
        function, arguments = (self._function, self._arguments) if self.retry is None else self._copies()
        try:
            if is_async(function):
                value = await function(*arguments)
            else:
                self._run = ThreadRun(function)
                value = await self._run.call(*arguments)
        except (GeneratorExit, Ended):
            raise  # The coroutine was closed, or the claim was lost before the function began.
        except BaseException as error:
            if self._run is not None and self._run.waits_for_claim:
                raise  # The store has failed, and not the step, which did not begin.
            is_cut = is_cancelled()
            if is_cut and isinstance(error, asyncio.CancelledError):
                raise
            again = not is_cut and self.retry is not None and isinstance(error, self.retry.on)
            return self.failure(error), again
        return self._kept(value), False

    def failure(self, error: BaseException) -> Entry:
        """The entry of a step that raised."""
        return self._entry("failure", remembered(error, self._raises, f"step {self.name}"))

    async def late(self) -> Entry | None:
        """Wait for a thread that was left to itself; the entry of its value. None if there is neither."""
        if self._run is None or (thread := self._run.late) is None:
            return None
        await asyncio.wait({thread})
        return None if thread.exception() is not None else self._kept(thread.result())

    def recall(self, entry: Entry) -> Any:
        """The value of an entry, as every run gets it. Raises if the entry is an exception."""
        if entry.kind == "failure":
            raise rebuilt(entry.value, self._raises)
        try:
            return self._codec.read(entry.value)
        except Exception as error:  # Its text may hold the value, which may be secret.
            why = explain(error) if isinstance(error, ValidationError) else type(error).__qualname__
            raise NotRecalled(
                f"step {self.name}: the remembered value does not fit its annotation: {why}"
            ) from None

    def _kept(self, value: object) -> Entry:
        try:
            return self._entry("step", self._codec.spell(value))
        except NotKept as problem:
            text = f"step {self.name} ran, and what it returned cannot be kept: {problem}"
        except Exception as problem:
            text = f"step {self.name} ran, and what it returned cannot be kept: {text_of(problem)}"
        return self._entry("failure", [_NOT_KEPT, text.encode(errors="replace").decode(), None])

    def _entry(self, kind: Kind, value: object) -> Entry:
        return Entry(kind, self.digest, value, 0, self.about)

    def _copies(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        try:
            return _copied_partial(self._function), _copied(self._arguments)
        except Exception as error:
            raise UsageError(
                f"step {self.name}: an argument cannot be copied ({text_of(error)}), but the function must "
                "get a copy: pass plain data, and get everything else inside the function"
            ) from None


_ALWAYS: Final = (ToolError,)


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    memo = {id(argument): argument for argument in arguments if is_context(argument)}
    return tuple(copy.deepcopy(list(arguments), memo))


def _copied_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    if not is_partial(function):
        return function
    given = _copied((*function.args, *function.keywords.values()))
    count = len(function.args)
    keywords = dict(zip(function.keywords, given[count:], strict=True))
    return functools.partial(_copied_partial(function.func), *given[:count], **keywords)
