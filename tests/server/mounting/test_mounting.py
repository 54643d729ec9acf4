"""Servers inside servers: lists, calls, questions, tasks, subscriptions, lifespans, in both eras."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from ekiden import Client, Context, RegistrationError, Server, UsageError
from ekiden.errors import ServerError
from ekiden.server.auth.auth import Auth
from ekiden.server.auth.static import StaticTokens
from ekiden.server.middleware import CallNext
from ekiden.wire.modern import Request
from ekiden.wire.principal import Principal

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
KEYS = [bytes(range(32))]


async def _yes(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


def _billing(**options: Any) -> Server:
    billing = Server("billing", **options)

    @billing.tool
    async def refund(order: str, ctx: Context[Any]) -> str:
        answer = await ctx.elicit(f"Refund {order}?", bool)
        return f"{order}: {answer.action}"

    @billing.tool
    def receipt() -> CallToolResult:
        shown = TextResourceContents(uri="config://app", text="x")
        return CallToolResult(
            content=[
                TextContent(type="text", text="see"),
                ResourceLink(type="resource_link", uri="config://app", name="app"),
                ResourceLink(type="resource_link", uri="https://example.org/page", name="page"),
                EmbeddedResource(type="resource", resource=shown),
            ]
        )

    @billing.prompt
    def dunning(name: str) -> str:
        return f"Dear {name}"

    @billing.resource("config://app")
    def config() -> str:
        return "currency=EUR"

    @billing.resource("order://{number}")
    def order(number: str) -> str:
        return f"order {number}"

    @billing.completion(argument="name", prompt="dunning")
    def names(value: str) -> list[str]:
        return [value + "a"]

    @billing.completion(argument="number", resource="order://{number}")
    def numbers(value: str) -> list[str]:
        return [value + "1"]

    return billing


def _shop(**options: Any) -> Server:
    shop = Server("shop", **options)

    @shop.tool
    def hello() -> str:
        return "hello"

    return shop


def _text(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
async def test_everything_of_a_mounted_server_is_listed_and_answers_under_its_prefix(era: Era) -> None:
    shop = _shop(keys=KEYS)
    shop.mount(_billing(), prefix="billing")
    async with Client(shop, mode=era, elicit=_yes) as client:
        listed = {
            "tools": [tool.name for tool in await client.list_tools()],
            "prompts": [prompt.name for prompt in await client.list_prompts()],
            "resources": [str(resource.uri) for resource in await client.list_resources()],
            "templates": [each.uri_template for each in await client.list_resource_templates()],
        }
        assert listed == {
            "tools": ["hello", "billing_refund", "billing_receipt"],
            "prompts": ["billing_dunning"],
            "resources": ["billing+config://app"],
            "templates": ["billing+order://{number}"],
        }
        assert _text(await client.call_tool("hello")) == "hello"
        assert _text(await client.call_tool("billing_refund", {"order": "A1"})) == "A1: accept"
        prompt = await client.get_prompt("billing_dunning", {"name": "Ada"})
        assert prompt.messages[0].content.text == "Dear Ada"  # type: ignore[union-attr]
        read = [
            (await client.read_resource(uri)).contents[0]
            for uri in ("billing+config://app", "billing+order://7")
        ]
        assert [(str(each.uri), each.text) for each in read] == [  # type: ignore[union-attr]
            ("billing+config://app", "currency=EUR"),
            ("billing+order://7", "order 7"),
        ]
        suggested = [
            (await client.complete(argument="name", value="x", prompt="billing_dunning")).values,
            (await client.complete(argument="number", value="1", resource="billing+order://{number}")).values,
        ]
        assert suggested == [["xa"], ["11"]]


@pytest.mark.parametrize("era", ERAS)
async def test_links_in_results_can_be_read_where_they_are_seen(era: Era) -> None:
    shop = _shop()
    shop.mount(_billing(), prefix="billing")
    async with Client(shop, mode=era) as client:
        blocks = (await client.call_tool("billing_receipt")).content
        uris = [str(blocks[1].uri), str(blocks[2].uri), str(blocks[3].resource.uri)]  # type: ignore[union-attr]
        assert uris == ["billing+config://app", "https://example.org/page", "billing+config://app"]
        assert (await client.read_resource(uris[0])).contents


async def test_an_unknown_uri_of_a_mounted_server_is_named_as_the_client_spelled_it() -> None:
    shop = _shop()
    shop.mount(_billing(), prefix="billing")
    async with Client(shop) as client:
        with pytest.raises(ServerError) as caught:
            await client.read_resource("billing+config://nowhere")
        assert caught.value.data == {"uri": "billing+config://nowhere"}


async def test_without_a_prefix_names_stay_as_they_are() -> None:
    shop = _shop()
    shop.mount(_billing())
    async with Client(shop, elicit=_yes) as client:
        assert [tool.name for tool in await client.list_tools()] == ["hello", "refund", "receipt"]
        assert (await client.read_resource("config://app")).contents[0].text == "currency=EUR"  # type: ignore[union-attr]
        assert _text(await client.call_tool("refund", {"order": "A1"})) == "A1: accept"


async def test_one_server_can_be_mounted_twice_and_in_servers_that_are_mounted() -> None:
    billing, europe, world = _billing(), _shop(), Server("world", keys=KEYS)
    europe.mount(billing, prefix="eu")
    europe.mount(billing, prefix="us")
    world.mount(europe, prefix="west")
    async with Client(world, elicit=_yes) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == [
            "west_hello",
            *(f"west_{p}_{n}" for p in ("eu", "us") for n in ("refund", "receipt")),
        ]
        assert _text(await client.call_tool("west_us_refund", {"order": "A1"})) == "A1: accept"
        read = await client.read_resource("west+eu+order://7")
        assert read.contents[0].text == "order 7"  # type: ignore[union-attr]


async def test_another_process_goes_on_with_a_call_of_a_mounted_server_without_keys_of_its_own() -> None:
    def process() -> Server:
        shop = _shop(keys=KEYS)
        shop.mount(_billing(), prefix="billing")
        return shop

    async with Client(process(), elicit=_yes) as first, Client(process(), elicit=_yes) as second:
        pending = await first.start_tool("billing_refund", {"order": "A1"})
        result = await second.resume(pending)  # type: ignore[arg-type]
        assert _text(result) == "A1: accept"


@pytest.mark.parametrize("era", ERAS)
async def test_tasks_of_a_mounted_server_are_seen_through_the_outer_one(era: Era) -> None:
    billing = Server("billing", store="memory:")

    @billing.tool(task="required")
    async def audit(ctx: Context[Any]) -> str:
        answer = await ctx.elicit("Go on?", bool)
        return f"audited: {answer.action}"

    shop = _shop()
    shop.mount(billing, prefix="billing")
    assert shop.has_tasks
    async with Client(shop, mode=era, elicit=_yes) as client:
        handle = await client.start_tool("billing_audit")
        assert _text(await handle.wait(timeout=20)) == "audited: accept"  # type: ignore[union-attr]
        assert (await handle.status()).status == "completed"  # type: ignore[union-attr]
        with pytest.raises(ServerError, match="Unknown task"):
            await client.task("0" * 32).status()


class LossyBus:
    """A bus of which a listener hears only that it has missed something."""

    def __init__(self) -> None:
        self.hear: Callable[[bytes | None], None] = lambda message: None

    def publish(self, message: bytes) -> None:
        raise AssertionError("nothing changes here")

    async def listen(self, hear: Callable[[bytes | None], None]) -> Callable[[], None]:
        self.hear = hear
        return lambda: None

    async def close(self) -> None:
        pass


async def test_what_a_mounted_server_has_missed_of_other_processes_may_have_changed_for_outer_clients() -> (
    None
):
    billing, shop, bus = _billing(), _shop(), LossyBus()
    billing.endpoint.registry.hub.connect(bus, "billing")
    shop.mount(billing, prefix="billing")
    async with Client(shop) as client:
        stream = client.listen(tools=True, uris=("billing+config://app",))
        reading = asyncio.create_task(anext(stream))
        while not shop.endpoint.registry.hub.watched():
            await asyncio.sleep(0)
        bus.hear(None)
        first, second = await asyncio.wait_for(reading, 10), await asyncio.wait_for(anext(stream), 10)
        await stream.aclose()
    assert {(each["method"], each["params"].get("uri")) for each in (first, second)} == {
        ("notifications/resources/updated", "billing+config://app"),
        ("notifications/tools/list_changed", None),
    }


async def test_changes_of_a_mounted_server_are_told_to_clients_of_the_outer_one() -> None:
    billing, shop = _billing(), _shop()
    shop.mount(billing, prefix="billing")
    async with Client(shop) as client:
        seen: list[tuple[str, Any]] = []
        stream = client.listen(tools=True, uris=("billing+config://app",))
        reading = asyncio.create_task(anext(stream))
        while not shop.endpoint.registry.hub.watched():
            await asyncio.sleep(0)
        assert billing.endpoint.registry.hub.watched() == {"config://app"}
        billing.resource_updated("config://app")
        first = await asyncio.wait_for(reading, 10)
        seen.append((first["method"], first["params"].get("uri")))

        @billing.tool
        def late() -> str:
            return "late"

        second = await asyncio.wait_for(anext(stream), 10)
        seen.append((second["method"], second["params"].get("uri")))
        await stream.aclose()
        assert seen == [
            ("notifications/resources/updated", "billing+config://app"),
            ("notifications/tools/list_changed", None),
        ]
        assert _text(await client.call_tool("billing_late")) == "late"
        billing.remove_tool("late")
        assert "billing_late" not in [tool.name for tool in await client.list_tools()]


async def test_lifespans_and_middleware_of_mounted_servers_run() -> None:
    events: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def enter(_: Server) -> AsyncGenerator[str, None]:
            events.append(f"{name} starts")
            yield f"state of {name}"
            events.append(f"{name} stops")

        return enter

    billing = Server("billing", lifespan=lifespan("billing"))

    @billing.middleware
    async def watch(request: Request, call_next: CallNext) -> Any:
        events.append(f"{request.method} {request.name}")
        return await call_next(request)

    @billing.tool
    async def state(ctx: Context[str]) -> str:
        return ctx.state

    shop = Server("shop", lifespan=lifespan("shop"))
    shop.mount(billing, prefix="billing")
    async with Client(shop) as client:
        assert _text(await client.call_tool("billing_state")) == "state of billing"
    assert events == [
        "billing starts",
        "shop starts",
        "tools/call state",
        "shop stops",
        "billing stops",
    ]


async def test_who_the_caller_is_separates_the_tasks_of_a_mounted_server() -> None:
    billing = Server("billing", store="memory:")

    @billing.tool(task="required")
    async def audit() -> str:
        return "done"

    who = ["ada"]
    shop = _shop(principal=lambda _: who[0])
    shop.mount(billing, prefix="billing")
    async with Client(shop) as client:
        handle = await client.start_tool("billing_audit")
        await handle.wait(timeout=20)  # type: ignore[union-attr]
        who[0] = "bob"
        with pytest.raises(ServerError, match="Unknown task"):
            await handle.status()  # type: ignore[union-attr]


@pytest.mark.parametrize("prefix", ["", "1st", "bil ling", "a/b", "ü", "x" * 33])
def test_what_cannot_be_a_prefix_is_refused(prefix: str) -> None:
    if prefix:
        with pytest.raises(RegistrationError, match="cannot be a prefix: use a letter"):
            _shop().mount(_billing(), prefix=prefix)
    else:
        _shop().mount(_billing(), prefix=prefix)


def test_what_cannot_be_mounted_is_refused_with_advice() -> None:
    shop, billing = _shop(), _billing()
    shop.mount(billing, prefix="billing")
    with pytest.raises(RegistrationError, match="the prefix 'billing' is taken: choose another"):
        shop.mount(_shop(audience="other"), prefix="billing")
    with pytest.raises(RegistrationError, match="'shop' cannot be mounted in itself"):
        billing.mount(shop, prefix="shop")
    with pytest.raises(RegistrationError, match=r"two servers are called 'billing'.*another audience="):
        shop.mount(_billing(), prefix="b2")
    with pytest.raises(UsageError, match="takes a Server, not str"):
        shop.mount("https://example.org/mcp")  # type: ignore[arg-type]
    guarded = Server(
        "guarded", auth=Auth("https://mcp.example/mcp", verifier=StaticTokens({"secret": Principal("ada")}))
    )
    with pytest.raises(RegistrationError, match="'guarded' has an auth= of its own"):
        shop.mount(guarded, prefix="guarded")


def test_a_name_that_is_taken_is_an_error_and_mounts_nothing() -> None:
    shop = _shop()

    @shop.tool
    def billing_receipt() -> str:
        return "mine"

    with pytest.raises(RegistrationError, match="Tool 'billing_receipt' is registered already: mount with"):
        shop.mount(_billing(), prefix="billing")
    assert [tool.key for tool in shop.endpoint.registry.tools] == ["hello", "billing_receipt"]
    shop.mount(_billing(), prefix="b")
    with pytest.raises(RegistrationError, match="Tool 'b_refund' is registered already"):
        shop.add_tool(billing_receipt, name="b_refund")


async def test_a_name_that_is_taken_later_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    shop, billing = _shop(), _billing()
    shop.mount(billing)
    billing.add_tool(lambda: "theirs", name="hello")
    async with Client(shop) as client:
        assert _text(await client.call_tool("hello")) == "hello"
    assert "Tool 'hello' is registered already" in caplog.text


async def test_a_running_server_cannot_be_mounted_in() -> None:
    shop = _shop()
    async with shop.running():
        with pytest.raises(UsageError, match="before the server starts"):
            shop.mount(_billing(), prefix="billing")
