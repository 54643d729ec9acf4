"""The rounds of one call: each is answered, and shown with `--verbose`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ekiden.cli.calling.conversation import AskedOptions, Conversation
from ekiden.cli.terminal.screen import one_line
from ekiden.client.scripted import question_text
from ekiden.errors import TooManyRounds
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from ekiden.client.pending import PendingCall

__all__ = ["Rounds"]

T = TypeVar("T")


class Rounds:
    """Makes the rounds of one call."""

    def __init__(self, options: AskedOptions, with_: Conversation) -> None:
        self._options = options
        self._responder = with_.responder
        self._screen = with_.screen
        self._began = time.perf_counter()

    async def drive(
        self,
        start: "Callable[[], Awaitable[T | PendingCall]]",
        resume: "Callable[[PendingCall, JsonObject], Awaitable[T | PendingCall]]",
    ) -> T:
        """What the last round came to."""
        from ekiden.client.pending import PendingCall, pace

        ended, rounds = await start(), 0
        while isinstance(ended, PendingCall):
            self._show(ended.rounds, ended)
            if ended.rounds > self._options.max_rounds:
                raise TooManyRounds(
                    f"the call did not end within {self._options.max_rounds} rounds (--max-rounds)"
                )
            if not ended.requests:
                await asyncio.sleep(pace(ended.idle_rounds))
            responses = await self._responder.respond_all(ended.requests)
            rounds, self._began = ended.rounds, time.perf_counter()
            ended = await resume(ended, responses)
        self._show(rounds + 1, None)
        return ended

    def _show(self, number: int, pending: "PendingCall | None") -> None:
        """One line for a round, and one for each of its questions."""
        if not self._options.verbose:
            return
        self._screen.clear()
        spent = f"round {number}: {(time.perf_counter() - self._began) * 1000:.1f} ms"
        if pending is None:
            self._screen.note(f"{spent}, the result", style="dim")
            return
        asked = f"{len(pending.requests)} asked" if pending.requests else "nothing asked, goes on"
        self._screen.note(f"{spent}, {asked}, state of {len(pending.state or '')} bytes", style="dim")
        for key, request in pending.requests.items():
            line = f"{key}: {request.get('method')}: {question_text(request)}"
            self._screen.note(f"  {one_line(line)}", style="dim")
