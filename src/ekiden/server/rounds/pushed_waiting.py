"""Calls of clients of 2025 on a server with pages: they are run in rounds, and what a round asks is pushed.

So a call can wait for people, and go on when it is made again, as for clients of 2026.
"""

import msgspec

from ekiden.rounds.outcome import Outcome
from ekiden.server.rounds.call import Call, unshared
from ekiden.server.rounds.pushed import Questions, push_rounds
from ekiden.server.rounds.waiting_calls import RoundRunner, WaitingCalls
from ekiden.wire.json import JsonObject

__all__ = ["run_pushed"]


async def run_pushed(call: Call, calls: WaitingCalls, rounds: RoundRunner) -> Outcome:
    """Run a whole call, or as much of it as can be done without people."""
    request, raw = call.request, call.raw
    questions = Questions(call.stream, request.meta.capabilities)

    async def run(brought: JsonObject | None) -> Outcome:
        if brought is None:
            return await calls.run(call, rounds)
        again = msgspec.structs.replace(request, params={**request.params, **brought})
        bound = call.bind(unshared(raw))
        following = msgspec.structs.replace(
            call, request=again, bound=bound, from_people=None, answered=frozenset()
        )
        return await calls.run(following, rounds)

    return await push_rounds(request.method, call.title, questions, run)
