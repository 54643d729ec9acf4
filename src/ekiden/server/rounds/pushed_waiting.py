"""Calls of clients of 2025 on a server with pages: they are run in rounds, and what a round asks is pushed.

So a call can wait for people, and go on when it is made again, as for clients of 2026.
"""

import msgspec

from ekiden.errors import CannotAsk
from ekiden.rounds.outcome import Interim, Outcome
from ekiden.server.rounds.call import Call, unshared
from ekiden.server.rounds.pushed import MOST_ROUNDS, Questions, cannot_ask, endless, pause_before
from ekiden.server.rounds.waiting_calls import RoundRunner, WaitingCalls

__all__ = ["run_pushed"]


async def run_pushed(call: Call, calls: WaitingCalls, rounds: RoundRunner) -> Outcome:
    """Run a whole call, or as much of it as can be done without people."""
    request, raw = call.request, call.raw
    questions = Questions(call.stream, request.meta.capabilities)
    for number in range(MOST_ROUNDS + 1):
        outcome = await calls.run(call, rounds)
        if not isinstance(outcome, Interim):
            await questions.report_visited(outcome)
            return outcome
        if number == MOST_ROUNDS:
            break
        try:
            answers = await questions.ask_all(outcome.requests)
        except CannotAsk as error:
            return cannot_ask(request.method, error)
        params = {**request.params, "inputResponses": answers}
        params.pop("requestState", None)
        if outcome.state is not None:
            params["requestState"] = outcome.state
        again = msgspec.structs.replace(request, params=params)
        call = msgspec.structs.replace(
            call, request=again, bound=call.bind(unshared(raw)), from_people={}, answered=frozenset()
        )
        await pause_before(number, answers)
    return endless(request.method, call.title)
