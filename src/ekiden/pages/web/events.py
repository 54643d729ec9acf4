"""Live updates: parts of a page that are sent again as they change, by server-sent events.

`live.js` puts a fragment in the place of the element with the same `id`. If there is none, an element with
`data-into="some-id"` is put into that one: at its end, or with `data-at="start"` at its beginning.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import msgspec

from ekiden.pages.web.messages import WebResponse

__all__ = ["Fragment", "Gone", "LiveEvent", "Reload", "event_stream"]

_QUIET_SECONDS: Final = 15.0
"""How long a stream is silent before a comment is sent: proxies close what is silent for longer."""


class Fragment(msgspec.Struct, frozen=True):
    """HTML of one or more elements, each with an `id`."""

    html: str


class Gone(msgspec.Struct, frozen=True):
    """The element with this id is not on the page any more."""

    id: str


class Reload(msgspec.Struct, frozen=True):
    """The whole page has changed: it is loaded again."""


LiveEvent: TypeAlias = Fragment | Gone | Reload


def event_stream(changes: AsyncIterator[LiveEvent]) -> WebResponse:
    """A response that lasts as long as the page is open. `changes` is closed when the browser leaves."""
    headers = {"x-accel-buffering": "no"}
    return WebResponse(_spelled(changes), kind="text/event-stream; charset=utf-8", headers=headers)


async def _spelled(changes: AsyncIterator[LiveEvent]) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    following: asyncio.Future[LiveEvent] | None = None
    try:
        while True:
            if following is None:
                following = asyncio.ensure_future(anext(changes))
            done, _ = await asyncio.wait({following}, timeout=_QUIET_SECONDS)
            if not done:
                yield b": quiet\n\n"
                continue
            try:
                change = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield _event(change)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
        close = getattr(changes, "aclose", None)
        if close is not None:
            await close()


def _event(change: LiveEvent) -> bytes:
    match change:
        case Fragment(html):
            name, data = "fragment", html
        case Gone(id):
            name, data = "gone", id
        case Reload():
            name, data = "reload", ""
    lines = [f"event: {name}", *(f"data: {line}" for line in data.replace("\r", "").split("\n"))]
    return ("\n".join(lines) + "\n\n").encode()
