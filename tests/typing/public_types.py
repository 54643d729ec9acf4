"""What a type checker sees of the public names. Checked by pyright, never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, assert_type

from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitResult,
    GetPromptResult,
    Icon,
    ReadResourceResult,
    Tool,
    ToolAnnotations,
)

from ekiden import (
    Answer,
    CacheHint,
    CallNext,
    Client,
    Complete,
    Context,
    Failed,
    HttpLimits,
    InvalidParams,
    LeftOut,
    Middleware,
    MissingCapability,
    Outcome,
    PendingCall,
    Person,
    ProtocolError,
    Request,
    Retry,
    Server,
    TaskHandle,
    ToolError,
)
from ekiden.gateway import Proxy, Upstream, gateway, proxy
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.memory import MemoryChannel
from ekiden.wire.meta import RequestMeta


class Database:
    async def find(self, key: str) -> int:
        return len(key)


@asynccontextmanager
async def lifespan(server: Server) -> AsyncGenerator[Database, None]:
    yield Database()


server = Server(
    "shop", version="1", lifespan=lifespan, cache={"tools/list": CacheHint(1000, "public")}, page_size=10
)


# Decorators keep the type of the function


@server.tool
async def bare(a: int, ctx: Context, b: str = "x") -> list[int]:
    return [a]


@server.tool(
    name="named",
    title="Title",
    annotations=ToolAnnotations(read_only_hint=True),
    icons=[Icon(src="https://example.com/i.png")],
    meta={"k": 1},
    structured=True,
    scopes=["read"],
)
async def with_options(a: int) -> dict[str, int]:
    return {"a": a}


@server.tool
def plain(a: int) -> str:
    return str(a)


@server.prompt
async def prompt(a: str) -> str:
    return a


@server.prompt(title="Title")
async def prompt_with_options(a: str) -> list[str]:
    return [a]


@server.resource("shop://{a}", mime_type="text/plain", cache=CacheHint())
async def resource(a: str) -> bytes:
    return a.encode()


@server.completion(prompt="prompt", argument="a")
async def completion(value: str) -> list[str]:
    return [value]


@server.middleware
async def middleware(request: Request, call_next: CallNext) -> Outcome:
    return await call_next(request)


@server.middleware(tasks=True)
async def around_legs(request: Request, call_next: CallNext) -> Outcome:
    assert_type(request.task, str | None)
    return await call_next(request)


async def decorated_functions_keep_their_types(ctx: Context) -> None:
    assert_type(await bare(1, ctx), list[int])
    assert_type(await bare(1, ctx, b="y"), list[int])
    assert_type(await with_options(1), dict[str, int])
    assert_type(plain(1), str)
    assert_type(await prompt("a"), str)
    assert_type(await prompt_with_options("a"), list[str])
    assert_type(await resource("a"), bytes)
    assert_type(await completion("a"), list[str])
    await bare("not a number", ctx)  # pyright: ignore[reportArgumentType]
    await with_options()  # pyright: ignore[reportCallIssue]


def wrong_options_are_refused() -> None:
    server.tool(nmae="typo")  # pyright: ignore[reportCallIssue]
    server.tool(structured="yes")  # pyright: ignore[reportArgumentType]
    CacheHint(1, "everyone")  # pyright: ignore[reportArgumentType]
    server.run("carrier pigeon")  # pyright: ignore[reportArgumentType]


def a_middleware_is_a_function_from_request_and_next() -> None:
    assert_type(middleware, Middleware)
    assert_type(around_legs, Middleware)


# The context knows its state


@server.tool
async def with_state(key: str, ctx: Context[Database]) -> int:
    assert_type(ctx.state, Database)
    return assert_type(await ctx.state.find(key), int)


@server.tool
async def without_state(ctx: Context) -> None:
    assert_type(ctx.state, Any)


async def what_a_context_can_do(ctx: Context[Database]) -> None:
    assert_type(ctx.request, Request)
    assert_type(ctx.meta, RequestMeta)
    assert_type(ctx.meta.capabilities, dict[str, Any])
    assert_type(await ctx.progress(1, 2, "half"), None)
    assert_type(await ctx.log("info", {"any": "data"}, logger="mine"), None)
    await ctx.log("loud", "data")  # pyright: ignore[reportArgumentType]
    await ctx.progress("one")  # pyright: ignore[reportArgumentType]
    ctx.state.no_such_method()  # pyright: ignore[reportAttributeAccessIssue]


# Steps


async def load(name: str, *, upper: bool = False) -> int:
    return len(name)


def count(name: str, times: int = 1) -> list[str]:
    return [name] * times


async def a_step_has_the_parameters_and_the_value_of_its_function(ctx: Context) -> None:
    assert_type(await ctx.step(load, "x", upper=True), int)
    assert_type(await ctx.step(load, "x", upper=True, key="k", raises=[ValueError]), int)
    assert_type(await ctx.step(count, "x", times=3), list[str])
    assert_type(await ctx.step(count, "x", times=3, retry=Retry()), list[str])
    assert_type(await ctx.step(lambda: 5, key="five"), int)
    ctx.on_complete(load, "x", upper=True)
    await ctx.step(load, 5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(load, "x", uper=True)  # pyright: ignore[reportCallIssue]
    await ctx.step(load("x"))  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(load, "x", key=5)  # pyright: ignore[reportCallIssue]


# Outcomes


def an_outcome_is_narrowed_by_its_class(outcome: Outcome) -> None:
    if isinstance(outcome, Complete):
        assert_type(outcome.as_dict(), dict[str, Any])
    elif isinstance(outcome, Failed):
        assert_type(outcome.error, ProtocolError)
        assert_type(outcome.error.code, int)
        assert_type(outcome.error.message, str)


def errors_carry_their_facts() -> None:
    assert_type(InvalidParams("x", data={"k": 1}).code, int)
    assert_type(MissingCapability({"sampling": {}}).required, dict[str, Any])
    error: Exception = ToolError("x")
    assert_type(str(error), str)


# Serving


async def what_a_server_hands_out() -> None:
    assert_type(server.asgi(limits=HttpLimits(body=1)), StreamableHTTP)
    assert_type(server.connect(), AbstractAsyncContextManager[MemoryChannel])
    async with server.connect() as channel:
        assert_type(await channel.receive(), dict[str, Any])
    async with server.running():
        pass


def a_decorator_with_options_is_generic(function: Callable[[int], Coroutine[Any, Any, str]]) -> None:
    assert_type(server.tool(name="x")(function), Callable[[int], Coroutine[Any, Any, str]])
    assert_type(server.tool(function), Callable[[int], Coroutine[Any, Any, str]])


# The client


async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={})


async def elicit_nothing(params: ElicitRequestFormParams) -> int:
    return 1


async def elicit_later(params: ElicitRequestFormParams) -> ElicitResult | LeftOut:
    return LeftOut() if params.message else ElicitResult(action="decline")


async def use_client() -> None:
    Client("x", elicit=elicit_later)
    async with Client("http://localhost/mcp", elicit=elicit, roots=["file:///"]) as client:
        assert_type(await client.call_tool("t"), CallToolResult)
        assert_type(await client.call_tool("t", {"a": 1}, result_type=list[int]), list[int])
        assert_type(await client.start_tool("t"), CallToolResult | PendingCall | TaskHandle)
        prompt = await client.start_prompt("p", {"a": "b"})
        while isinstance(prompt, PendingCall):
            prompt = await client.resume_prompt(prompt, {"k": LeftOut()})
        assert_type(prompt, GetPromptResult)
        resource = await client.start_resource("notes://1")
        if isinstance(resource, PendingCall):
            assert_type(await client.resume_resource(resource), ReadResourceResult | PendingCall)
        assert_type(await client.list_tools(), list[Tool])
        async for change in client.listen(tools=True):
            assert_type(change, dict[str, Any])
    Client("x", elicit=elicit_nothing)  # pyright: ignore[reportArgumentType]
    Client(5)  # pyright: ignore[reportArgumentType]


# Gateways


def use_gateway() -> None:
    assert_type(gateway("mcp.json", page_size=10), Server)
    assert_type(proxy("https://billing.example/mcp", headers={"X-Key": "k"}), Proxy)
    server.mount(proxy(["notes"], name="notes"), prefix="notes")
    gateway([Upstream(name="a", target="http://localhost/mcp")])
    server.mount("http://localhost/mcp")  # pyright: ignore[reportArgumentType]


async def somebody_else_is_asked(ctx: Context) -> None:
    person = Person("a@example.com", remind=60, deadline=3600, escalate=("b@example.com",), default=True)
    assert_type(await ctx.elicit("Well?", bool, who=person), Answer[bool])
    assert_type(await ctx.elicit("Well?", bool, who="a@example.com"), Answer[bool])
    assert_type(await ctx.elicit("Which?", ["red", "blue"]), Answer[str])
    await ctx.elicit("Well?", bool, who=7)  # pyright: ignore[reportCallIssue,reportArgumentType]


async def use_ask(ctx: Context[Any]) -> None:
    assert_type(await ctx.ask({"method": "roots/list"}), dict[str, Any])
