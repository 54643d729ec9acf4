from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, Server, UsageError
from tests.serving import call, call_tool, exchange

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


@pytest.mark.parametrize("said", [("1",), (1, "2"), (1, 2, 3), (True,), (None,)])
async def test_progress_that_cannot_be_said_is_refused_before_it_is_sent(said: Any) -> None:
    problems: list[str] = []

    async def handler(ctx: Context) -> None:
        try:
            await ctx.progress(*said)
        except UsageError as error:
            problems.append(str(error))

    assert await told(handler, progressToken=1) == []
    (problem,) = problems
    assert problem.startswith("ctx.progress(progress, total, message) takes two numbers and a text, not ")


async def test_data_is_logged_as_tools_return_it_and_the_rest_is_refused() -> None:
    class Loaf(BaseModel):
        baked: date

    problems: list[str] = []

    async def handler(ctx: Context) -> None:
        await ctx.info(Loaf(baked=date(2026, 7, 28)))
        await ctx.info({"loaves": (1, 2)})
        try:
            await ctx.info(object())
        except UsageError as error:
            problems.append(str(error))

    messages = await told(handler, **{LEVEL: "info"})
    assert [message["params"]["data"] for message in messages] == [
        {"baked": "2026-07-28"},
        {"loaves": [1, 2]},
    ]
    (problem,) = problems
    assert problem.startswith("ctx.log() takes text or data, such as a model or a dict: ")


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


async def test_each_common_level_has_a_method_of_its_own() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.debug("d")
        await ctx.info({"i": 1})
        await ctx.notice("n", logger="mine")
        await ctx.warning("w")
        await ctx.error("e")

    messages = await told(handler, **{LEVEL: "debug"})
    assert [message["params"] for message in messages] == [
        {"level": "debug", "data": "d"},
        {"level": "info", "data": {"i": 1}},
        {"level": "notice", "data": "n", "logger": "mine"},
        {"level": "warning", "data": "w"},
        {"level": "error", "data": "e"},
    ]


async def test_a_level_that_does_not_exist_is_refused_also_if_nobody_listens() -> None:
    async def handler(ctx: Context) -> str:
        with pytest.raises(UsageError, match=r"takes one of the levels debug, info, .*, not 'warn'"):
            await ctx.log("warn", "w")  # type: ignore[arg-type]
        return "told"

    assert await call_tool(server_with(handler), "tool") == {"content": [{"type": "text", "text": "told"}]}


@pytest.mark.parametrize("effect", ["elicit", "step", "sample", "list_roots", "progress", "info", "sleep"])
async def test_a_plain_function_that_uses_what_must_be_awaited_is_told_what_to_write(effect: str) -> None:
    def handler(ctx: Context) -> str:
        with pytest.raises(UsageError) as refused:
            getattr(ctx, effect)("?", bool)
        return str(refused.value)

    (block,) = (await call_tool(server_with(handler), "tool"))["content"]
    assert block["text"] == (
        f"ctx.{effect}() must be awaited, which a plain `def` cannot: write the handler as `async def` "
        f"and `await ctx.{effect}(...)` in it"
    )


async def test_a_plain_function_may_use_the_rest_of_its_context() -> None:
    def handler(ctx: Context) -> str:
        return f"{ctx.meta.protocol_version} {ctx.can_ask('sampling')} {ctx.request.name}"

    (block,) = (await call_tool(server_with(handler), "tool"))["content"]
    assert block["text"] == "2026-07-28 False tool"
