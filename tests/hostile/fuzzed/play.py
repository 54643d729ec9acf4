"""Our client and a hostile server, and the law.

Every call ends within its time limit, with a result or an exception of ekiden's. Memory stays bounded.
Nothing goes to another server, least of all a credential.
"""

import asyncio
import contextlib
import functools
import random
import resource
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import httpx2
from mcp_types import CreateMessageResult, ElicitResult, TextContent

from ekiden import Client, ClientLimits, EkidenError, PendingCall, TaskHandle

from .server import fuzzed_server

SECONDS = 0.6
"""The time limit of every call."""
SLACK = 10.0
"""What a loaded machine may need beyond it."""
MOST_MEMORY = 400 * 1024 * 1024
"""How much the process may grow, over all seeds."""

LIMITS = ClientLimits(
    message_bytes=2_000_000,
    stream_bytes=2_000_000,
    state_bytes=10_000,
    pages=50,
    list_items=20_000,
    list_bytes=5_000_000,
    stuck_seconds=0.3,
)


class Broken(AssertionError):
    """The law was broken."""


class Secret(httpx2.Auth):
    """A credential that must not go astray."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = "Bearer secret"
        yield request


async def _elicit(params: Any) -> ElicitResult:
    properties = params.requested_schema.get("properties") if hasattr(params, "requested_schema") else None
    fields: dict[str, Any] = properties if isinstance(properties, dict) else {}
    content = {name: field.get("default", "a") for name, field in fields.items() if isinstance(field, dict)}
    return ElicitResult(action="accept", content=content or None)


async def _sample(params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="hello"))


async def _by_hand(client: Client) -> None:
    ended = await client.start_tool("deed", {"a": "b"})
    for _ in range(5):
        if isinstance(ended, PendingCall):
            ended = await client.resume(ended)
    if isinstance(ended, TaskHandle):
        await ended.wait(timeout=SECONDS)


async def _listen(client: Client) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            async for _ in client.listen(tools=True):
                pass


async def _follow(client: Client) -> None:
    task = client.task("t")
    await task.status()
    await task.wait(timeout=SECONDS)


DEEDS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "list_tools": lambda client: client.list_tools(),
    "list_prompts": lambda client: client.list_prompts(),
    "list_resources": lambda client: client.list_resources(),
    "list_resource_templates": lambda client: client.list_resource_templates(),
    "call_tool": lambda client: client.call_tool(
        "deed", {"a": "b"}, progress=lambda *_: None, timeout=SECONDS
    ),
    "get_prompt": lambda client: client.get_prompt("deed"),
    "read_resource": lambda client: client.read_resource("x://y"),
    "by hand": _by_hand,
    "listen": _listen,
    "task": _follow,
}


async def play(seed: int) -> list[str]:
    """Let a client call a hostile server. Returns what each call came to; raises `Broken`."""
    dice = random.Random(f"client {seed}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ends: list[str] = []
    async with fuzzed_server(seed) as (url, strayed):
        client = Client(
            url,
            mode=dice.choice(["auto", "modern", "legacy"]),
            auth=Secret() if dice.random() < 0.5 else None,
            elicit=_elicit,
            elicit_url=_elicit,
            sample=_sample,
            roots=["file:///home"],
            timeout=SECONDS,
            limits=LIMITS,
        )
        opened = await _held(seed, "connect", client.__aenter__, SECONDS)
        ends.append(f"connect: {opened}")
        if opened == "ended":
            for name in dice.choices(list(DEEDS), k=4):
                came_to = await _held(seed, name, functools.partial(DEEDS[name], client), 2 * SECONDS)
                ends.append(f"{name}: {came_to}")
            await _held(seed, "close", lambda: client.__aexit__(None, None, None), 2 * SECONDS)
    if strayed:
        raise Broken(f"seed {seed}: another server was sent {strayed[0][:500]!r}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    if grown > MOST_MEMORY:
        raise Broken(f"seed {seed}: the process grew by {grown >> 20} MB")
    return ends


async def _held(seed: int, name: str, deed: Callable[[], Awaitable[object]], seconds: float) -> str:
    """What a call came to: it must be a result or an exception of ours, in time."""
    began, spent = time.monotonic(), time.process_time()
    try:
        async with asyncio.timeout(seconds + SLACK):
            await deed()
        return "ended"
    except EkidenError as error:
        return type(error).__name__
    except TimeoutError:
        raise Broken(f"seed {seed}: {name} did not end within {seconds + SLACK} seconds") from None
    except Exception as error:
        raise Broken(f"seed {seed}: {name} raised {type(error).__name__}: {error}") from error
    finally:
        # The loop must not have been held up: then neither a time limit nor Ctrl-C would have an effect.
        if time.process_time() - spent > seconds + SLACK / 2:
            raise Broken(f"seed {seed}: {name} was busy for {time.monotonic() - began:.1f} seconds")
