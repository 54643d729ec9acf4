"""When a handler begins, and from what it returned to its outcome: of large values, a few at a time.

To make a result of data takes longer than to send it, and several times its memory: it is held to its
schema, copied, and spelled as text. So a large value takes its turn before that, among the large results
that are sent.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ekiden.rounds.outcome import Outcome
from ekiden.server.handlers import Handler, thread_turns
from ekiden.server.questions.input_required import InputRequired
from ekiden.transports.server.large.results import LargeResults
from ekiden.transports.server.reply import LARGE
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

    async def may_begin(self, handler: Handler, request: Request) -> None:
        """Wait until a handler may begin: if it `may_wait`, or if too many have begun.

        The handlers that one client calls take turns, too.
        """
        client = f"{self._owner_of(request)}\0{id(handler)}"
        if handler.is_plain:
            thread_turns.set((self.large.begins, client))  # It waits once more, for a thread.
        await self.large.begins.turn(client, handler)

    def at_once(self, handler: Handler, ending: _Ending, value: object) -> Outcome | InputRequired | None:
        """The outcome of a value; None while others have their turn: await `in_turn` then.

        An `InputRequired` is given back as it is.
        """
        if type(value) is str:
            if len(value) > LARGE:
                handler.has_returned_much()
            return ending.complete(value)  # Nothing is copied.
        if isinstance(value, InputRequired):
            return value
        if self.large.busy:
            return None
        outcome = ending.complete(value)
        if self.large.made(outcome):
            handler.has_returned_much()
        return outcome

    async def in_turn(
        self, handler: Handler, ending: _Ending, value: Any, request: Request | None
    ) -> Outcome:
        """The outcome of a value, when its turn has come. Raises `InternalError` if too much waits.

        Whoever awaits this holds the value no longer.
        What nobody waits for in a request, such as the result of a task, is never too much.
        """
        client = None if request is None else self._owner_of(request)
        admitting = self.large.admit_value(value, client, handler.has_returned_much)
        del value  # If it is given up while it waits, it is to be forgotten at once.
        outcome = ending.complete(await admitting)
        self.large.made(outcome)
        return outcome
