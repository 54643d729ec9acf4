"""What a task says while it runs: written to the store now and then, however often it says something."""

import asyncio
from typing import Any

import msgspec
import pytest

from ekiden import Context
from ekiden.stores.memory import MemoryStore
from tests.tasks.driving import QUICK, TaskClient, new_server


async def test_messages_that_follow_each_other_quickly_are_written_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    publish, written = store.tasks.publish, list[tuple[float, str | None]]()

    async def noted(*arguments: Any, **options: Any) -> Any:
        written.append((asyncio.get_running_loop().time(), arguments[2].message))
        return await publish(*arguments, **options)

    monkeypatch.setattr(store.tasks, "publish", noted)
    server = new_server(store, tasks=msgspec.structs.replace(QUICK, message_seconds=1.0))

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        for number in range(70):
            await ctx.progress(number, 70, f"number {number}")
            await asyncio.sleep(0.07)
        return "done"

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "done"
    began = written[0][0]
    assert [(round(moment - began, 2), message) for moment, message in written] == [
        (0.0, "number 0 (0/70)"),
        (1.0, "number 14 (14/70)"),
        (2.0, "number 28 (28/70)"),
        (3.0, "number 42 (42/70)"),
        (4.0, "number 57 (57/70)"),
    ]
