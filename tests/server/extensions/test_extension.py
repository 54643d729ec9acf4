"""Extensions of authors on a server (SEP-2133, SEP-3371)."""

import asyncio
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from ekiden import (
    CallNext,
    Client,
    Complete,
    Outcome,
    Outgoing,
    Request,
    SendOn,
    Server,
    ServerError,
)
from ekiden.extensions import ClientExtension, Extension, ExtensionContext, ExtensionResult
from ekiden.stores.memory import MemoryStore
from tests.server.extensions.searching import DECLARED, NAME, search, serving
from tests.serving import PATIENCE, ask, error_of, notification, post, result_of, served

# Capabilities and methods


async def test_settings_are_declared_under_the_identifier() -> None:
    server = serving(search(settings={"fuzzy": True}), Extension("com.example/plain"))
    declared = (await result_of(server, "server/discover"))["capabilities"]["extensions"]
    assert declared == {NAME: {"fuzzy": True}, "com.example/plain": {}}


def test_a_server_tells_which_extensions_it_has() -> None:
    server = serving(search(), store=MemoryStore())
    assert server.extensions == (NAME,)

    @server.tool(task="optional")
    async def long() -> str:
        return "x"

    assert server.extensions == ("io.modelcontextprotocol/tasks", NAME)


async def test_without_extensions_none_are_declared() -> None:
    assert "extensions" not in (await result_of(Server("s"), "server/discover"))["capabilities"]


async def test_a_method_is_called_with_the_parameters_of_the_request() -> None:
    server = serving(search())
    result = (await ask(server, "search/find", {"text": "a", "most": 2}))["result"]
    assert (result["found"], result["resultType"]) == (["a", "a"], "complete")


async def test_parameters_that_a_method_does_not_know_are_left_out() -> None:
    """A later revision of an extension may add some."""
    result = await result_of(serving(search()), "search/find", {"text": "a", "most": 1, "newer": True})
    assert result["found"] == ["a"]


@pytest.mark.parametrize("params", [{}, {"text": 1}, {"text": "a", "most": "2"}])
async def test_wrong_parameters_are_an_error_of_the_caller(params: Any) -> None:
    error = await error_of(serving(search()), "search/find", params)
    assert error["code"] == -32602
    assert "search/find" in error["message"]


async def test_a_method_that_no_extension_has_is_not_found() -> None:
    assert (await error_of(serving(search()), "search/lose"))["code"] == -32601
    assert (await error_of(Server("s"), "search/find"))["code"] == -32601


class Found(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    most_hits: int = Field(alias="mostHits")


class Counted(msgspec.Struct, rename="camel"):
    most_hits: int


async def test_a_result_is_a_dict_a_model_a_struct_or_nothing() -> None:
    extension = Extension(NAME)
    values: list[Any] = [{"mostHits": 3}, Found(mostHits=3), Counted(3), None, Complete({"mostHits": 3})]

    @extension.method("search/next")
    async def next_value() -> Any:
        return values.pop(0)

    server = serving(extension)
    seen = [(await result_of(server, "search/next")).get("mostHits") for _ in range(5)]
    assert seen == [3, 3, 3, None, 3]


@pytest.mark.parametrize(
    ("value", "logged"),
    [
        (3, "must return an object"),
        (
            {"resultType": "input_required", "inputRequests": {}},
            "results of another type as `ExtensionResult`",
        ),
        ({"resultType": 3}, "results of another type as `ExtensionResult`"),
        ({"_meta": 3}, "an object as `_meta`"),
        (OSError("secret"), "secret"),
    ],
)
async def test_what_is_no_result_and_what_raises_is_the_authors_error(
    value: Any, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    extension = Extension(NAME)

    @extension.method("search/wrong")
    async def wrong() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    error = await error_of(serving(extension), "search/wrong")
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert logged in caplog.text
    async with Client(serving(extension), mode="legacy") as client:
        with pytest.raises(ServerError, match="Internal error"):
            await client.request("search/wrong", {})


async def test_an_interceptor_that_gives_no_outcome_is_named(caplog: pytest.LogCaptureFixture) -> None:
    extension = Extension(NAME)

    @extension.intercept(methods=["server/discover"])
    async def forgetful(request: Any, call_next: Any) -> Any:
        await call_next(request)

    error = await error_of(serving(extension), "server/discover")
    assert error["code"] == -32603
    assert "forgetful' must return an outcome" in caplog.text
    assert "partial" not in caplog.text


async def test_a_plain_function_answers_too() -> None:
    extension = Extension(NAME)

    @extension.method("search/plain")
    def plain() -> dict[str, int]:
        return {"n": 1}

    assert (await result_of(serving(extension), "search/plain"))["n"] == 1


# What a client declares


async def test_a_mutual_extension_refuses_clients_that_do_not_declare_it() -> None:
    server = serving(search(mutual=True))
    error = await error_of(server, "search/find", {"text": "a"})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {NAME: {}}}})
    answered = await ask(server, "search/find", {"text": "a", "most": 1}, **DECLARED)
    assert answered["result"]["found"] == ["a"]


