"""Names that a store cannot keep: strangers make them up, and authors and users may mean them."""

from typing import Any

import pytest

from ekiden import Context
from ekiden.testing import CallFailed
from tests.tasks.driving import TaskClient, accept, new_server

NAMES = ["a\x00b", "\x00", "x" * 100_000, "\u202e", "", "'; DROP TABLE tasks; --"]


@pytest.mark.parametrize("name", NAMES)
async def test_an_id_that_nobody_has_is_unknown(store: Any, name: str) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "x"

    async with server.running():
        client = TaskClient(server)
        for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            with pytest.raises(CallFailed, match="Unknown task") as failed:
                await client.round(f"tasks/{method}", {"taskId": name, **more})
            assert failed.value.code == -32602


@pytest.mark.parametrize("name", ["x" * 1000, "é\u202e'\"\\%s ?", "a\tb\nc"])
async def test_keys_and_values_may_have_any_letter(store: Any, name: str) -> None:
    server = new_server(store)

    async def echo(value: str) -> str:
        return value

    @server.tool(task="required")
    async def tool(text: str, ctx: Context) -> str:
        asked = await ctx.elicit(text, str, key=text)
        assert asked.action == "accept"
        return await ctx.step(echo, asked.data, key=text)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start(arguments={"text": name})
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: accept(name)})
        assert await client.text(task_id) == name
