"""Questions at the terminal, one at a time, with questionary.

Esc leaves a question (`QuestionLeft`), wherever it is; Ctrl-C is an interrupt as it is everywhere else.
All of it is drawn on stderr where that is a terminal, so that stdout can be piped. Whatever is shown passes
`one_line`, because most of it comes from a server.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ekiden.cli.terminal.screen import one_line
from ekiden.signals import QuestionLeft

if TYPE_CHECKING:
    from prompt_toolkit.output import Output
    from questionary import Question

__all__ = ["Choice", "Terminal"]

Choice = tuple[Any, str]
"""A value, and what the user reads for it."""


class Terminal:
    """Asks the user at the terminal."""

    @staticmethod
    def is_there() -> bool:
        """Whether there is a terminal to ask at."""
        return sys.stdin.isatty() and (sys.stderr.isatty() or sys.stdout.isatty())

    async def text(self, message: str, default: str, validate: Callable[[str], str | None]) -> str:
        """A line of text; `validate` says what is wrong with it."""
        import questionary

        question = questionary.text(
            one_line(message),
            default=one_line(default),
            validate=_as_verdict(validate),
            validate_while_typing=False,  # An address that is half typed is not an error yet.
            output=self._output(),
        )
        return str(await self._ask(question))

    async def pick(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        """One of several values."""
        import questionary

        listed = [questionary.Choice(one_line(title), value=at) for at, (_, title) in enumerate(choices)]
        first = next((at for at, (value, _) in enumerate(choices) if value == default), 0)
        picked: int = await self._ask(
            questionary.select(
                one_line(message), choices=listed, default=listed[first], output=self._output()
            )
        )
        return choices[picked][0]

    async def pick_many(self, message: str, choices: Sequence[Choice], default: Sequence[Any]) -> list[Any]:
        """Any number of several values."""
        import questionary

        listed = [
            questionary.Choice(one_line(title), value=at, checked=value in default)
            for at, (value, title) in enumerate(choices)
        ]
        picked: list[int] = await self._ask(
            questionary.checkbox(one_line(message), choices=listed, output=self._output())
        )
        return [choices[at][0] for at in picked]

    async def confirm(self, message: str, default: bool | None) -> bool | None:
        """Yes or no, by one key. Enter takes the default; a default of None leaves the question open."""
        import questionary

        hint = "(y/n, Enter: leave empty) " if default is None else None
        question = questionary.confirm(
            one_line(message), default=bool(default), instruction=hint, output=self._output()
        )
        answer: bool | None = await self._ask(question, enter_is_none=default is None)
        return answer

    async def _ask(self, question: "Question", *, enter_is_none: bool = False) -> Any:
        _bind(question, enter_is_none=enter_is_none)
        try:
            return await question.unsafe_ask_async()
        except EOFError:  # Ctrl-D
            raise QuestionLeft from None
        except KeyboardInterrupt:
            # The terminal is in raw mode while a question is open, so Ctrl-C came as a key. Sent as a
            # signal, it cancels the call as it does elsewhere.
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    @staticmethod
    def _output() -> "Output":
        from prompt_toolkit.output import create_output

        return create_output(stdout=sys.stderr if sys.stderr.isatty() else sys.__stdout__)


def _bind(question: "Question", *, enter_is_none: bool) -> None:
    """Add the keys that work in every question; with `enter_is_none`, Enter ends it without an answer."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add(Keys.Escape, eager=True)
    def escape(event: KeyPressEvent) -> None:
        event.app.exit(exception=QuestionLeft())

    @keys.add(Keys.ControlC, eager=True)
    @keys.add(Keys.SIGINT, eager=True)
    def interrupt(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    if enter_is_none:

        @keys.add(Keys.ControlM, eager=True)
        def leave_empty(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

    application = question.application
    own = [] if application.key_bindings is None else [application.key_bindings]
    application.key_bindings = merge_key_bindings([*own, keys])


def _as_verdict(validate: Callable[[Any], str | None]) -> Callable[[Any], bool | str]:
    """questionary wants True for a value that is fine."""
    return lambda value: True if (problem := validate(value)) is None else one_line(problem)