async def test_a_function_sees_what_the_client_declares() -> None:
    extension = Extension(NAME)

    @extension.method("search/seen")
    async def seen(ctx: ExtensionContext) -> dict[str, Any]:
        return {"settings": ctx.client_settings, "method": ctx.request.method}

    server = serving(extension)
    declared = (await ask(server, "search/seen", **DECLARED))["result"]
    assert (declared["settings"], declared["method"]) == ({"fuzzy": True}, "search/seen")
    assert (await result_of(server, "search/seen"))["settings"] is None


# Result types


def receipts(**options: Any) -> Server:
    """A server whose tools are answered with a receipt by an extension."""
    extension = Extension(NAME, result_types=["receipt"], **options)

    @extension.intercept(methods=["tools/call"])
    async def hand_out(request: Request, call_next: CallNext) -> Outcome:
        if request.name == "wrong":
            return ExtensionResult({"number": 1}, result_type="bill")
        return ExtensionResult({"number": 7, "_meta": {"com.example/x": 1}}, result_type="receipt")

    server = serving(extension)

    @server.tool
    async def buy() -> str:
        return "never"

    @server.tool
    async def wrong() -> str:
        return "never"

    return server


async def test_a_result_of_an_own_type_goes_to_a_client_that_declares_the_extension() -> None:
    answered = await ask(receipts(), "tools/call", {"name": "buy"}, **DECLARED)
    result = answered["result"]
    assert (result["resultType"], result["number"]) == ("receipt", 7)
    assert set(result["_meta"]) == {"com.example/x", "io.modelcontextprotocol/serverInfo"}


async def test_a_client_that_does_not_declare_it_gets_an_error_instead() -> None:
    error = await error_of(receipts(), "tools/call", {"name": "buy"})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {NAME: {}}}})


async def test_a_type_that_the_extension_does_not_declare_never_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answered = await ask(receipts(), "tools/call", {"name": "wrong"}, **DECLARED)
    assert answered["error"]["code"] == -32603
    assert "'bill', which is not one of its result_types" in caplog.text


async def test_a_client_of_2025_gets_no_result_of_another_type() -> None:
    async with Client(receipts(), mode="legacy", extensions=[ClientExtension(NAME)]) as client:
        with pytest.raises(ServerError, match="'receipt' needs protocol version 2026-07-28"):
            await client.call_tool("buy")


# Notifications


async def test_a_method_can_notify_before_its_result() -> None:
    extension = Extension(NAME, sends=["notifications/search/hit"])

    @extension.method("search/watch")
    async def watch(ctx: ExtensionContext) -> None:
        await ctx.notify("notifications/search/hit", {"text": "a"})

    server = serving(extension)
    heard: list[Any] = []
    listening = ClientExtension(NAME)
    listening.notification("notifications/search/hit")(heard.append)
    for mode in ("modern", "legacy"):
        async with Client(server, mode=mode, extensions=[listening]) as client:  # type: ignore[arg-type]
            await client.request("search/watch")
    assert heard == [{"text": "a"}] * 2


