"""What an answered request leaves behind: nothing that only the garbage collector could remove."""

import asyncio
import gc
import json
import weakref

from ekiden import Server
from ekiden.transports.server.reply import Attendant
from tests.serving import call, headers_for, post_raw, served


async def test_a_call_that_took_some_time_is_forgotten_without_the_garbage_collector() -> None:
    server = Server("s", version="1")
    attending: list[weakref.ref[Attendant]] = []

    @server.tool
    async def slow(text: str) -> str:
        """Take long enough to be watched."""
        await asyncio.sleep(0.1)
        attending.extend(weakref.ref(each) for each in gc.get_objects() if type(each) is Attendant)
        return text[:1]

    message = call("slow", {"text": "x" * 300_000})
    async with served(server) as base:
        gc.collect()
        gc.disable()
        try:
            answer = await post_raw(base, json.dumps(message).encode(), headers_for(message))
            await asyncio.sleep(0.1)
            left = [each() for each in attending if each() is not None]
        finally:
            gc.enable()
    assert answer.status_code == 200
    assert attending
    assert left == []
