"""How handlers fail: what callers see, and what the log keeps."""

import asyncio
import logging
from typing import Any

import pytest

from ekiden import Context, InvalidParams, MissingCapability, ProtocolError, Server, ToolError
from tests.serving import PATIENCE, call, call_tool, error_of, request, soon


def failing(error: BaseException, *, plain: bool = False) -> Server:
    """A server all of whose handlers raise `error`."""
    server = Server("s")

    async def raises() -> str:
        await asyncio.sleep(0)
        raise error

    async def raises_with_context(ctx: Context) -> str:
        raise error

    def raises_in_a_thread() -> str:
        raise error

    function = raises_in_a_thread if plain else raises
    server.add_tool(function, name="tool")
    server.add_tool(raises_with_context, name="contextual")
    server.add_prompt(function, name="prompt")
    server.add_resource("a://b", function)
    return server


def traces(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The exceptions whose traces are in the log."""
    return [
        str(record.exc_info[1])
        for record in caplog.records
        if record.levelno == logging.ERROR and record.exc_info and record.name.startswith("ekiden")
    ]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_tool_that_raises_is_a_tool_error_without_the_reason_which_is_in_the_log(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call_tool(failing(OSError("secret-dsn"), plain=plain), "tool")
    assert result == {"content": [{"type": "text", "text": "Tool 'tool' failed"}], "isError": True}
    assert traces(caplog) == ["secret-dsn"]
    assert "raises" in caplog.text


async def test_a_tool_with_a_context_fails_in_the_same_way(caplog: pytest.LogCaptureFixture) -> None:
    result = await call_tool(failing(OSError("secret-dsn")), "contextual")
    assert result == {"content": [{"type": "text", "text": "Tool 'contextual' failed"}], "isError": True}
    assert traces(caplog) == ["secret-dsn"]


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "prompt"}), ("resources/read", {"uri": "a://b"})]
)
@pytest.mark.parametrize("plain", [False, True])
async def test_a_prompt_or_resource_that_raises_is_an_internal_error_without_the_reason(
    method: str, params: dict[str, str], plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    error = await error_of(failing(OSError("secret-dsn"), plain=plain), method, params)
    assert error == {"code": -32603, "message": "Internal error"}
    assert traces(caplog) == ["secret-dsn"]


@pytest.mark.parametrize("name", ["tool", "contextual"])
async def test_a_tool_error_tells_its_text_and_is_not_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call_tool(failing(ToolError("Try Hakone.")), name)
    assert result == {"content": [{"type": "text", "text": "Try Hakone."}], "isError": True}
    assert traces(caplog) == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "tool"}),
        ("tools/call", {"name": "contextual"}),
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "a://b"}),
    ],
)
@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (InvalidParams("bad", data={"k": 1}), {"code": -32602, "message": "bad", "data": {"k": 1}}),
        (ProtocolError("own", code=1234), {"code": 1234, "message": "own"}),
        (
            MissingCapability({"sampling": {}}),
            {
                "code": -32021,
                "message": "The client did not declare a required capability: sampling",
                "data": {"requiredCapabilities": {"sampling": {}}},
            },
        ),
    ],
)
async def test_a_protocol_error_raised_by_a_handler_is_that_error(
    method: str,
    params: dict[str, str],
    raised: ProtocolError,
    seen: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await error_of(failing(raised), method, params) == seen
    assert traces(caplog) == []


async def test_an_error_whose_data_cannot_be_spelled_is_still_an_answer() -> None:
    error = await error_of(failing(InvalidParams("bad", data=object())), "tools/call", {"name": "tool"})
    assert error["code"] in (-32602, -32603)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_stop_iteration_that_escapes_is_a_failure_like_any_other(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    async def asynchronous() -> str:
        return str(next(iter(())))

    def in_a_thread() -> str:
        return str(next(iter(())))

    server.add_tool(in_a_thread if plain else asynchronous, name="tool")
    assert (await call_tool(server, "tool"))["isError"] is True
    assert len(traces(caplog)) == 1


@pytest.mark.parametrize("contextual", [False, True])
async def test_a_cancelled_inner_future_is_not_taken_for_a_cancelled_request(
    contextual: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    async def wait_for_a_cancelled_task() -> str:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task
        return "never"

    async def with_context(ctx: Context) -> str:
        return await wait_for_a_cancelled_task()

    server.add_tool(with_context if contextual else wait_for_a_cancelled_task, name="tool")
    result = await call_tool(server, "tool")
    assert result == {"content": [{"type": "text", "text": "Tool 'tool' failed"}], "isError": True}
    assert len(traces(caplog)) == 1


async def test_a_prompt_with_a_cancelled_inner_future_is_an_internal_error() -> None:
    error = await error_of(failing(asyncio.CancelledError()), "prompts/get", {"name": "prompt"})
    assert error["code"] == -32603


async def test_a_timeout_inside_a_tool_is_a_failure_of_the_tool() -> None:
    server = Server("s")

    @server.tool
    async def slow() -> str:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
        return "never"

    @server.tool
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "never"

    assert (await call_tool(server, "slow"))["isError"] is True
    assert (await call_tool(server, "patient"))["content"][0]["text"] == "gave up"


async def test_failures_of_several_branches_are_one_tool_error(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    async def fail() -> None:
        raise OSError("secret-dsn")

    @server.tool
    async def branches() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(fail())
        return "never"

    result = await call_tool(server, "branches")
    assert result["isError"] is True
    assert "secret-dsn" not in str(result)
    assert len(traces(caplog)) == 1


async def test_the_server_goes_on_after_every_kind_of_failure() -> None:
    server = failing(OSError("x"))

    @server.tool
    async def fine() -> str:
        return "fine"

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        for n, message in enumerate(
            [
                call("tool", request_id=0),
                request("prompts/get", {"name": "prompt"}, request_id=1),
                request("resources/read", {"uri": "a://b"}, request_id=2),
                call("nobody", request_id=3),
                call("fine", request_id=4),
            ]
        ):
            await channel.send(message)
            response = await soon(channel.receive())
            assert response["id"] == n
        assert response["result"]["content"][0]["text"] == "fine"


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_exits_ends_its_call_and_not_the_server(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = failing(SystemExit("the library gives up"), plain=plain)
    server.add_tool(lambda: "still there", name="fine")
    for tool in ("tool", "contextual"):
        assert (await call_tool(server, tool))["isError"] is True
    assert (await error_of(server, "prompts/get", {"name": "prompt"}))["code"] == -32603
    assert (await error_of(server, "resources/read", {"uri": "a://b"}))["code"] == -32603
    assert (await call_tool(server, "fine"))["content"][0]["text"] == "still there"
    assert len(traces(caplog)) == 4
