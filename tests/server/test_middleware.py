import logging
from typing import Any

import pytest

from ekiden import (
    CallNext,
    Complete,
    Failed,
    InvalidParams,
    Outcome,
    ProtocolError,
    Request,
    Server,
    ToolError,
)
from tests.serving import ask, call_tool, error_of, post, request, result_of, served


def server_with_handlers() -> Server:
    server = Server("s")

    @server.tool
    async def tool(fail: bool = False) -> str:
        if fail:
            raise ToolError("failed")
        return "called"

    @server.prompt
    async def prompt() -> str:
        raise OSError("secret-dsn")

    @server.resource("a://b")
    async def resource() -> str:
        return "read"

    return server


async def test_the_first_registered_is_the_outermost() -> None:
    server = server_with_handlers()
    order: list[str] = []
    for name in ("outer", "middle", "inner"):

        def register(name: str = name) -> None:
            @server.middleware
            async def middleware(request: Request, call_next: CallNext) -> Outcome:
                order.append(f"{name} before")
                outcome = await call_next(request)
                order.append(f"{name} after")
                return outcome

        register()
    await call_tool(server, "tool")
    assert order == [
        "outer before",
        "middle before",
        "inner before",
        "inner after",
        "middle after",
        "outer after",
    ]


async def test_every_request_and_every_outcome_is_seen() -> None:
    server = server_with_handlers()
    seen: list[tuple[str, str | None, Outcome]] = []

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        seen.append((request.method, request.name, outcome))
        return outcome

    await result_of(server, "server/discover")
    await result_of(server, "tools/list")
    await call_tool(server, "tool")
    await call_tool(server, "tool", fail=True)
    await call_tool(server, "tool", unknown=1)
    await error_of(server, "tools/call", {"name": "nobody"})
    await error_of(server, "prompts/get", {"name": "prompt"})
    await result_of(server, "resources/read", {"uri": "a://b"})

    assert [(method, name) for method, name, _ in seen] == [
        ("server/discover", None),
        ("tools/list", None),
        ("tools/call", "tool"),
        ("tools/call", "tool"),
        ("tools/call", "tool"),
        ("tools/call", "nobody"),
        ("prompts/get", "prompt"),
        ("resources/read", "a://b"),
    ]
    discovered, listed, called, failed, refused, unknown, broken, read = [outcome for _, _, outcome in seen]
    assert isinstance(discovered, Complete)
    assert "capabilities" in discovered.as_dict()
    assert isinstance(listed, Complete)
    assert [tool["name"] for tool in listed.as_dict()["tools"]] == ["tool"]
    assert isinstance(called, Complete)
    assert called.as_dict()["content"][0]["text"] == "called"
    for error in (failed, refused):
        assert isinstance(error, Complete)
        assert error.as_dict()["isError"] is True
    assert isinstance(unknown, Failed)
    assert unknown.error.code == -32602
    assert isinstance(broken, Failed)
    assert broken.error.code == -32603
    assert isinstance(read, Complete)


async def test_a_middleware_may_answer_instead_of_the_handler() -> None:
    server = server_with_handlers()

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        if request.name == "tool":
            return Complete({"content": [{"type": "text", "text": "from the cache"}]})
        return await call_next(request)

    assert (await call_tool(server, "tool"))["content"][0]["text"] == "from the cache"
    assert (await result_of(server, "resources/read", {"uri": "a://b"}))["contents"][0]["text"] == "read"


async def test_a_middleware_may_replace_the_outcome() -> None:
    server = server_with_handlers()

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if isinstance(outcome, Failed):
            return Failed(ProtocolError("replaced", code=7))
        return outcome

    error = await error_of(server, "prompts/get", {"name": "prompt"})
    assert error == {"code": 7, "message": "replaced"}


async def test_a_middleware_may_change_what_the_handler_gets() -> None:
    server = server_with_handlers()

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        request.params["arguments"] = {"fail": True}
        return await call_next(request)

    assert (await call_tool(server, "tool"))["isError"] is True


async def test_a_protocol_error_raised_by_a_middleware_is_the_answer() -> None:
    server = server_with_handlers()

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        raise InvalidParams("not today", data={"until": "tomorrow"})

    error = await error_of(server, "tools/call", {"name": "tool"})
    assert error == {"code": -32602, "message": "not today", "data": {"until": "tomorrow"}}


async def test_a_protocol_error_raised_by_an_inner_middleware_is_an_outcome_for_the_outer() -> None:
    server = server_with_handlers()
    seen: list[Outcome] = []

    @server.middleware
    async def outer(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        seen.append(outcome)
        return outcome

    @server.middleware
    async def inner(request: Request, call_next: CallNext) -> Outcome:
        raise InvalidParams("not today")

    await error_of(server, "tools/call", {"name": "tool"})
    (outcome,) = seen
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "not today"


async def test_a_middleware_that_breaks_is_an_internal_error_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = server_with_handlers()

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        raise OSError("secret-dsn")

    error = await error_of(server, "tools/call", {"name": "tool"})
    assert error["code"] == -32603
    assert "secret-dsn" not in str(error)
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)


async def test_over_http_a_middleware_sees_the_headers_and_its_errors_have_their_status() -> None:
    server = server_with_handlers()
    seen: list[Any] = []

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        assert request.headers is not None
        seen.append(request.headers.get(b"x-tenant"))
        if seen[-1] is None:
            raise InvalidParams("no tenant")
        return await call_next(request)

    async with served(server) as base:
        message = request("tools/list")
        assert (await post(base, message, x_tenant="a")).status_code == 200
        refused = await post(base, message)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "no tenant"
    assert seen == [b"a", None]


async def test_without_a_header_layer_a_middleware_sees_none() -> None:
    server = server_with_handlers()
    seen: list[Any] = []

    @server.middleware
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        seen.append(request.headers)
        return await call_next(request)

    await ask(server, "tools/list")
    assert seen == [None]


async def test_the_decorator_gives_the_function_back() -> None:
    async def middleware(request: Request, call_next: CallNext) -> Outcome:
        return await call_next(request)

    assert Server("s").middleware(middleware) is middleware
