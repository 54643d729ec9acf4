"""Streams of events end when the browser leaves."""

import asyncio
from collections.abc import AsyncIterator

from ekiden.pages.web import Fragment, Site, WebRequest, WebResponse, event_stream
from tests.serving import PATIENCE, served


async def test_a_stream_ends_when_the_browser_leaves() -> None:
    site = Site(secure=False)
    closed = asyncio.Event()

    async def changes() -> AsyncIterator[Fragment]:
        try:
            yield Fragment("<p id=first></p>")
            await asyncio.Event().wait()
        finally:
            closed.set()

    @site.get("/events")
    async def events(request: WebRequest) -> WebResponse:
        return event_stream(changes())

    async with served(site) as base, asyncio.timeout(PATIENCE):
        host, port = base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"first")
        writer.close()
        await closed.wait()
