from typing import Any

import pytest

from ekiden import Context, Server
from tests.serving import call, exchange

LEVEL = "io.modelcontextprotocol/logLevel"


def server_with(handler: Any) -> Server:
    server = Server("s")
    server.add_tool(handler, name="tool")
    return server


async def told(handler: Any, **meta: Any) -> list[dict[str, Any]]:
    """The notifications that a tool sends."""
    *notifications, _ = await exchange(server_with(handler), call("tool", **meta))
    return notifications


@pytest.mark.parametrize("token", [0, 7, "", "t"])
async def test_progress_is_told_to_whoever_asked_for_it(token: int | str) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.progress(0.5, 2, "half")

    (message,) = await told(handler, progressToken=token)
    assert message["method"] == "notifications/progress"
    assert message["params"] == {"progressToken": token, "progress": 0.5, "total": 2, "message": "half"}


async def test_progress_is_not_told_to_whoever_did_not_ask() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.progress(1)

    assert await told(handler) == []


async def test_progress_that_does_not_grow_is_dropped() -> None:
    async def handler(ctx: Context) -> None:
        for value in (1, 1, 0.5, 2, 2.0, 3):
            await ctx.progress(value)

    messages = await told(handler, progressToken=1)
    assert [message["params"]["progress"] for message in messages] == [1, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "heard"),
    [
        (None, []),
        ("debug", ["debug", "warning", "emergency"]),
        ("info", ["warning", "emergency"]),
        ("warning", ["warning", "emergency"]),
        ("error", ["emergency"]),
        ("emergency", ["emergency"]),
    ],
)
async def test_log_messages_leave_if_they_reach_the_level_that_was_asked_for(
    wanted: str | None, heard: list[str]
) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.log("debug", "d")
        await ctx.log("warning", {"w": [1]}, logger="mine")
        await ctx.log("emergency", None)

    messages = await told(handler, **({} if wanted is None else {LEVEL: wanted}))
    assert [message["params"]["level"] for message in messages] == heard
    for message in messages:
        assert message["method"] == "notifications/message"
        if message["params"]["level"] == "warning":
            assert message["params"] == {"level": "warning", "data": {"w": [1]}, "logger": "mine"}


async def test_the_request_and_its_meta_can_be_read() -> None:
    seen: list[Any] = []

    async def handler(ctx: Context) -> None:
        seen.extend((ctx.request.method, ctx.request.name, ctx.request.id, ctx.request.headers))
        seen.extend((ctx.meta.client_info, ctx.meta.fields["example.com/k"]))

    await exchange(server_with(handler), call("tool", request_id="x", **{"example.com/k": 1}))
    assert seen == ["tools/call", "tool", "x", None, {"name": "test", "version": "1"}, 1]
