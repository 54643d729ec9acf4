"""The methods that only clients with a session may call."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from ekiden.rounds.outcome import Complete, Outcome
from ekiden.server.legacy.session import Session, SessionStream
from ekiden.transports.server.port import Stream
from ekiden.wire.modern import Request

__all__ = ["session_answers"]


async def _ping(request: Request, stream: Stream) -> Outcome:
    return Complete({})


async def _set_level(request: Request, stream: Stream) -> Outcome:
    session = _session(stream)
    session.set_level(request.params.get("level"))
    await session.remember("level", session.log_level)
    return Complete({})


async def _subscribe(request: Request, stream: Stream) -> Outcome:
    session = _session(stream)
    watched = session.watching.watch(request.params.get("uri"), request.principal)
    await session.remember("watch", watched)
    return Complete({})


async def _unsubscribe(request: Request, stream: Stream) -> Outcome:
    session = _session(stream)
    await session.remember("unwatch", session.watching.unwatch(request.params.get("uri")))
    return Complete({})


def _session(stream: Stream) -> Session:
    assert isinstance(stream, SessionStream)
    return stream.session


session_answers: Final[dict[str, Callable[[Request, Stream], Coroutine[Any, Any, Outcome]]]] = {
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
"""What answers each of them. All other methods are the same for all clients."""