async def test_only_declared_notifications_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    extension = Extension(NAME)

    @extension.method("search/watch")
    async def watch(ctx: ExtensionContext) -> None:
        await ctx.notify("notifications/search/hit")

    assert (await error_of(serving(extension), "search/watch"))["code"] == -32603
    assert "must be one of the extension's `sends`" in caplog.text


@pytest.mark.parametrize("mode", ["modern", "legacy"])
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_a_notification_of_a_client_is_taken(mode: Any, over: str) -> None:
    extension, taken = Extension(NAME), asyncio.Queue[str]()

    @extension.notification("notifications/search/selected")
    async def selected(text: str, ctx: ExtensionContext) -> None:
        taken.put_nowait(f"{ctx.request.kind} {text}")

    server = serving(extension)
    async with served(server) as base, asyncio.timeout(PATIENCE):
        target: Any = server if over == "memory" else base + "/mcp"
        async with Client(target, mode=mode) as client:
            await client.notify("notifications/search/selected", {"text": "a"})
            assert await taken.get() == "notification a"


async def test_a_notification_that_middleware_refuses_is_not_taken() -> None:
    extension, taken = Extension(NAME), asyncio.Queue[str]()

    @extension.notification("notifications/search/selected")
    async def selected(text: str) -> None:
        taken.put_nowait(text)

    server = serving(extension)

    @server.middleware
    async def refuse(request: Request, call_next: CallNext) -> Outcome:
        return Complete({}) if request.params.get("text") == "dropped" else await call_next(request)

    async with served(server) as base, asyncio.timeout(PATIENCE):
        for text in ("dropped", "kept"):
            sent = notification("notifications/search/selected", {"text": text})
            assert (await post(base, sent)).status_code == 202
        assert await taken.get() == "kept"


async def test_a_notification_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    extension, ended = Extension(NAME), asyncio.Event()

    @extension.notification("notifications/search/broken")
    async def broken() -> None:
        ended.set()
        raise OSError("on purpose")

    @extension.notification("notifications/search/typed")
    async def typed(text: str) -> None:
        raise AssertionError(text)

    @extension.notification("notifications/search/telling")
    async def telling(ctx: ExtensionContext) -> None:
        await ctx.notify("notifications/search/broken")

    async with Client(serving(extension)) as client, asyncio.timeout(PATIENCE):
        await client.notify("notifications/search/typed", {"text": 3})
        await client.notify("notifications/search/broken")
        await ended.wait()
        while "on purpose" not in caplog.text:
            await asyncio.sleep(0)
    assert "notifications/search/typed was not understood" in caplog.text


# Interception


async def test_interceptors_run_inside_the_servers_middleware_in_the_order_of_the_list() -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        async def note(request: Request, call_next: CallNext) -> Outcome:
            order.append(name)
            return await call_next(request)

        return note

    first, second = Extension("com.example/first"), Extension("com.example/second")
    first.intercept(noting("first"))
    first.intercept(methods=["tools/list"])(noting("lists only"))
    second.intercept(noting("second"))
    server = serving(first, second)
    server.middleware(noting("server"))
    server.middleware(noting("server too"))
    await result_of(server, "server/discover")
    assert order == ["server", "server too", "first", "second"]
    order.clear()
    await ask(server, "tools/list")
    assert order == []  # No tool is registered, so there is no such method.


async def test_what_is_sent_can_be_changed() -> None:
    extension = search()

    @extension.outgoing
    async def label(message: Outgoing, send: SendOn) -> None:
        if message.is_response and message.method == "search/find":
            message.body["result"]["labelled"] = True
        await send(message)

    assert (await result_of(serving(extension), "search/find", {"text": "a"}))["labelled"] is True
