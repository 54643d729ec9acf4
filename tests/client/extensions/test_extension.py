"""Extensions on a client: what it declares, and how it takes what only an extension knows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import (
    CallNext,
    CallTimeout,
    Client,
    InvalidResult,
    Outcome,
    RegistrationError,
    Request,
    Server,
    ServerError,
    TransportError,
    UsageError,
)
from ekiden.extensions import (
    ClientExtension,
    ClientRequest,
    Extension,
    ExtensionContext,
    ExtensionResult,
    Interrupted,
)
from tests.serving import served

NAME = "com.example/receipts"
TASKS = "io.modelcontextprotocol/tasks"


def shop() -> Server:
    """A server that answers calls with a receipt, which can be redeemed for the result."""
    receipts = Extension(NAME, result_types=["receipt"], sends=["notifications/receipts/printed"])

    @receipts.intercept(methods=["tools/call"])
    async def hand_out(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if request.name == "paid":
            return outcome
        return ExtensionResult({"number": 7}, result_type="receipt")

    @receipts.method("receipts/redeem")
    async def redeem(number: int, ctx: ExtensionContext) -> dict[str, Any]:
        await ctx.notify("notifications/receipts/printed", {"number": number})
        return {"content": [{"type": "text", "text": f"tea for {number}"}]}

    @receipts.method("receipts/declared")
    async def declared(ctx: ExtensionContext) -> dict[str, Any]:
        return {"extensions": ctx.request.meta.capabilities.get("extensions")}

    server = Server("shop", extensions=[receipts])

    @server.tool
    async def buy(item: str) -> str:
        return item

    @server.tool
    async def paid() -> str:
        return "paid"

    return server


def redeeming(**options: Any) -> ClientExtension:
    extension = ClientExtension(NAME, **options)

    @extension.result("receipt")
    async def finish(call: Interrupted) -> dict[str, Any]:
        assert (call.method, call.name) == ("tools/call", "buy")
        return await call.request("receipts/redeem", {"number": call.result["number"]})

    return extension


async def test_what_a_client_declares_depends_on_the_era() -> None:
    extension = ClientExtension(NAME, settings={"paper": "a4"})
    async with Client(shop(), extensions=[extension]) as client:
        seen = (await client.request("receipts/declared"))["extensions"]
        assert seen == {TASKS: {}, NAME: {"paper": "a4"}}
    async with Client(shop(), extensions=[extension], mode="legacy") as client:
        assert (await client.request("receipts/declared"))["extensions"] == {NAME: {"paper": "a4"}}
    async with Client(shop(), mode="legacy") as client:
        assert (await client.request("receipts/declared"))["extensions"] is None


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_a_call_that_is_answered_with_another_type_is_finished_by_its_extension(over: str) -> None:
    printed: list[Any] = []
    extension, server = redeeming(), shop()
    extension.notification("notifications/receipts/printed")(printed.append)
    async with served(server) as base:
        target: Any = server if over == "memory" else base + "/mcp"
        async with Client(target, extensions=[extension]) as client:
            result = await client.call_tool("buy", {"item": "tea"})
            assert result.content[0].text == "tea for 7"  # type: ignore[union-attr]
            assert (await client.call_tool("paid")).content[0].text == "paid"  # type: ignore[union-attr]
    assert printed == [{"number": 7}]


async def test_a_call_by_hand_is_finished_too() -> None:
    async with Client(shop(), extensions=[redeeming()]) as client:
        result: Any = await client.start_tool("buy", {"item": "tea"})
        assert result.content[0].text == "tea for 7"


async def test_without_the_extension_the_server_sends_an_error() -> None:
    async with Client(shop()) as client:
        with pytest.raises(ServerError, match="only for clients that declare the extension"):
            await client.call_tool("buy", {"item": "tea"})


async def test_a_type_that_nobody_claims_is_the_servers_error() -> None:
    async with Client(shop(), extensions=[ClientExtension(NAME)]) as client:
        with pytest.raises(InvalidResult, match="unknown type: 'receipt'"):
            await client.call_tool("buy", {"item": "tea"})


@pytest.mark.parametrize("result", [3, {"resultType": "receipt"}])
async def test_what_does_not_finish_a_call_is_an_error(result: Any) -> None:
    extension = ClientExtension(NAME)

    @extension.result("receipt")
    async def finish(call: Interrupted) -> Any:
        return result

    async with Client(shop(), extensions=[extension]) as client:
        with pytest.raises(InvalidResult, match=r"'com\.example/receipts'"):
            await client.call_tool("buy", {"item": "tea"})


async def test_the_time_limit_of_a_call_holds_for_what_finishes_it() -> None:
    extension = ClientExtension(NAME)

    @extension.result("receipt")
    async def finish(call: Interrupted) -> Any:
        while True:
            await call.request("receipts/redeem", {"number": 1})

    async with Client(shop(), extensions=[extension]) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("buy", {"item": "tea"}, timeout=0.1)


# Custom messages


class Redeemed(BaseModel):
    content: list[dict[str, Any]]


async def test_a_custom_request_gives_a_dict_or_a_model() -> None:
    async with Client(shop()) as client:
        assert "content" in await client.request("receipts/redeem", {"number": 1})
        read = await client.request("receipts/redeem", {"number": 1}, result_type=Redeemed)
        assert read.content[0]["text"] == "tea for 1"
        with pytest.raises(ServerError, match="number"):
            await client.request("receipts/redeem")


async def test_methods_of_the_protocol_are_not_custom_messages() -> None:
    async with Client(shop()) as client:
        with pytest.raises(UsageError, match="'tools/call' is a method of the protocol"):
            await client.request("tools/call", {"name": "buy"})
        with pytest.raises(UsageError, match="'notifications/progress' is a method of the protocol"):
            await client.notify("notifications/progress")


async def test_a_client_knows_what_the_server_declares() -> None:
    async with Client(shop()) as client:
        assert (client.server_extension(NAME), client.server_extension(TASKS)) == ({}, None)


async def test_a_notification_that_fails_does_not_harm_the_request(caplog: pytest.LogCaptureFixture) -> None:
    extension = ClientExtension(NAME)

    @extension.notification("notifications/receipts/printed")
    def printed(params: dict[str, Any]) -> None:
        raise OSError("on purpose")

    async with Client(shop(), extensions=[extension]) as client:
        assert "content" in await client.request("receipts/redeem", {"number": 1})
    assert "on purpose" in caplog.text


# Interception and lifespan


async def test_interceptors_see_requests_and_results_in_the_order_of_the_list() -> None:
    order: list[str] = []

    def noting(name: str) -> ClientExtension:
        extension = ClientExtension(f"com.example/{name}")

        @extension.intercept
        async def note(request: ClientRequest, send: Any) -> Any:
            order.append(f"{name} {request.method}")
            result = await send(request)
            order.append(f"{name} has {'content' in result}")
            return {**result, "seen": [*result.get("seen", []), name]}

        return extension

    async with Client(shop(), extensions=[noting("outer"), noting("inner")]) as client:
        result = await client.request("receipts/redeem", {"number": 1})
    assert result["seen"] == ["inner", "outer"]
    assert order == [
        "outer receipts/redeem",
        "inner receipts/redeem",
        "inner has True",
        "outer has True",
    ]


async def test_a_lifespan_surrounds_the_connection() -> None:
    order: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[str, None]:
        order.append("enter")
        yield "printer"
        order.append("leave")

    extension = ClientExtension(NAME, lifespan=lifespan)

    @extension.result("receipt")
    async def finish(call: Interrupted) -> Any:
        return {"content": [{"type": "text", "text": call.state}]}

    async with Client(shop(), extensions=[extension]) as client:
        result = await client.call_tool("buy", {"item": "tea"})
        assert result.content[0].text == "printer"  # type: ignore[union-attr]
        assert order == ["enter"]
    assert order == ["enter", "leave"]


async def test_two_clients_with_one_extension_have_a_lifespan_each() -> None:
    numbers = iter("12")

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[str, None]:
        yield next(numbers)

    extension = ClientExtension(NAME, lifespan=lifespan)

    @extension.result("receipt")
    async def finish(call: Interrupted) -> Any:
        return {"content": [{"type": "text", "text": call.state}]}

    server = shop()
    async with Client(server, extensions=[extension]) as one, Client(server, extensions=[extension]) as two:
        texts = [(await each.call_tool("buy", {"item": "tea"})).content[0] for each in (one, two)]
    assert [text.text for text in texts] == ["1", "2"]  # type: ignore[union-attr]


async def test_a_lifespan_is_left_if_the_client_cannot_connect() -> None:
    order: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None, None]:
        order.append("enter")
        try:
            yield
        finally:
            order.append("leave")

    extension = ClientExtension(NAME, lifespan=lifespan)
    with pytest.raises(TransportError):
        async with Client("http://127.0.0.1:9/mcp", extensions=[extension], timeout=2.0):
            pass
    assert order == ["enter", "leave"]


# Bad input


def test_bad_input_is_refused() -> None:
    with pytest.raises(RegistrationError, match="'receipts' is not the identifier"):
        ClientExtension("receipts")
    with pytest.raises(RegistrationError, match="settings must be a JSON object"):
        ClientExtension(NAME, settings={"a": object()})
    with pytest.raises(RegistrationError, match="is a result type of the protocol"):
        ClientExtension(NAME).result("complete")
    with pytest.raises(RegistrationError, match="is a method of the protocol"):
        ClientExtension(NAME).notification("notifications/progress")
    with pytest.raises(RegistrationError, match="has 'receipt' already"):
        redeeming().result("receipt")


def test_two_extensions_that_claim_the_same_are_refused() -> None:
    for extensions in ([redeeming(), redeeming()], [ClientExtension(TASKS)]):
        with pytest.raises(RegistrationError, match="is taken already"):
            Client("x", extensions=extensions)
    other = ClientExtension("com.example/other")
    other.result("receipt")(lambda call: call)  # type: ignore[arg-type,return-value]
    with pytest.raises(RegistrationError, match="'type receipt' is taken already"):
        Client("x", extensions=[redeeming(), other])
    stealing = ClientExtension(NAME)
    stealing.result("task")(lambda call: call)  # type: ignore[arg-type,return-value]
    with pytest.raises(RegistrationError, match="'type task' is taken already"):
        Client("x", extensions=[stealing])
    with pytest.raises(RegistrationError, match="takes `ClientExtension` objects"):
        Client("x", extensions=[Extension(NAME)])  # type: ignore[list-item]
