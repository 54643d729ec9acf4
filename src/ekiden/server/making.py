"""From what a handler returned to its outcome: of large values, a few at a time.

To make a result of data takes longer than to send it, and several times its memory: it is held to its
schema, copied, and spelled as text. So a large value takes its turn before that, among the large results
that are sent.
"""

from collections.abc import Callable
from typing import Protocol

from ekiden.errors import InternalError
from ekiden.rounds.outcome import Outcome
from ekiden.server.questions.input_required import InputRequired
from ekiden.transports.server.large import TOO_MUCH, LargeResults
from ekiden.wire.modern import Request

__all__ = ["Making"]


class _Ending(Protocol):
    """A kind of handler: how its values become outcomes."""

    def complete(self, value: object) -> Outcome:
        """The outcome of a handler that returned."""
        ...


class Making:
    """Makes the outcomes of one server. `owner_of` says who sends a request."""

    def __init__(self, owner_of: Callable[[Request], str]) -> None:
        self.large = LargeResults()
        """Its results that are so large that they wait for one another."""
        self._owner_of = owner_of

    def at_once(self, ending: _Ending, value: object) -> Outcome | InputRequired | None:
        """The outcome of a value; None while others have their turn: await `in_turn` then.

        An `InputRequired` is given back as it is.
        """
        if type(value) is str:
            return ending.complete(value)  # Nothing is copied.
        if isinstance(value, InputRequired):
            return value
        if self.large.busy:
            return None
        outcome = ending.complete(value)
        self.large.made(outcome)
        return outcome

    async def in_turn(self, ending: _Ending, value: object, request: Request | None) -> Outcome:
        """The outcome of a value, when its turn has come. Raises `InternalError` if too much waits.

        What nobody waits for in a request, such as the result of a task, is never too much.
        """
        owner = None if request is None else self._owner_of(request)
        if not await self.large.admit_value(value, owner):
            raise InternalError(TOO_MUCH)
        outcome = ending.complete(value)
        self.large.made(outcome)
        return outcome
