"""Requests that middleware sees, and what keeps a middleware from speaking for the client.

What the client said of itself, and the id of its request, stay as they were, whatever a middleware does to
the request. An interim result leaves only through the gate; to clients of 2025, which know none, its
questions are pushed, and the middleware sees the request again with the answers.
"""

import logging
from collections.abc import Sequence

import msgspec

from ekiden.rounds.asks import declares
from ekiden.rounds.outcome import Outcome
from ekiden.server.middleware import Middleware, Run, around
from ekiden.server.questions.gate import MAY_ASK, through_the_gate
from ekiden.server.rounds.pushed import Questions, push_rounds
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, copied
from ekiden.wire.modern import Request

__all__ = ["gated"]

_log = logging.getLogger(__name__)


def gated(layers: Sequence[Middleware], innermost: Run) -> Run:
    """Wrap `innermost` in middleware that cannot send more than a handler may."""

    async def run(request: Request, stream: Stream) -> Outcome:
        if request.meta.protocol_version in versions.LEGACY and request.method in MAY_ASK:
            return await _pushed(layers, innermost, request, stream)
        return await _once(layers, innermost, request, stream)

    return run


async def _once(layers: Sequence[Middleware], innermost: Run, request: Request, stream: Stream) -> Outcome:
    """Run the middleware around a request."""
    request_id, method, version = request.id, request.method, request.meta.protocol_version
    declared = copied(request.meta.capabilities)

    def restore(passed: Request) -> None:
        passed.id = request_id
        passed.meta.protocol_version = version
        passed.meta.capabilities = copied(declared)

    async def answer(passed: Request, stream: Stream) -> Outcome:
        left = passed.meta.capabilities
        restore(passed)
        if declares(declared, left):
            passed.meta.capabilities = left  # A middleware may take away from it.
        elif left != declared:
            _log.error("A middleware of %s declared %r for the client: it is ignored", method, left)
        return await innermost(passed, stream)

    try:
        return through_the_gate(method, declared, await around(layers, answer)(request, stream))
    finally:
        restore(request)


async def _pushed(layers: Sequence[Middleware], innermost: Run, request: Request, stream: Stream) -> Outcome:
    """Run the middleware until it asks nothing more. Its questions are pushed."""
    method, params = request.method, copied(request.params)
    questions = Questions(stream, copied(request.meta.capabilities))
    asked = request

    async def run(brought: JsonObject | None) -> Outcome:
        nonlocal asked
        if brought is not None:
            asked = msgspec.structs.replace(asked, params={**copied(params), **brought})
        return await _once(layers, innermost, asked, stream)

    return await push_rounds(method, f"A middleware around {method}", questions, run)
